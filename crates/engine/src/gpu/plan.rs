//! How a batch is divided into pieces, and how a piece is described to the kernels (`kernels/batch.cuh`).

use crate::{Batch, ChunkJob, Op};
use crypto::{
    chunk::{CHUNK, ChunkKeys},
    cipher::CipherFamily,
    integrity::Integrity,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of a key slot.
pub(super) const KEY_SLOT: usize = 656;
/// Bytes of a chunk's descriptor.
pub(super) const DESCRIPTOR: usize = 64;
/// Bytes of a tag, as the device writes it.
pub(super) const TAG: usize = 16;
/// Bytes of a verdict.
pub(super) const VERDICT: usize = 4;
/// Alignment of chunks on the device.
pub(super) const ALIGNMENT: usize = 16;

/// Index of the kernels that a chunk needs, below `CLASSES`: given by its cipher's family and its integrity
/// function.
pub(super) type ChunkClass = usize;
/// Number of classes.
pub(super) const CLASSES: usize = CipherFamily::ALL.len() * Integrity::ALL.len();

/// The class of a key.
pub(super) fn class(keys: &ChunkKeys) -> ChunkClass {
    let (cipher, integrity) = keys.functions();
    cipher.family() as usize * Integrity::ALL.len() + integrity as usize
}

/// Chunks per warp when single threads compute the tags.
pub(super) fn chunks_of_warp(class: ChunkClass) -> usize {
    match Integrity::ALL[class % Integrity::ALL.len()] {
        Integrity::Kmac128 | Integrity::Kmac256 => 32,
        Integrity::TurboShake128x4 => 8,
    }
}

/// Suffixes of the kernels' names, by class.
pub(super) fn class_names() -> impl Iterator<Item = String> {
    let of_family = |family: CipherFamily| {
        Integrity::ALL.map(|integrity| format!("{}_{}", family.name(), integrity.name()))
    };
    CipherFamily::ALL.into_iter().flat_map(of_family)
}

/// Limits of one piece.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Limits {
    pub bytes: usize,
    pub chunks: usize,
    pub keys: usize,
}

impl Limits {
    /// Bytes of the key slots and descriptors of the largest piece.
    pub fn described(&self) -> usize {
        self.keys * KEY_SLOT + self.chunks * DESCRIPTOR
    }

    /// Offset of the tags in the control block, behind key slots and descriptors.
    pub fn tags_at(&self) -> usize {
        self.described().next_multiple_of(4096)
    }

    /// Offset of the verdicts, behind the tags.
    pub fn verdicts_at(&self) -> usize {
        self.tags_at() + self.chunks * TAG
    }

    /// Offset of the number of the last completed order, behind the verdicts.
    pub fn done_at(&self) -> usize {
        self.verdicts_at() + self.chunks * VERDICT
    }

    /// Whether a piece of this many chunks may be processed in host memory. The device keeps a copy of each
    /// chunk in a 4 KiB area.
    pub fn keeps(&self, chunks: usize) -> bool {
        chunks.saturating_mul(CHUNK) <= self.bytes
    }

    /// Bytes of key slots, descriptors, tags, verdicts and the order's number.
    pub fn control_block(&self) -> usize {
        self.done_at() + size_of::<u32>()
    }
}

/// One chunk of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    /// Index in `Batch::jobs`.
    pub job: usize,
    /// Offset on the device, the same in input and output.
    pub place: usize,
    /// Index of its key in `GpuPiece::keys`.
    pub key: usize,
}

/// Bytes that are contiguous both in the batch's buffers and on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Offset in the batch's buffers.
    pub host: usize,
    /// Offset on the device.
    pub place: usize,
    /// In bytes.
    pub len: usize,
}

/// Chunks that go to the device together, grouped by class.
#[derive(Debug, Default)]
pub(super) struct GpuPiece {
    pub chunks: Vec<Placed>,
    pub runs: Vec<Run>,
    /// Indices in `Batch::keys`.
    pub keys: Vec<usize>,
    /// The classes, each with its range of `chunks`.
    pub classes: Vec<(ChunkClass, Range<usize>)>,
    /// End of the last chunk on the device.
    pub bytes: usize,
}

impl GpuPiece {
    /// Adds the chunk, unless that would exceed a limit. Returns whether it was added.
    fn add(&mut self, job: usize, chunk: &ChunkJob, limits: Limits) -> bool {
        let known = self.keys.iter().rposition(|key| *key == chunk.key);
        let place = self.bytes.next_multiple_of(ALIGNMENT);
        let full = place + chunk.len > limits.bytes || self.chunks.len() == limits.chunks;
        if full || known.is_none() && self.keys.len() == limits.keys {
            return false;
        }
        let key = known.unwrap_or_else(|| {
            self.keys.push(chunk.key);
            self.keys.len() - 1
        });
        self.chunks.push(Placed { job, place, key });
        match self.runs.last_mut() {
            Some(run) if run.host + run.len == chunk.offset && run.place + run.len == place => {
                run.len += chunk.len;
            }
            _ => self.runs.push(Run { host: chunk.offset, place, len: chunk.len }),
        }
        self.bytes = place + chunk.len;
        true
    }

    /// Bytes of the piece's key slots and descriptors.
    pub fn described_len(&self) -> usize {
        self.keys.len() * KEY_SLOT + self.chunks.len() * DESCRIPTOR
    }

    /// Writes the key slots and descriptors, one after the other. For input and output, `direct` selects
    /// the chunk's offset in the batch's buffer instead of its offset on the device.
    pub fn describe(&self, batch: &Batch, direct: [bool; 2], out: &mut [u8]) {
        let (slots, descriptors) = out.split_at_mut(self.keys.len() * KEY_SLOT);
        for (slot, key) in slots.as_chunks_mut().0.iter_mut().zip(&self.keys) {
            write_key(&batch.keys[*key], slot);
        }
        for (descriptor, chunk) in descriptors.as_chunks_mut().0.iter_mut().zip(&self.chunks) {
            let job = &batch.jobs[chunk.job];
            let places = direct.map(|direct| if direct { job.offset } else { chunk.place });
            write_chunk(chunk.key, places, job, descriptor);
        }
    }

    /// Groups the chunks by class.
    fn sort(&mut self, batch: &Batch) {
        let of_key: Vec<ChunkClass> = self.keys.iter().map(|key| class(&batch.keys[*key])).collect();
        if of_key.iter().any(|class| *class != of_key[0]) {
            self.chunks.sort_by_key(|chunk| of_key[chunk.key]);
        }
        let mut start = 0;
        for same in self.chunks.chunk_by(|a, b| of_key[a.key] == of_key[b.key]) {
            self.classes.push((of_key[same[0].key], start..start + same.len()));
            start += same.len();
        }
    }
}

/// Removes the next piece from `rest`: indices of the jobs of a checked batch, sorted by offset.
pub(super) fn next_piece(batch: &Batch, rest: &mut &[usize], limits: Limits) -> Option<GpuPiece> {
    let mut piece =
        GpuPiece { chunks: Vec::with_capacity(rest.len().min(limits.chunks)), ..GpuPiece::default() };
    while let Some((job, after)) = rest.split_first()
        && piece.add(*job, &batch.jobs[*job], limits)
    {
        *rest = after;
    }
    piece.sort(batch);
    (!piece.chunks.is_empty()).then_some(piece)
}

fn write_key(keys: &ChunkKeys, slot: &mut [u8; KEY_SLOT]) {
    let expanded = keys.expanded();
    slot.fill(0);
    slot[..expanded.round_keys().as_flattened().len()].copy_from_slice(expanded.round_keys().as_flattened());
    let rounds = expanded.round_keys().len() as u32 - 1;
    slot[240..244].copy_from_slice(&rounds.to_le_bytes());
    let sponges = expanded.keyed_state().iter().chain(expanded.lane_state());
    for (bytes, lane) in slot[256..].as_chunks_mut::<8>().0.iter_mut().zip(sponges) {
        *bytes = lane.to_le_bytes();
    }
}

fn write_chunk(key: usize, places: [usize; 2], job: &ChunkJob, out: &mut [u8; DESCRIPTOR]) {
    out[..8].copy_from_slice(&(places[0] as u64).to_le_bytes());
    out[8..16].copy_from_slice(&(places[1] as u64).to_le_bytes());
    out[16..24].copy_from_slice(&job.id.index.to_le_bytes());
    out[24..32].copy_from_slice(&job.id.epoch.to_le_bytes());
    out[32..42].copy_from_slice(&job.id.nonce);
    out[42..44].copy_from_slice(&(job.len as u16).to_le_bytes());
    out[44..48].copy_from_slice(&(key as u32).to_le_bytes());
    out[48..].copy_from_slice(&job.tag);
}

/// Bytes that a launch produces per chunk besides the output: a tag, or whether the chunk verified.
pub(super) fn made_len(op: Op) -> usize {
    match op {
        Op::Seal => TAG,
        Op::Open => 4,
    }
}

/// The device's verdict on one chunk, after it has computed the chunk twice (`kernels/check.cuh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceVerdict {
    /// Both results agree.
    Confirmed,
    /// Both computed tags differ from the descriptor's.
    Unverified,
    /// The results differ.
    Refuted,
    /// The chunk was not computed a second time.
    Unknown,
}

impl PieceVerdict {
    /// Decodes `word`, as written for the order with this number.
    pub fn of(word: u32, number: u32) -> Self {
        match word ^ number << 2 {
            1 => PieceVerdict::Confirmed,
            2 => PieceVerdict::Unverified,
            3 => PieceVerdict::Refuted,
            _ => PieceVerdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferPool;
    use crypto::{chunk::ChunkId, cipher::Cipher};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { bytes: 8192, chunks: 6, keys: 2 };

    fn batch(jobs: &[(usize, usize, usize)]) -> Batch {
        let (input, output) = BufferPool::new(usize::MAX).get_pair(1 << 20);
        let job = |&(key, offset, len): &(usize, usize, usize)| {
            let id = ChunkId { index: 7, epoch: 9, nonce: [3; 10] };
            ChunkJob { key, id, len, offset, tag: [5; 16], ok: false }
        };
        let kinds = [(Cipher::Aes128, 16), (Cipher::Kuznyechik, 32), (Cipher::Aes256, 32)];
        let keys = kinds.map(|(cipher, len)| {
            Arc::new(ChunkKeys::new(cipher, Integrity::Kmac256, &[1; 32][..len], &[2; 32]))
        });
        Batch { op: Op::Open, keys: keys.to_vec(), jobs: jobs.iter().map(job).collect(), input, output }
    }

    fn pieces(batch: &Batch) -> Vec<GpuPiece> {
        let order: Vec<usize> = (0..batch.jobs.len()).collect();
        let mut rest = &order[..];
        std::iter::from_fn(|| next_piece(batch, &mut rest, LIMITS)).collect()
    }

    #[test]
    fn pieces_hold_all_chunks_within_the_limits_and_apart() {
        let jobs: Vec<_> = (0..200).map(|n| (n % 3, n * 4100, 1 + (n * 531) % 4096)).collect();
        let batch = batch(&jobs);
        let mut seen = Vec::new();
        for piece in pieces(&batch) {
            assert!(piece.bytes <= LIMITS.bytes && piece.chunks.len() <= 6 && piece.keys.len() <= 2);
            let mut places: Vec<_> =
                piece.chunks.iter().map(|c| (c.place, c.place + batch.jobs[c.job].len)).collect();
            places.sort();
            assert!(places.iter().all(|place| place.0 % 16 == 0));
            assert!(places.windows(2).all(|two| two[0].1 <= two[1].0));
            assert!(places[places.len() - 1].1 <= piece.bytes);
            let in_classes: usize = piece.classes.iter().map(|(_, range)| range.len()).sum();
            assert_eq!(in_classes, piece.chunks.len());
            for (class, range) in &piece.classes {
                let classes = piece.chunks[range.clone()].iter().map(|c| batch.jobs[c.job].key);
                assert!(classes.map(|key| super::class(&batch.keys[key])).all(|c| c == *class));
            }
            seen.extend(piece.chunks.iter().map(|c| c.job));
        }
        seen.sort();
        assert_eq!(seen, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn neighbours_make_one_run_and_gaps_and_odd_lengths_another() {
        let batch = batch(&[(0, 0, 4096), (0, 4096, 16), (0, 4112, 17), (0, 4129, 100), (0, 5000, 8)]);
        let [piece] = &pieces(&batch)[..] else { panic!("one piece") };
        let runs: Vec<_> = piece.runs.iter().map(|run| (run.host, run.place, run.len)).collect();
        assert_eq!(runs, [(0, 0, 4129), (4129, 4144, 100), (5000, 4256, 8)]);
    }

    /// The names are those in `kernels/warpcrypt.cu`.
    #[test]
    fn each_class_has_the_kernels_of_its_functions() {
        let names: Vec<String> = class_names().collect();
        assert_eq!(names.len(), CLASSES);
        for cipher in Cipher::ALL {
            for integrity in Integrity::ALL {
                let keys = ChunkKeys::new(cipher, integrity, &[1; 32][..cipher.key_len()], &[2; 32]);
                let (family, tag) = names[class(&keys)].split_once('_').expect("two parts");
                assert!(
                    cipher.name().starts_with(family) && tag == integrity.name(),
                    "{cipher:?}, {integrity:?}"
                );
            }
        }
        let expected = ["aes_kmac128", "aes_kmac256", "aes_turboshake128x4"];
        assert_eq!(names[..3], expected);
    }

    /// The layout of `kernels/batch.cuh`.
    #[test]
    fn descriptors_have_every_field_in_its_place() {
        let batch = batch(&[(1, 0, 4096), (1, 4096, 300)]);
        let [piece] = &pieces(&batch)[..] else { panic!("one piece") };
        let mut bytes = vec![0xee; piece.described_len()];
        piece.describe(&batch, [false; 2], &mut bytes);
        let (slot, chunks) = bytes.split_at(KEY_SLOT);
        let keys = batch.keys[1].expanded();
        assert_eq!(slot[..160], *keys.round_keys().as_flattened());
        assert_eq!(slot[240], 9);
        assert_eq!(slot[256..264], keys.keyed_state()[0].to_le_bytes());
        assert_eq!(slot[448..456], keys.keyed_state()[24].to_le_bytes());
        assert!(slot[160..240].iter().chain(&slot[456..]).all(|byte| *byte == 0), "KMAC has no lanes");
        let second = &chunks[64..];
        assert_eq!(second[..8], 4096u64.to_le_bytes());
        assert_eq!(second[8..16], 4096u64.to_le_bytes());
        assert_eq!((second[16], second[24], &second[32..42]), (7, 9, &[3; 10][..]));
        assert_eq!((&second[42..44], &second[44..48]), (&300u16.to_le_bytes()[..], &[0; 4][..]));
        assert_eq!(second[48..], [5; 16]);
    }

    #[test]
    fn descriptors_name_places_in_the_batch_where_it_is_used_directly() {
        let batch = batch(&[(1, 4096, 4096), (1, 12288, 300)]);
        let [piece] = &pieces(&batch)[..] else { panic!("one piece") };
        let mut bytes = vec![0xee; piece.described_len()];
        piece.describe(&batch, [true, false], &mut bytes);
        let second = &bytes[KEY_SLOT + DESCRIPTOR..];
        assert_eq!((&second[..8], &second[8..16]), (&12288u64.to_le_bytes()[..], &4096u64.to_le_bytes()[..]));
    }
}

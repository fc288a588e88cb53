//! Tags, sealing and opening of whole batches, compared with `ChunkKeys`, with every length at which the
//! code takes a different path, many keys, gaps between the chunks, and every way in which a chunk can
//! fail.

use super::{
    layout::{DESK, Descriptor, TABLES, key_slot, noise},
    runner::{Argument, Geometry, Machine, Runner, on_threads, runners},
};
use crate::support::is_proof;
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys},
    cipher::{Cipher, CipherFamily},
    integrity::Integrity,
};

const KEYS: usize = 5;

/// Lengths around multiples of blocks, of rates (the data begins 30 bytes into the first block, and
/// padding takes three), of lanes, and around a chunk's end.
fn edge_lengths() -> Vec<usize> {
    let mut lengths =
        vec![1, 2, 3, 15, 16, 17, 31, 32, 33, 511, 512, 513, 1024, 4063, 4064, 4065, 4079, 4080, 4081, 4094];
    for rate in [136, 168] {
        for blocks in [1, 2, 3, 24] {
            let end = blocks * rate - 30;
            lengths.extend([end - 4, end - 3, end - 2, end - 1, end, end + 1, end + 8]);
        }
    }
    for lanes in [1000, 2000, 3000, 4000] {
        lengths.extend([lanes - 1, lanes, lanes + 1, lanes + 3, lanes + 8, lanes + 95]);
    }
    lengths.extend([4095, CHUNK, CHUNK, 7]);
    lengths
}

/// A wide kernel's warp processes its chunks one by one, with 24 rounds of shuffles per block, so the
/// CPU gets fewer lengths.
fn lengths(machine: Machine, wide: bool) -> Vec<usize> {
    let all = edge_lengths();
    match machine {
        Machine::Threads => vec![40, 1300, 7],
        Machine::Cpu if wide => {
            let few = |len: &usize| *len < 400 || *len == 4095 || len % 1000 < 2;
            all.into_iter().filter(few).collect()
        }
        _ => all,
    }
}

/// Chunks and their data, in buffers with a gap after each chunk.
pub struct Batch {
    slots: Vec<u8>,
    keys: Vec<ChunkKeys>,
    pub chunks: Vec<Descriptor>,
    pub plain: Vec<u8>,
    pub sealed: Vec<u8>,
}

const GAP: u8 = 0xee;

/// The ciphers of a family. A batch's keys alternate between them, because a kernel accepts mixed key
/// sizes.
pub fn ciphers_of(family: CipherFamily) -> Vec<Cipher> {
    Cipher::ALL.into_iter().filter(|cipher| cipher.family() == family).collect()
}

impl Batch {
    pub fn new(ciphers: &[Cipher], integrity: Integrity, lengths: &[usize]) -> Self {
        let mut batch = Batch { slots: vec![], keys: vec![], chunks: vec![], plain: vec![], sealed: vec![] };
        for key in 0..KEYS {
            let cipher = ciphers[key % ciphers.len()];
            let (encryption, mac) = (noise(key as u64, cipher.key_len()), [key as u8 + 1; 32]);
            batch.keys.push(ChunkKeys::new(cipher, integrity, &encryption, &mac));
            batch.slots.extend(key_slot(cipher, integrity, &encryption, &mac));
        }
        for (i, &len) in lengths.iter().enumerate() {
            batch.push(i as u64, len);
        }
        batch
    }

    fn push(&mut self, i: u64, len: usize) {
        // The smallest and the largest numbers, and numbers with every byte set.
        let index = [i, ChunkId::INDEX_END - 1 - i, 0x12_3456_789a, 0xff_ffff][i as usize % 4];
        let epoch = [1, (1 << 48) - 1, 0x1234_5678_9abc, i][i as usize % 4];
        let id = ChunkId { index, epoch, nonce: noise(i + 77, 10).try_into().expect("ten bytes") };
        let key = i as usize % KEYS;
        let at = self.plain.len() as u64;
        let plain = noise(i, len);
        let mut sealed = vec![0; len];
        let tag = self.keys[key].seal(&id, &plain, &mut sealed);
        self.chunks.push(Descriptor { source: at, target: at, id, length: len as u16, key: key as u32, tag });
        for (buffer, data) in [(&mut self.plain, plain), (&mut self.sealed, sealed)] {
            buffer.extend(data);
            buffer.resize(buffer.len().next_multiple_of(16), 0);
            buffer.extend([GAP; 16]);
        }
    }

    fn descriptors(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(Descriptor::bytes).collect()
    }

    pub fn tags(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|chunk| chunk.tag).collect()
    }

    /// `buffer` with noise instead of zeros in the chunks' padding.
    pub fn with_noise(&self, buffer: &[u8]) -> Vec<u8> {
        let mut noisy = buffer.to_vec();
        for chunk in &self.chunks {
            let end = chunk.source as usize + usize::from(chunk.length);
            noisy[end..end.next_multiple_of(16)].fill(0x77);
        }
        noisy
    }

    /// Expected content of an output that began as `before`, after a wide kernel wrote `buffer` to it: a
    /// wide kernel leaves the chunks' padding unchanged.
    fn written(&self, wide: bool, buffer: &[u8], before: &[u8]) -> Vec<u8> {
        let mut written = buffer.to_vec();
        for chunk in self.chunks.iter().filter(|_| wide) {
            let end = chunk.source as usize + usize::from(chunk.length);
            let padding = end..end.next_multiple_of(16);
            written[padding.clone()].copy_from_slice(&before[padding]);
        }
        written
    }

    /// Runs an entry point. Returns the buffers after the keys and descriptors.
    pub fn run(
        &self,
        runner: &mut Runner,
        name: &str,
        geometry: Geometry,
        rest: Vec<Argument>,
    ) -> Vec<Vec<u8>> {
        let mut arguments = vec![
            Argument::Buffer(self.slots.clone()),
            Argument::Buffer(self.descriptors()),
            Argument::Number(self.chunks.len() as u64),
        ];
        arguments.extend(rest);
        runner.run(name, geometry, arguments).split_off(2)
    }
}

/// Appends the trace parameters, with tracing disabled.
fn traced(arguments: [Argument; 3]) -> Vec<Argument> {
    arguments.into_iter().chain([(); 2].map(|()| Argument::Number(0))).collect()
}

fn each(mut test: impl FnMut(Machine, &mut Runner, Integrity, bool)) {
    for (machine, mut runner) in runners() {
        for integrity in Integrity::ALL {
            for wide in [false, true] {
                test(machine, &mut runner, integrity, wide);
            }
        }
    }
}

fn geometry(wide: bool, shared: u32) -> Geometry {
    if wide {
        Geometry { blocks: 3, threads: 64, shared: shared + 2 * DESK }
    } else {
        Geometry { blocks: 2, threads: 32, shared }
    }
}

fn suffix(wide: bool) -> &'static str {
    if wide { "_wide" } else { "" }
}

#[test]
fn tags_of_all_lengths() {
    each(|machine, runner, integrity, wide| {
        let batch = Batch::new(&[Cipher::Kuznyechik], integrity, &lengths(machine, wide));
        let name = format!("{}_tags{}", integrity.name(), suffix(wide));
        let input = Argument::Buffer(batch.with_noise(&batch.sealed));
        let tags = Argument::Buffer(vec![0; 16 * batch.chunks.len()]);
        let out = batch.run(runner, &name, geometry(wide, 0), vec![input, tags]);
        assert!(out[1] == batch.tags(), "{name} on {machine:?}");
    });
}

fn seal(machine: Machine, runner: &mut Runner, integrity: Integrity, wide: bool, family: CipherFamily) {
    let batch = Batch::new(&ciphers_of(family), integrity, &lengths(machine, wide));
    let name = format!("seal_{}_{}{}", family.name(), integrity.name(), suffix(wide));
    let plain = batch.with_noise(&batch.plain);
    let tags = || Argument::Buffer(vec![0; 16 * batch.chunks.len()]);
    let blank = vec![GAP; plain.len()];
    let apart = traced([Argument::Buffer(plain.clone()), Argument::Buffer(blank.clone()), tags()]);
    let out = batch.run(runner, &name, geometry(wide, TABLES), apart);
    assert!(out[0] == plain, "{name} changed its input on {machine:?}");
    assert!(out[1] == batch.written(wide, &batch.sealed, &blank), "ciphertext of {name} on {machine:?}");
    assert!(out[2] == batch.tags(), "tags of {name} on {machine:?}");
    let expected = batch.written(wide, &batch.sealed, &plain);
    let in_place = traced([Argument::Buffer(plain), Argument::Same(3), tags()]);
    let out = batch.run(runner, &name, geometry(wide, TABLES), in_place);
    assert!(out[0] == expected && out[1] == batch.tags(), "{name} in place on {machine:?}");
}

#[test]
fn seal_with_every_cipher() {
    each(|machine, runner, integrity, wide| {
        CipherFamily::ALL.into_iter().for_each(|family| seal(machine, runner, integrity, wide, family));
    });
}

/// Damages every third chunk in some way. Returns the expected output of opening, and the expected
/// verdicts.
fn tamper(batch: &mut Batch) -> (Vec<u8>, Vec<u8>) {
    let mut expected = batch.plain.clone();
    let mut verdicts = Vec::new();
    for (i, chunk) in batch.chunks.iter_mut().enumerate() {
        let (start, len) = (chunk.source as usize, usize::from(chunk.length));
        let broken = i % 3 == 0;
        if broken {
            match i / 3 % 7 {
                0 => chunk.tag[i % 16] ^= 1 << (i % 8),
                1 => batch.sealed[start] ^= 1,
                2 => batch.sealed[start + len - 1] ^= 0x80,
                3 => chunk.id.nonce[9] ^= 1,
                4 => chunk.id.index ^= 1 << 39,
                5 => chunk.id.epoch ^= 1 << 47,
                _ => chunk.key = (chunk.key + 1) % KEYS as u32,
            }
            expected[start..start + len].fill(0);
        }
        verdicts.extend(u32::from(!broken).to_le_bytes());
    }
    (expected, verdicts)
}

fn open(machine: Machine, runner: &mut Runner, integrity: Integrity, wide: bool, family: CipherFamily) {
    let mut batch = Batch::new(&ciphers_of(family), integrity, &lengths(machine, wide));
    let (expected, verdicts) = tamper(&mut batch);
    let name = format!("open_{}_{}{}", family.name(), integrity.name(), suffix(wide));
    let sealed = batch.with_noise(&batch.sealed);
    let (blank, unsaid) = (vec![GAP; sealed.len()], || Argument::Buffer(vec![0xff; verdicts.len()]));
    let apart = traced([Argument::Buffer(sealed.clone()), Argument::Buffer(blank.clone()), unsaid()]);
    let out = batch.run(runner, &name, geometry(wide, TABLES), apart);
    assert!(out[0] == sealed, "{name} changed its input on {machine:?}");
    assert!(out[2] == verdicts, "verdicts of {name} on {machine:?}");
    assert!(out[1] == batch.written(wide, &expected, &blank), "plaintext of {name} on {machine:?}");
    let expected = batch.written(wide, &expected, &sealed);
    let in_place = traced([Argument::Buffer(sealed), Argument::Same(3), unsaid()]);
    let out = batch.run(runner, &name, geometry(wide, TABLES), in_place);
    assert!(out[0] == expected && out[1] == verdicts, "{name} in place on {machine:?}");
}

#[test]
fn open_with_every_cipher() {
    each(|machine, runner, integrity, wide| {
        CipherFamily::ALL.into_iter().for_each(|family| open(machine, runner, integrity, wide, family));
    });
}

/// The same chunks under keys with the same bytes: no two ciphers produce the same ciphertext, and no
/// two pairs of functions the same tag.
#[test]
fn no_two_functions_seal_alike() {
    for (machine, mut runner) in runners() {
        let mut made: Vec<(Cipher, Integrity, Vec<u8>, Vec<u8>)> = Vec::new();
        for cipher in Cipher::ALL {
            for (integrity, wide) in Integrity::ALL.into_iter().flat_map(|i| [(i, false), (i, true)]) {
                let batch = Batch::new(&[cipher], integrity, &[16, 40, 300, 1000]);
                let name = format!("seal_{}_{}{}", cipher.family().name(), integrity.name(), suffix(wide));
                let plain = Argument::Buffer(batch.plain.clone());
                let out = Argument::Buffer(vec![GAP; batch.plain.len()]);
                let tags = Argument::Buffer(vec![0; 16 * batch.chunks.len()]);
                let mut out =
                    batch.run(&mut runner, &name, geometry(wide, TABLES), traced([plain, out, tags]));
                let (tags, sealed) = (out.remove(2), out.remove(1));
                let starts = batch.chunks.iter().map(|chunk| chunk.source as usize);
                made.push((
                    cipher,
                    integrity,
                    starts.flat_map(|at| sealed[at..at + 16].to_vec()).collect(),
                    tags,
                ));
            }
        }
        for (at, (cipher, integrity, sealed, tags)) in made.iter().enumerate() {
            for (other, its_integrity, its_sealed, its_tags) in &made[..at] {
                let apart =
                    |one: &[u8], other: &[u8]| one.chunks(16).zip(other.chunks(16)).all(|(a, b)| a != b);
                let names =
                    || format!("{cipher:?}, {integrity:?} and {other:?}, {its_integrity:?} on {machine:?}");
                assert!(cipher == other || apart(sealed, its_sealed), "ciphertexts of {}", names());
                let alike = (cipher, integrity) == (other, its_integrity);
                assert!(alike || apart(tags, its_tags), "tags of {}", names());
            }
        }
    }
}

/// Uses the sponge with the fewest rounds, because every shuffle makes 32 threads wait for each other.
#[test]
fn no_thread_races_another() {
    let Some(mut runner) = on_threads() else { return };
    for family in CipherFamily::ALL {
        for wide in [false, true] {
            if !is_proof() && wide != (family == CipherFamily::Kuznyechik) {
                continue;
            }
            seal(Machine::Threads, &mut runner, Integrity::TurboShake128x4, wide, family);
            open(Machine::Threads, &mut runner, Integrity::TurboShake128x4, wide, family);
        }
    }
}

//! Deterministic sealing of a group of chunks.

use super::keys::SealKeys;
use crypto::{
    chunk::{ChunkId, Nonce, Tag},
    tags::{Sealed, tags},
};
use format::{
    entry::{Entry, SLOT, Slot},
    layout::{CHUNK, chunk_len, entries_in, first_chunk},
    tree::{Digest, leaf_digest},
};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use std::{fs::File, io, os::unix::fs::FileExt};

/// Epoch of every chunk and record in a view.
pub const EPOCH: u64 = 1;

/// The stored form of a group.
pub struct Group {
    pub number: u64,
    /// One for each chunk; `None` for a hole.
    slots: Vec<Option<Slot>>,
    /// Ciphertext of the chunks, with zeros for holes. Empty if all chunks are holes.
    data: Vec<u8>,
}

impl Group {
    /// Seals a group of a plain file of `size` bytes.
    ///
    /// # Errors
    /// Errors of reading; `UnexpectedEof` if the file is shorter.
    pub fn seal(keys: &SealKeys, file: &File, size: u64, number: u64) -> io::Result<Group> {
        let first = first_chunk(number);
        let (start, count) = (first * CHUNK, entries_in(number));
        let end = size.min(start + count as u64 * CHUNK);
        let mut group = Group { number, slots: vec![None; count], data: Vec::new() };
        if start >= end || next_data(file, start)?.is_none_or(|data| data >= end) {
            return Ok(group);
        }
        let mut plain = vec![0; (end - start) as usize];
        file.read_exact_at(&mut plain, start)?;
        // A chunk of zeros is a hole, regardless of the filesystem's own holes: those may change without
        // any write.
        let full: Vec<(u64, &[u8])> = (first..)
            .zip(plain.chunks(CHUNK as usize))
            .filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0))
            .collect();
        let heads: Vec<[u8; 12]> =
            full.iter().map(|(index, _)| head(*index, chunk_len(size, *index))).collect();
        let inputs: Vec<(&[u8], &[u8])> =
            heads.iter().zip(&full).map(|(head, (_, chunk))| (&head[..], *chunk)).collect();
        let ids: Vec<ChunkId> = full
            .iter()
            .zip(keys.nonce.digests(&inputs))
            .map(|((index, _), digest)| ChunkId { index: *index, epoch: EPOCH, nonce: nonce(&digest) })
            .collect();
        let mut data = vec![0; plain.len()];
        for (id, (index, chunk)) in ids.iter().zip(&full) {
            let at = ((index - first) * CHUNK) as usize;
            keys.file.chunk.apply_keystream(id, chunk, &mut data[at..at + chunk.len()]);
        }
        let sealed: Vec<Sealed> = ids
            .iter()
            .zip(&full)
            .map(|(id, (index, chunk))| {
                let at = ((index - first) * CHUNK) as usize;
                Sealed { keys: &keys.file.chunk, id, ciphertext: &data[at..at + chunk.len()] }
            })
            .collect();
        let mut made: Vec<Tag> = vec![[0; 16]; sealed.len()];
        tags(&sealed, &mut made);
        for (id, tag) in ids.iter().zip(made) {
            group.slots[(id.index - first) as usize] = Some(Slot { nonce: id.nonce, epoch: EPOCH, tag });
        }
        group.data = data;
        Ok(group)
    }

    /// The leaf digest of the group.
    pub fn digest(&self, keys: &SealKeys) -> Digest {
        leaf_digest(&keys.file, self.number, self.slots.iter().map(Option::as_ref))
    }

    /// The entries of the group, 64 bytes per chunk.
    pub fn entries(&self) -> Vec<u8> {
        let mut out = vec![0; self.slots.len() * 2 * SLOT];
        for (entry, slot) in out.as_chunks_mut().0.iter_mut().zip(&self.slots) {
            Entry([*slot, None]).encode(entry);
        }
        out
    }

    /// Appends `length` bytes of ciphertext from offset `at` in the group's data, with zeros where there is
    /// none.
    pub fn copy(&self, at: usize, length: usize, out: &mut Vec<u8>) {
        let have = self.data.get(at..).unwrap_or_default();
        let rest = out.len() + length;
        out.extend_from_slice(&have[..have.len().min(length)]);
        out.resize(rest, 0);
    }
}

/// Input that precedes the plaintext in the nonce derivation: index and length.
fn head(index: u64, length: usize) -> [u8; 12] {
    let mut head = [0; 12];
    head[..8].copy_from_slice(&index.to_be_bytes());
    head[8..].copy_from_slice(&(length as u32).to_be_bytes());
    head
}

/// The nonce: the first bytes of the digest. Never all zeros, which would mean a punched hole.
fn nonce(digest: &[u8; 32]) -> Nonce {
    let mut nonce = Nonce::default();
    nonce.copy_from_slice(&digest[..10]);
    if nonce == Nonce::default() {
        nonce[9] = 1;
    }
    nonce
}

/// Offset of the first byte at or after `at` that is not in a hole; `None` if there is none.
pub fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        // The filesystem does not support holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(e) => Err(e.into()),
    }
}

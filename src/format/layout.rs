//! Where things are in a stored file: arithmetic only. Sizes and offsets are bytes.

/// A page, and the unit that a kill never tears.
pub const PAGE: u64 = 4096;
/// A chunk of plaintext; its ciphertext is as long.
pub const CHUNK: u64 = 4096;
/// Chunks of group 0, whose entries stand in the header page.
pub const GROUP0: u64 = 48;
/// Chunks of every other group.
pub const GROUP: u64 = 64;
/// Children of a node page.
pub const FANOUT: u64 = 128;
/// Bytes of a commit record; record A at 0, record B behind it.
pub const RECORD: u64 = 512;
/// Where the entries of group 0 start.
pub const GROUP0_ENTRIES: u64 = 1024;
/// The largest plaintext size (16 TiB).
pub const MAX_SIZE: u64 = 1 << 44;

/// Chunks of a file of `size` bytes.
pub fn chunks(size: u64) -> u64 {
    size.div_ceil(CHUNK)
}

/// Length of chunk `index` in a file of `size` bytes; 0 past its end.
pub fn chunk_len(size: u64, index: u64) -> usize {
    size.saturating_sub(index * CHUNK).min(CHUNK) as usize
}

/// Groups of a file of `size` bytes; at least 1.
pub fn groups(_size: u64) -> u64 {
    todo!()
}

/// Levels of node pages over `groups` groups: 0 for one group.
pub fn levels(_groups: u64) -> u32 {
    todo!()
}

/// The group of a chunk.
pub fn group_of(_index: u64) -> u64 {
    todo!()
}

/// The place of a chunk in its group's entries.
pub fn place_in_group(_index: u64) -> usize {
    todo!()
}

/// First chunk of a group.
pub fn first_chunk(_group: u64) -> u64 {
    todo!()
}

/// Offset of the entries of `group`: 1024 for group 0, a leaf page for the others.
pub fn entries_offset(_group: u64) -> u64 {
    todo!()
}

/// Entries of `group`: 48 or 64.
pub fn entries_in(group: u64) -> usize {
    if group == 0 { GROUP0 as usize } else { GROUP as usize }
}

/// Offset of chunk `index`.
pub fn chunk_offset(_index: u64) -> u64 {
    todo!()
}

/// Offset of node page `k` of `level` (1 and up).
pub fn node_offset(_level: u32, _k: u64) -> u64 {
    todo!()
}

/// Stored size of a committed file of `plain` bytes.
pub fn stored_size(_plain: u64) -> u64 {
    todo!()
}

/// Plaintext size of a stored file: the largest whose stored size is not above `stored`; 0 for a
/// file never committed (`stored` below a page).
pub fn plain_size(_stored: u64) -> u64 {
    todo!()
}

//! Layout of a stored file: arithmetic only, no I/O. Sizes and offsets are in bytes.
//!
//! Page 0 contains both records and the entries of group 0. The chunks of group 0 follow. Each further
//! group consists of the node pages that become due there, its leaf page and its chunks. Chunk indices
//! must be below `MAX_SIZE / CHUNK`; only `plain_size` accepts any number.

/// Size of a page, the unit that a kill never tears.
pub const PAGE: u64 = 4096;
/// Size of a chunk of plaintext, and of its ciphertext.
pub const CHUNK: u64 = 4096;
/// Number of chunks in group 0, whose entries are in the header page.
pub const GROUP0: u64 = 48;
/// Number of chunks in every other group.
pub const GROUP: u64 = 64;
/// Maximum number of children of a node page.
pub const FANOUT: u64 = 128;
/// Size of a commit record. Record A is at offset 0, record B follows it.
pub const RECORD: u64 = 512;
/// Offset of the entries of group 0.
pub const GROUP0_ENTRIES: u64 = 1024;
/// Maximum plaintext size (16 TiB).
pub const MAX_SIZE: u64 = 1 << 44;
/// Stored size of a file of `MAX_SIZE` bytes.
pub const MAX_STORED: u64 = stored_size(MAX_SIZE);

/// log2 of `FANOUT`.
const FANOUT_BITS: u32 = FANOUT.trailing_zeros();
/// End of the chunks of group 0.
const GROUP0_END: u64 = PAGE + GROUP0 * CHUNK;
/// Size of a leaf page and its group's chunks.
const GROUP_SPAN: u64 = PAGE + GROUP * CHUNK;
/// Levels of node pages in the largest file, and so the maximum number of node pages before one leaf page.
pub const MAX_LEVELS: u32 = levels(groups(MAX_SIZE));

/// Number of chunks in a file of `size` bytes.
#[inline]
pub const fn chunks(size: u64) -> u64 {
    size.div_ceil(CHUNK)
}

/// Length of chunk `index` in a file of `size` bytes; 0 if it is beyond the end.
#[inline]
pub const fn chunk_len(size: u64, index: u64) -> usize {
    let rest = size.saturating_sub(index.saturating_mul(CHUNK));
    if rest < CHUNK { rest as usize } else { CHUNK as usize }
}

/// Number of groups in a file of `size` bytes; at least 1.
#[inline]
pub const fn groups(size: u64) -> u64 {
    1 + chunks(size).saturating_sub(GROUP0).div_ceil(GROUP)
}

/// Number of levels of node pages over `groups` groups; 0 for one group.
pub const fn levels(groups: u64) -> u32 {
    let mut last = groups.saturating_sub(1);
    let mut levels = 0;
    while last > 0 {
        last >>= FANOUT_BITS;
        levels += 1;
    }
    levels
}

/// The group that contains a chunk.
#[inline]
pub const fn group_of(index: u64) -> u64 {
    if index < GROUP0 { 0 } else { 1 + (index - GROUP0) / GROUP }
}

/// Index of a chunk's entry within its group.
#[inline]
pub const fn place_in_group(index: u64) -> usize {
    (if index < GROUP0 { index } else { (index - GROUP0) % GROUP }) as usize
}

/// Index of the first chunk of a group.
#[inline]
pub const fn first_chunk(group: u64) -> u64 {
    if group == 0 { 0 } else { GROUP0 + (group - 1) * GROUP }
}

/// Offset of the entries of `group`: 1024 for group 0, otherwise its leaf page.
#[inline]
pub const fn entries_offset(group: u64) -> u64 {
    if group == 0 { GROUP0_ENTRIES } else { leaf_offset(group) }
}

/// Number of entries of `group`: 48 or 64.
#[inline]
pub const fn entries_in(group: u64) -> usize {
    if group == 0 { GROUP0 as usize } else { GROUP as usize }
}

/// Offset of chunk `index`.
#[inline]
pub const fn chunk_offset(index: u64) -> u64 {
    let group = group_of(index);
    let first = if group == 0 { PAGE } else { leaf_offset(group) + PAGE };
    first + place_in_group(index) as u64 * CHUNK
}

/// Offset of node page `k` of `level` (from 1).
pub const fn node_offset(level: u32, k: u64) -> u64 {
    // Page 0 of a level is placed once it has a second child; any other page precedes the first group
    // that it covers.
    let group = if k == 0 { 1 << (FANOUT_BITS * (level - 1)) } else { k << (FANOUT_BITS * level) };
    group_start(group) + (level - 1) as u64 * PAGE
}

/// Stored size of a committed file with `plain` bytes of plaintext.
pub const fn stored_size(plain: u64) -> u64 {
    if plain == 0 {
        return PAGE;
    }
    let last = (plain - 1) / CHUNK;
    chunk_offset(last) + (plain - last * CHUNK)
}

/// Plaintext size of a stored file: the largest one, at most `MAX_SIZE`, whose stored size is at most
/// `stored`. 0 for a file that was never committed (`stored` below a page). Defined for every number and
/// takes only a few steps, because attributes of closed files are computed with it.
pub const fn plain_size(stored: u64) -> u64 {
    if stored < PAGE {
        return 0;
    }
    if stored <= GROUP0_END {
        return stored - PAGE;
    }
    if stored >= MAX_STORED {
        return MAX_SIZE;
    }
    // The first guess ignores node pages, so it is never too low. Each step back skips only groups that
    // certainly start beyond `stored`, since no group is longer than `GROUP_SPAN` plus its node pages.
    let longest = GROUP_SPAN + MAX_LEVELS as u64 * PAGE;
    let mut group = 1 + (stored - GROUP0_END) / GROUP_SPAN;
    while group_start(group) > stored {
        group -= (group_start(group) - stored).div_ceil(longest);
    }
    first_chunk(group) * CHUNK + stored.saturating_sub(leaf_offset(group) + PAGE)
}

/// Plaintext bytes that fit into `stored` stored bytes, in one file or in several of maximum size.
pub const fn room_for_contents(stored: u64) -> u64 {
    stored / MAX_STORED * MAX_SIZE + plain_size(stored % MAX_STORED)
}

/// Offset of the leaf page of `group` (from 1).
const fn leaf_offset(group: u64) -> u64 {
    GROUP0_END + (group - 1) * GROUP_SPAN + nodes_through(group) * PAGE
}

/// Offset after the chunks of the group before `group` (from 1), where the pages of `group` start.
const fn group_start(group: u64) -> u64 {
    GROUP0_END + (group - 1) * GROUP_SPAN + nodes_through(group - 1) * PAGE
}

/// Number of node pages before the leaf page of `group`; 0 for group 0.
const fn nodes_through(group: u64) -> u64 {
    let mut children = group;
    let mut nodes = 0;
    while children > 0 {
        children >>= FANOUT_BITS;
        nodes += 1 + children;
    }
    nodes
}

#[cfg(test)]
mod tests;

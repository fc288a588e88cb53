//! Where things are in a stored file: arithmetic only. Sizes and offsets are bytes.
//!
//! Page 0 holds both records and the entries of group 0, then come the chunks of group 0, then for
//! every further group the node pages that fall due there, its leaf page and its chunks. Nothing here
//! reads or writes. Chunk indices are below `MAX_SIZE / CHUNK`; `plain_size` alone takes any number.

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
/// The stored size of a file of `MAX_SIZE` bytes.
pub const MAX_STORED: u64 = stored_size(MAX_SIZE);

/// log2 of `FANOUT`.
const FANOUT_BITS: u32 = FANOUT.trailing_zeros();
/// End of the chunks of group 0.
const GROUP0_END: u64 = PAGE + GROUP0 * CHUNK;
/// A leaf page and its chunks.
const GROUP_SPAN: u64 = PAGE + GROUP * CHUNK;
/// Levels of node pages over the largest file: no more than so many fall due before one leaf page.
pub const MAX_LEVELS: u32 = levels(groups(MAX_SIZE));

/// Chunks of a file of `size` bytes.
pub const fn chunks(size: u64) -> u64 {
    size.div_ceil(CHUNK)
}

/// Length of chunk `index` in a file of `size` bytes; 0 past its end.
pub const fn chunk_len(size: u64, index: u64) -> usize {
    let rest = size.saturating_sub(index.saturating_mul(CHUNK));
    if rest < CHUNK { rest as usize } else { CHUNK as usize }
}

/// Groups of a file of `size` bytes; at least 1.
pub const fn groups(size: u64) -> u64 {
    1 + chunks(size).saturating_sub(GROUP0).div_ceil(GROUP)
}

/// Levels of node pages over `groups` groups: 0 for one group.
pub const fn levels(groups: u64) -> u32 {
    let mut last = groups.saturating_sub(1);
    let mut levels = 0;
    while last > 0 {
        last >>= FANOUT_BITS;
        levels += 1;
    }
    levels
}

/// The group of a chunk.
pub const fn group_of(index: u64) -> u64 {
    if index < GROUP0 { 0 } else { 1 + (index - GROUP0) / GROUP }
}

/// The place of a chunk in its group's entries.
pub const fn place_in_group(index: u64) -> usize {
    (if index < GROUP0 { index } else { (index - GROUP0) % GROUP }) as usize
}

/// First chunk of a group.
pub const fn first_chunk(group: u64) -> u64 {
    if group == 0 { 0 } else { GROUP0 + (group - 1) * GROUP }
}

/// Offset of the entries of `group`: 1024 for group 0, a leaf page for the others.
pub const fn entries_offset(group: u64) -> u64 {
    if group == 0 { GROUP0_ENTRIES } else { leaf_offset(group) }
}

/// Entries of `group`: 48 or 64.
pub const fn entries_in(group: u64) -> usize {
    if group == 0 { GROUP0 as usize } else { GROUP as usize }
}

/// Offset of chunk `index`.
pub const fn chunk_offset(index: u64) -> u64 {
    let group = group_of(index);
    let first = if group == 0 { PAGE } else { leaf_offset(group) + PAGE };
    first + place_in_group(index) as u64 * CHUNK
}

/// Offset of node page `k` of `level` (1 and up).
pub const fn node_offset(level: u32, k: u64) -> u64 {
    // Page 0 waits for the second child below it; the others stand before the first group they cover.
    let group = if k == 0 { 1 << (FANOUT_BITS * (level - 1)) } else { k << (FANOUT_BITS * level) };
    group_start(group) + (level - 1) as u64 * PAGE
}

/// Stored size of a committed file of `plain` bytes.
pub const fn stored_size(plain: u64) -> u64 {
    if plain == 0 {
        return PAGE;
    }
    let last = (plain - 1) / CHUNK;
    chunk_offset(last) + (plain - last * CHUNK)
}

/// Plaintext size of a stored file: the largest whose stored size is not above `stored`, at most
/// `MAX_SIZE`; 0 for a file never committed (`stored` below a page). Defined for every number, in a
/// few steps: attributes of closed files come from here.
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
    // As if there were no node pages: never too low. Each step back leaves out only groups that start
    // behind `stored` for certain, since a group is never longer than `GROUP_SPAN` and its node pages.
    let longest = GROUP_SPAN + MAX_LEVELS as u64 * PAGE;
    let mut group = 1 + (stored - GROUP0_END) / GROUP_SPAN;
    while group_start(group) > stored {
        group -= (group_start(group) - stored).div_ceil(longest);
    }
    first_chunk(group) * CHUNK + stored.saturating_sub(leaf_offset(group) + PAGE)
}

/// Bytes of plaintext that so many stored bytes have room for, in one file or in several of the greatest size.
pub const fn room_for_contents(stored: u64) -> u64 {
    stored / MAX_STORED * MAX_SIZE + plain_size(stored % MAX_STORED)
}

/// Offset of the leaf page of `group` (1 and up).
const fn leaf_offset(group: u64) -> u64 {
    GROUP0_END + (group - 1) * GROUP_SPAN + nodes_through(group) * PAGE
}

/// First byte behind the chunks of the group before `group` (1 and up).
const fn group_start(group: u64) -> u64 {
    GROUP0_END + (group - 1) * GROUP_SPAN + nodes_through(group - 1) * PAGE
}

/// Node pages that stand before the leaf page of `group`; 0 for group 0.
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

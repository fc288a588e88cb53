//! Changes that an attacker with write access to the store makes to a file's stored bytes. In particular
//! the attacker has older versions of it, copies that diverged, and other files of the vault.

use arbitrary::Arbitrary;
use format::{
    entry::{ENTRY, SLOT},
    layout::{CHUNK, GROUP0_ENTRIES, PAGE, RECORD, entries_offset, group_of, place_in_group},
};

/// One change.
#[derive(Debug, Arbitrary)]
pub enum Tamper {
    /// Copies a unit from the same position of another image.
    PutBack { image: u8, what: Unit },
    /// Copies a unit from another position of another image.
    Move { image: u8, what: Unit, to: Unit },
    /// Swaps two units of the file.
    Swap { one: Unit, other: Unit },
    /// Flips bits of one byte.
    Flip { what: Unit, at: u16, mask: u8 },
    /// Fills a unit with one value.
    Fill { what: Unit, with: u8 },
    /// Truncates the file before a unit.
    Cut { before: Unit },
    /// Appends bytes.
    Grow { by: u16, with: u8 },
}

/// A part of the file that means something in the format.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Unit {
    /// A commit record.
    Record(bool),
    /// The entries of a group, at most those of the header page.
    Entries(u8),
    /// One entry.
    Entry(u8),
    /// One slot of one entry.
    Slot(u8, bool),
    /// A page of any kind.
    Page(u8),
    /// An arbitrary range.
    Bytes { from: u32, len: u16 },
}

impl Unit {
    /// The unit's range in a file of `len` bytes, clipped at its end.
    fn range(self, len: usize) -> std::ops::Range<usize> {
        let entry = |chunk: u8| {
            let index = chunk.into();
            entries_offset(group_of(index)) + (place_in_group(index) * ENTRY) as u64
        };
        let (from, count) = match self {
            Unit::Record(second) => (RECORD * u64::from(second), RECORD),
            Unit::Entries(0) => (GROUP0_ENTRIES, PAGE - GROUP0_ENTRIES),
            Unit::Entries(group) => (entries_offset(u64::from(group % 3)), PAGE),
            Unit::Entry(chunk) => (entry(chunk), ENTRY as u64),
            Unit::Slot(chunk, second) => (entry(chunk) + SLOT as u64 * u64::from(second), SLOT as u64),
            Unit::Page(page) => (PAGE * u64::from(page), CHUNK),
            Unit::Bytes { from, len: count } => (u64::from(from) % (len as u64 + 1), count.into()),
        };
        (from as usize).min(len)..((from + count) as usize).min(len)
    }
}

/// Applies all `changes` to `bytes`. `images` are the kept snapshots.
pub fn tamper(bytes: &mut Vec<u8>, changes: &[Tamper], images: &[&[u8]]) {
    let kept = |number: u8| images[usize::from(number) % images.len()];
    for change in changes {
        let len = bytes.len();
        match *change {
            Tamper::PutBack { image, what } => {
                let image = kept(image);
                put(bytes, what.range(len.max(image.len())).start, &image[what.range(image.len())]);
            }
            Tamper::Move { image, what, to } => {
                let image = kept(image);
                put(bytes, to.range(len).start, &image[what.range(image.len())]);
            }
            Tamper::Swap { one, other } => {
                let (from, to) = (one.range(len), other.range(len));
                let (first, second) = (bytes[from.clone()].to_vec(), bytes[to.clone()].to_vec());
                put(bytes, from.start, &second);
                put(bytes, to.start, &first);
            }
            Tamper::Flip { what, at, mask } => {
                let range = what.range(len);
                let place = range.start + usize::from(at) % range.len().max(1);
                bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= mask);
            }
            Tamper::Fill { what, with } => bytes[what.range(len)].fill(with),
            Tamper::Cut { before } => bytes.truncate(before.range(len).start),
            Tamper::Grow { by, with } => bytes.resize(len + usize::from(by), with),
        }
    }
}

/// Writes `what` at an offset, extending the file if necessary.
fn put(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.resize(bytes.len().max(at + what.len()), 0);
    bytes[at..at + what.len()].copy_from_slice(what);
}

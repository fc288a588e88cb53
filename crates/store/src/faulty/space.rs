//! Space that a simulated store has for pages.

use std::{collections::BTreeSet, io, ops::Range};

/// Unlimited unless `full` is set.
#[derive(Default)]
pub(super) struct Space {
    full: Option<Full>,
    /// Holes for which a page is reserved.
    reserved: BTreeSet<u64>,
}

/// A store with limited space.
struct Full {
    errno: i32,
    /// Number of free pages.
    room: u64,
    /// Whether overwriting a page needs a free page, as with copy-on-write.
    copies: bool,
}

impl Space {
    /// Leaves no free pages, except for reserved ones; with `copies`, overwriting needs a free page, too.
    pub(super) fn fill(&mut self, errno: i32, copies: bool) {
        self.full = Some(Full { errno, room: 0, copies });
    }

    /// Leaves `room` free pages; overwriting needs none.
    pub(super) fn leave(&mut self, errno: i32, room: u64) {
        self.full = Some(Full { errno, room, copies: false });
    }

    /// Lifts the limit.
    pub(super) fn free(&mut self) {
        self.full = None;
    }

    /// Allocates space for writing a page.
    pub(super) fn take(&mut self, page: u64, is_hole: bool) -> io::Result<()> {
        match &mut self.full {
            _ if self.reserved.remove(&page) => Ok(()),
            Some(full) => full.take(is_hole),
            None => Ok(()),
        }
    }

    /// Reserves a page for each hole among `pages`.
    pub(super) fn reserve(&mut self, pages: Range<u64>, is_hole: impl Fn(u64) -> bool) -> io::Result<()> {
        for page in pages {
            if is_hole(page) && !self.reserved.contains(&page) {
                self.full.as_mut().map_or(Ok(()), |full| full.take(true))?;
                self.reserved.insert(page);
            }
        }
        Ok(())
    }

    /// Releases the reservations for these pages.
    pub(super) fn give_up(&mut self, pages: Range<u64>) {
        let before = self.reserved.len();
        self.reserved.retain(|page| !pages.contains(page));
        self.freed((before - self.reserved.len()) as u64);
    }

    /// Returns pages that became holes to the free space.
    pub(super) fn freed(&mut self, pages: u64) {
        if let Some(full) = &mut self.full {
            full.room += pages;
        }
    }
}

impl Full {
    fn take(&mut self, is_hole: bool) -> io::Result<()> {
        if !is_hole && !self.copies {
            return Ok(());
        }
        self.room = self.room.checked_sub(1).ok_or(io::Error::from_raw_os_error(self.errno))?;
        self.room += u64::from(!is_hole);
        Ok(())
    }
}

//! The room that a store has for pages.

use std::{collections::BTreeSet, io, ops::Range};

/// Without limit until it is full.
#[derive(Default)]
pub(super) struct Space {
    full: Option<Full>,
    /// Holes that it keeps a place for.
    reserved: BTreeSet<u64>,
}

/// A store that is full.
struct Full {
    errno: i32,
    /// Pages that are free again.
    room: u64,
    /// Overwriting takes a page, too.
    copies: bool,
}

impl Space {
    /// Leaves no room for more pages but those that are reserved; with `copies` none for overwriting one either.
    pub(super) fn fill(&mut self, errno: i32, copies: bool) {
        self.full = Some(Full { errno, room: 0, copies });
    }

    /// Leaves room for so many pages; none is taken for overwriting one.
    pub(super) fn leave(&mut self, errno: i32, room: u64) {
        self.full = Some(Full { errno, room, copies: false });
    }

    /// Lifts the limit.
    pub(super) fn free(&mut self) {
        self.full = None;
    }

    /// Takes a place for a page.
    pub(super) fn take(&mut self, page: u64, is_hole: bool) -> io::Result<()> {
        match &mut self.full {
            _ if self.reserved.remove(&page) => Ok(()),
            Some(full) => full.take(is_hole),
            None => Ok(()),
        }
    }

    /// Keeps a place for each hole among `pages`.
    pub(super) fn reserve(&mut self, pages: Range<u64>, is_hole: impl Fn(u64) -> bool) -> io::Result<()> {
        for page in pages {
            if is_hole(page) && !self.reserved.contains(&page) {
                self.full.as_mut().map_or(Ok(()), |full| full.take(true))?;
                self.reserved.insert(page);
            }
        }
        Ok(())
    }

    /// Gives up the places that are kept for these pages.
    pub(super) fn give_up(&mut self, pages: Range<u64>) {
        let before = self.reserved.len();
        self.reserved.retain(|page| !pages.contains(page));
        self.freed((before - self.reserved.len()) as u64);
    }

    /// Takes pages back that became holes.
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

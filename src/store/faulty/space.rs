//! The room that a store has for pages.

use std::{collections::BTreeSet, io, ops::Range};

/// Without limit until it is full.
#[derive(Default)]
pub(super) struct Space(Option<Full>);

/// A store that is full.
struct Full {
    errno: i32,
    /// Pages that are free again.
    room: u64,
    /// Overwriting takes a page, too.
    copies: bool,
    /// Holes that it keeps a place for.
    reserved: BTreeSet<u64>,
}

impl Space {
    /// Leaves no room for more pages; with `copies` none for overwriting one either.
    pub(super) fn fill(&mut self, errno: i32, copies: bool) {
        self.0 = Some(Full { errno, room: 0, copies, reserved: BTreeSet::new() });
    }

    /// Lifts the limit.
    pub(super) fn free(&mut self) {
        self.0 = None;
    }

    /// Takes a place for a page.
    pub(super) fn take(&mut self, page: u64, is_hole: bool) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |full| full.take(page, is_hole))
    }

    /// Keeps a place for each hole among `pages`.
    pub(super) fn reserve(&mut self, pages: Range<u64>, is_hole: impl Fn(u64) -> bool) -> io::Result<()> {
        let Some(full) = &mut self.0 else { return Ok(()) };
        for page in pages {
            if is_hole(page) && !full.reserved.contains(&page) {
                full.take(page, true)?;
                full.reserved.insert(page);
            }
        }
        Ok(())
    }

    /// Takes pages back that became holes.
    pub(super) fn freed(&mut self, pages: u64) {
        if let Some(full) = &mut self.0 {
            full.room += pages;
        }
    }
}

impl Full {
    fn take(&mut self, page: u64, is_hole: bool) -> io::Result<()> {
        if self.reserved.remove(&page) || !is_hole && !self.copies {
            return Ok(());
        }
        self.room = self.room.checked_sub(1).ok_or(io::Error::from_raw_os_error(self.errno))?;
        self.room += u64::from(!is_hole);
        Ok(())
    }
}

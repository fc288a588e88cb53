//! The owner that a mount shows for everything instead of the stored owners.
//!
//! It is only shown. What the mount's process may do with a stored node, the store still decides by the
//! stored owner. The kernel checks the shown owner.

use super::errno;
use content::Result;
use vault::{Kind, SetAttr, Stat};

const SET_ID: u32 = 0o6000;

/// The owner and group to show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owners {
    /// User ID of everything. `None` shows the stored ones.
    pub user: Option<u32>,
    /// Group ID of everything. `None` shows the stored ones.
    pub group: Option<u32>,
}

impl Owners {
    /// Whether the stored owners and groups are shown.
    pub fn are_stored(self) -> bool {
        self == Owners::default()
    }

    /// The owner and group to show for these. A node that they create also gets the result in the store,
    /// if the process may change owners there.
    pub fn instead_of(self, user: u32, group: u32) -> (u32, u32) {
        (self.user.unwrap_or(user), self.group.unwrap_or(group))
    }

    /// The attributes to show for stored ones.
    pub fn shown(self, stat: &Stat) -> Stat {
        let (uid, gid) = self.instead_of(stat.uid, stat.gid);
        Stat { uid, gid, ..*stat }
    }

    /// The mode to store for a node other than a directory, if a program sets this one. Set-id bits are left
    /// out: they would make the program run as the stored owner, who did not set them.
    pub fn stored_mode(self, mode: u32) -> u32 {
        if self.are_stored() { mode } else { mode & !SET_ID }
    }

    /// Reduces the changes of a node to those that are stored. Giving it to the owner that is shown
    /// already changes nothing.
    ///
    /// # Errors
    /// EPERM for any other owner.
    pub fn admit(self, kind: Kind, changes: &mut SetAttr) -> Result<()> {
        for (wanted, shown) in [(&mut changes.uid, self.user), (&mut changes.gid, self.group)] {
            if let Some(shown) = shown
                && wanted.take().is_some_and(|wanted| wanted != shown)
            {
                return Err(errno::not_permitted());
            }
        }
        if kind != Kind::Dir {
            changes.mode = changes.mode.map(|mode| self.stored_mode(mode));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::attr;
    use super::*;

    const BOTH: Owners = Owners { user: Some(7), group: Some(8) };
    const USER: Owners = Owners { user: Some(7), group: None };
    const GROUP: Owners = Owners { user: None, group: Some(8) };

    #[test]
    fn every_stored_owner_is_replaced() {
        let stat = Stat { uid: 1, gid: 2, mode: 0o4755, ..attr::unknown(Kind::File, 3) };
        for (owners, (uid, gid)) in
            [(Owners::default(), (1, 2)), (USER, (7, 2)), (GROUP, (1, 8)), (BOTH, (7, 8))]
        {
            assert_eq!(owners.shown(&stat), Stat { uid, gid, ..stat });
        }
    }

    #[test]
    fn only_the_owner_that_is_shown_can_be_given() {
        let after = |owners: Owners, uid, gid| {
            let mut changes = SetAttr { uid, gid, ..SetAttr::default() };
            owners.admit(Kind::File, &mut changes).ok().map(|()| (changes.uid, changes.gid))
        };
        assert_eq!(after(Owners::default(), Some(1), Some(2)), Some((Some(1), Some(2))));
        assert_eq!(after(BOTH, Some(7), Some(8)), Some((None, None)));
        assert_eq!(after(BOTH, None, None), Some((None, None)));
        assert_eq!(after(USER, Some(7), Some(1)), Some((None, Some(1))));
        assert_eq!(after(GROUP, Some(1), Some(8)), Some((Some(1), None)));
        for (owners, uid, gid) in
            [(BOTH, Some(8), None), (BOTH, Some(7), Some(7)), (USER, Some(0), None), (GROUP, None, Some(0))]
        {
            assert_eq!(after(owners, uid, gid), None, "{owners:?} {uid:?} {gid:?}");
        }
    }

    #[test]
    fn set_id_bits_stay_out_of_files_alone() {
        for (owners, kind, mode, stored) in [
            (Owners::default(), Kind::File, 0o6755, 0o6755),
            (USER, Kind::File, 0o6755, 0o755),
            (GROUP, Kind::Fifo, 0o5644, 0o1644),
            (BOTH, Kind::Dir, 0o2775, 0o2775),
        ] {
            let mut changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
            assert!(owners.admit(kind, &mut changes).is_ok());
            assert_eq!(changes.mode, Some(stored), "{owners:?} {kind:?} {mode:o}");
        }
    }
}

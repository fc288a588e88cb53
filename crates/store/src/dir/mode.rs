//! Permission bits of a node, stored so that the owner can always work on the stored node.
//!
//! Without privilege, a process cannot open a file whose mode denies its owner access, and the kernel
//! clears set-id bits when a file is written. Such a mode is therefore not set on the stored node. The
//! stored mode grants the owner everything and carries a mark, a bit that otherwise has no meaning
//! there: the sticky bit of a file, the set-user-id bit of a directory. An extended attribute holds the
//! real mode, as pairs of stored and real mode. If no pair has the stored mode, only the owner's write
//! permission is missing.
//!
//! The attribute is written before the stored mode changes, and includes a pair for the previous mode.
//! At any moment, also after a crash, the node has either the old mode or the new one.

use super::{Node, StoreDir};
use rustix::{
    fs::{FileType, Stat, XattrFlags},
    io::Errno,
};
use std::{ffi::OsStr, io};

/// Name of the attribute. Each pair is a stored mode and the real mode, in octal: `1600=200 1700=300`.
const ATTRIBUTE: &str = "user.warpcrypt.mode.behind";
const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = 0o6000;
const OWNER_WRITES: u32 = 0o200;

/// Kinds of node whose content this process accesses. Other kinds need no permissions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worked {
    File,
    Dir,
}

impl Worked {
    fn of(raw: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(raw.st_mode) {
            FileType::RegularFile => Some(Worked::File),
            FileType::Directory => Some(Worked::Dir),
            _ => None,
        }
    }

    fn mark(self) -> u32 {
        match self {
            Worked::File => 0o1000,
            Worked::Dir => 0o4000,
        }
    }

    /// Owner permissions that this process needs.
    fn needs(self) -> u32 {
        match self {
            Worked::File => 0o600,
            Worked::Dir => 0o700,
        }
    }

    /// Bits that the kernel clears when the node is written to.
    fn fragile(self) -> u32 {
        match self {
            Worked::File => SET_ID,
            Worked::Dir => 0,
        }
    }

    fn is_marked(self, stored: u32) -> bool {
        stored & self.mark() != 0
    }

    /// The stored form of `mode`. `bound` means that the mode binds this process: it is the owner,
    /// without privilege. Finding out takes a system call, so `bound` is called only if it matters.
    fn stored(self, mode: u32, bound: impl FnOnce() -> bool) -> u32 {
        let hinders = mode & self.needs() != self.needs() || mode & self.fragile() != 0;
        match hinders && bound() {
            true => mode & !self.fragile() | self.mark() | self.needs(),
            false => mode,
        }
    }

    /// The real mode behind a stored one. Pairs may only take permissions away from the owner, and set or
    /// clear the mark and the fragile bits, because anyone who may write to a node can set its attributes.
    fn behind(self, stored: u32, pairs: &[(u32, u32)]) -> u32 {
        if !self.is_marked(stored) {
            return stored;
        }
        let told = self.mark() | self.fragile();
        let is_allowed = |mode: u32| (stored ^ mode) & !(0o700 | told) == 0 && mode & 0o700 & !stored == 0;
        let found = pairs.iter().find(|(of, mode)| *of == stored && is_allowed(*mode));
        found.map_or(stored & !(self.mark() | OWNER_WRITES), |(_, mode)| *mode)
    }
}

/// One call of a mode change.
#[derive(Debug, PartialEq, Eq)]
enum ModeStep {
    Chmod(u32),
    SetPairs(Vec<(u32, u32)>),
    /// Optional: without a mark, pairs have no effect.
    RemovePairs,
}

/// The calls that take a node from the stored mode `now` to the real mode `to`, which is stored as `stored`.
fn steps(kind: Worked, (mut now, pairs): (u32, &[(u32, u32)]), to: u32, stored: u32) -> Vec<ModeStep> {
    let before = kind.behind(now, pairs);
    let mut steps = Vec::new();
    if kind.behind(stored, pairs) != to {
        if now & OWNER_WRITES == 0 {
            // Setting the attribute requires write permission. The mark without a pair means that the
            // owner lacks it.
            now |= kind.mark() | OWNER_WRITES;
            steps.push(ModeStep::Chmod(now));
        }
        let both = [(stored, to), (now, before)];
        let meant = if now != stored && kind.is_marked(now) { &both[..] } else { &both[..1] };
        steps.push(ModeStep::SetPairs(meant.to_vec()));
    }
    if now != stored {
        steps.push(ModeStep::Chmod(stored));
    }
    if !kind.is_marked(stored) && !pairs.is_empty() {
        steps.push(ModeStep::RemovePairs);
    }
    steps
}

/// Whether the real mode of a node may differ from the stored one.
pub fn is_marked(raw: &Stat) -> bool {
    Worked::of(raw).is_some_and(|kind| kind.is_marked(raw.st_mode & PERMISSIONS))
}

/// Whether this process would store this node's mode with a mark.
pub fn is_to_be_marked(raw: &Stat) -> bool {
    let mode = raw.st_mode & PERMISSIONS;
    Worked::of(raw).is_some_and(|kind| kind.is_marked(kind.stored(mode, || is_bound(raw))))
}

/// Whether the mode of this node restricts this process, and this process may change it.
fn is_bound(raw: &Stat) -> bool {
    let user = rustix::process::geteuid();
    !user.is_root() && raw.st_uid == user.as_raw()
}

impl StoreDir {
    /// As [`Node::stat_behind`], for the entry `name`.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn stat_behind(&self, name: &OsStr) -> io::Result<Stat> {
        let raw = self.stat(name)?;
        if is_marked(&raw) { self.node(name)?.stat_behind() } else { Ok(raw) }
    }
}

impl Node<'_> {
    /// Attributes, with the real mode instead of the stored one. Root sees only set-id bits that are in
    /// the stored mode, because anyone who may write to a file could add others to the attribute.
    ///
    /// # Errors
    /// Any error from the store.
    pub fn stat_behind(&self) -> io::Result<Stat> {
        let mut raw = self.stat()?;
        while let Some(kind) = Worked::of(&raw).filter(|_| is_marked(&raw)) {
            let pairs = self.pairs()?;
            let mut after = self.stat()?;
            // Retry until the stored mode and the pairs are from the same moment.
            if after.st_mode == raw.st_mode {
                let stored = raw.st_mode & PERMISSIONS;
                let mut mode = kind.behind(stored, &pairs);
                if rustix::process::geteuid().is_root() {
                    mode &= !kind.fragile() | stored;
                }
                after.st_mode = after.st_mode & !PERMISSIONS | mode;
                return Ok(after);
            }
            raw = after;
        }
        Ok(raw)
    }

    /// Sets the real mode (0 to 0o7777), as reported by `stat_behind`. Callers must serialize calls.
    ///
    /// # Errors
    /// EOPNOTSUPP for a symbolic link; otherwise any error from the store.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        let raw = self.stat()?;
        let Some(kind) = Worked::of(&raw) else { return self.chmod(mode) };
        let (now, stored) = (raw.st_mode & PERMISSIONS, kind.stored(mode, || is_bound(&raw)));
        if !kind.is_marked(now) && !kind.is_marked(stored) {
            return self.chmod(stored);
        }
        // A node that its owner cannot read has no mark, and so no pairs.
        let pairs = self.pairs().unwrap_or_default();
        for step in steps(kind, (now, &pairs), mode, stored) {
            match step {
                ModeStep::Chmod(stored) => self.chmod(stored)?,
                ModeStep::SetPairs(pairs) => {
                    match self.set_xattr(OsStr::new(ATTRIBUTE), &text(&pairs), XattrFlags::empty()) {
                        // The store has no extended attributes, or no room for this one.
                        Err(e) if lacks_attributes(&e) => return self.chmod(mode),
                        set => set?,
                    }
                }
                ModeStep::RemovePairs => drop(self.remove_xattr(OsStr::new(ATTRIBUTE))),
            }
        }
        Ok(())
    }

    fn pairs(&self) -> io::Result<Vec<(u32, u32)>> {
        match self.get_xattr(OsStr::new(ATTRIBUTE)) {
            Ok(text) => Ok(text.as_deref().map(parse).unwrap_or_default()),
            Err(e) if lacks_attributes(&e) => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

fn text(pairs: &[(u32, u32)]) -> Vec<u8> {
    let texts: Vec<String> = pairs.iter().map(|(stored, mode)| format!("{stored:o}={mode:o}")).collect();
    texts.join(" ").into_bytes()
}

/// Ignores malformed pairs.
fn parse(text: &[u8]) -> Vec<(u32, u32)> {
    let octal = |text: &str| u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= PERMISSIONS);
    let pair = |pair: &str| pair.split_once('=').and_then(|(of, mode)| Some((octal(of)?, octal(mode)?)));
    str::from_utf8(text).unwrap_or_default().split(' ').filter_map(pair).collect()
}

fn lacks_attributes(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::OPNOTSUPP | Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Worked; 2] = [Worked::File, Worked::Dir];

    #[test]
    fn the_stored_form_lets_the_owner_work_and_nobody_else_more() {
        for kind in KINDS {
            for mode in 0..=PERMISSIONS {
                let stored = kind.stored(mode, || true);
                assert_eq!(stored & kind.needs(), kind.needs(), "{mode:o}");
                assert_eq!(stored & kind.fragile(), 0, "{mode:o}");
                assert_eq!(stored & 0o077, mode & 0o077, "{mode:o}");
                assert_eq!(kind.behind(stored, &[(stored, mode)]), mode, "{mode:o}");
                assert_eq!(kind.stored(mode, || false), mode);
            }
        }
    }

    #[test]
    fn a_mode_without_the_right_to_write_needs_no_attribute() {
        for (kind, modes) in [(Worked::File, [0o444, 0o555, 0o400]), (Worked::Dir, [0o555, 0o500, 0o3555])] {
            for mode in modes {
                assert_eq!(kind.behind(kind.stored(mode, || true), &[]), mode, "{mode:o}");
            }
        }
    }

    #[test]
    fn pairs_give_nobody_rights() {
        for (stored, forged) in [(0o1600, 0o666), (0o1600, 0o1644), (0o1400, 0o600), (0o1640, 0o604)] {
            assert_eq!(Worked::File.behind(stored, &[(stored, forged)]), stored & !0o1200, "{forged:o}");
        }
        assert_eq!(Worked::Dir.behind(0o4700, &[(0o4700, 0o1700)]), 0o500);
        assert_eq!(Worked::File.behind(0o600, &[(0o600, 0o4600)]), 0o600);
    }

    #[test]
    fn anything_may_be_in_the_attribute() {
        assert_eq!(parse(b"1600=200 1700=300"), [(0o1600, 0o200), (0o1700, 0o300)]);
        for text in [&b""[..], b"=", b"8=9", b"1600", b"17777=0", b"\xff", b"1600=200=1", b"-1=2"] {
            assert!(parse(text).is_empty(), "{text:?}");
        }
    }

    /// Checks every intermediate state of a change between two modes.
    #[test]
    fn between_two_modes_there_is_no_third() {
        for kind in KINDS {
            let modes = (0..=PERMISSIONS).filter(|mode| mode & 0o077 == 0 || mode & 0o077 == 0o055);
            let modes: Vec<u32> = modes.collect();
            for from in &modes {
                for to in &modes {
                    // One node whose mode was set by this program, and one as another program left it.
                    for (now, pairs) in [
                        (kind.stored(*from, || true), vec![(kind.stored(*from, || true), *from)]),
                        (*from, Vec::new()),
                    ] {
                        let seen = states(kind, (now, &pairs), *to);
                        let only_two = seen.iter().all(|mode| [seen[0], *to].contains(mode));
                        assert!(only_two && seen.last() == Some(to), "{now:o} to {to:o}: {seen:?}");
                    }
                }
            }
        }
    }

    fn states(kind: Worked, (mut now, pairs): (u32, &[(u32, u32)]), to: u32) -> Vec<u32> {
        let steps = steps(kind, (now, pairs), to, kind.stored(to, || true));
        let mut pairs = pairs.to_vec();
        let mut seen = vec![kind.behind(now, &pairs)];
        for step in steps {
            match step {
                ModeStep::Chmod(stored) => now = stored,
                ModeStep::SetPairs(new) => {
                    assert_ne!(now & OWNER_WRITES, 0, "refused");
                    pairs = parse(&text(&new));
                }
                ModeStep::RemovePairs => pairs.clear(),
            }
            seen.push(kind.behind(now, &pairs));
        }
        assert_eq!(now & kind.needs(), kind.needs());
        seen
    }
}

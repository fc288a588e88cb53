//! `ls`: lists the contents of a vault.

use super::{open, side::Side};
use crate::cli::{
    args::ListArgs,
    exit::{Code, Failure, Outcome},
    json, log, print, print_bytes,
    signals::Interrupt,
};
use content::Time;
use fuse::Reach;
use hashing::Vaulted;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};
use vault::{Kind, Ladder, Stat, WalkPath};

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// A node of the vault to list.
struct ListedEntry {
    path: PathBuf,
    stat: Stat,
    /// For a symbolic link, if shown.
    target: Option<OsString>,
}

/// A listing in progress.
struct ListWalk<'a> {
    args: &'a ListArgs,
    vault: Vaulted,
    interrupt: Interrupt,
    unreadable: usize,
    json: Vec<Value>,
    /// Whether standard output still has a reader.
    is_read: bool,
}

/// A listed directory, and the subdirectories still to list, the next one last.
struct ListedDir {
    path: WalkPath,
    inner: Vec<OsString>,
}

/// Runs `ls`.
///
/// # Errors
/// If the vault does not open, or something in it cannot be read.
pub fn run(args: &ListArgs) -> Outcome {
    let vault = open(&args.vault, &args.unlock, &mut Reach::default())?;
    let interrupt = Interrupt::watch()?;
    let mut listing = ListWalk { args, vault, interrupt, unreadable: 0, json: Vec::new(), is_read: true };
    listing.all()?;
    if args.json {
        print(&json::document("ls", json!({ "entries": listing.json })))?;
    }
    match listing.unreadable + listing.vault.0.left_out() {
        0 => Ok(()),
        count => Err(Failure::new(
            Code::Unreadable,
            format!("{count} could not be read"),
            "The messages before this one say why. `warpcrypt check` finds all damage.",
        )),
    }
}

impl ListWalk<'_> {
    fn all(&mut self) -> Outcome {
        let path = &self.args.path;
        let node = self.vault.at(path).and_then(|node| node.ok_or(Errno::NOENT.into()));
        let node = node.map_err(|e| Failure::plain(Code::Failed, format!("{path:?}: {e}")))?;
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        match self.look(&name, &node) {
            Ok(ListedEntry { stat, .. }) if stat.kind == Kind::Dir => self.below(node),
            Ok(entry) => self.show(&entry),
            Err(e) => {
                self.note(&name, &e);
                Ok(())
            }
        }
    }

    /// Lists a directory, and with `--recursive` everything below it.
    fn below(&mut self, top: <Vaulted as Side>::Node) -> Outcome {
        let Some((dir, rest)) = self.enter(WalkPath::default(), &top)? else { return Ok(()) };
        let mut ladder = Ladder::new(dir, rest);
        while let Some((dir, rest)) = ladder.present()
            && self.is_read
        {
            let Some(name) = rest.inner.pop() else {
                if let Some((lost, error)) = ladder.leave().and_then(|left| left.lost) {
                    self.lose(lost, &error);
                }
                continue;
            };
            let path = rest.path.join(&name);
            match self.vault.node(dir, &name) {
                Err(e) => self.note(&path.path(), &e),
                Ok(None) => {} // It was removed meanwhile.
                Ok(Some(node)) => {
                    if let Some((dir, rest)) = self.enter(path.clone(), &node)?
                        && let Err(e) = ladder.enter(dir, rest)
                    {
                        self.note(&path.path(), &e);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists a directory; `None` if it cannot be read.
    fn enter(
        &mut self,
        path: WalkPath,
        node: &<Vaulted as Side>::Node,
    ) -> Outcome<Option<(<Vaulted as Side>::Dir, ListedDir)>> {
        let (dir, names) = match self.names(node) {
            Ok(found) => found,
            Err(e) => {
                self.note(&path.path(), &e);
                return Ok(None);
            }
        };
        let whole = path.path();
        let mut inner = Vec::new();
        for name in names {
            self.interrupt.check()?;
            let Ok(Some(node)) = self.vault.node(&dir, &name) else { continue };
            let path = whole.join(&name);
            match self.look(&path, &node) {
                Err(e) => self.note(&path, &e),
                Ok(entry) => {
                    self.show(&entry)?;
                    if self.args.recursive && entry.stat.kind == Kind::Dir {
                        inner.push(name);
                    }
                }
            }
            if !self.is_read {
                break;
            }
        }
        inner.reverse();
        Ok(Some((dir, ListedDir { path, inner })))
    }

    fn names(&self, node: &<Vaulted as Side>::Node) -> io::Result<(<Vaulted as Side>::Dir, Vec<OsString>)> {
        let dir = self.vault.enter(node)?;
        let mut names = self.vault.names(&dir)?;
        names.sort_unstable();
        Ok((dir, names))
    }

    /// Reports directories that the walk could not return to while they had subdirectories left to list.
    fn lose(&mut self, lost: Vec<ListedDir>, error: &io::Error) {
        for ListedDir { path, .. } in lost.into_iter().filter(|rest| !rest.inner.is_empty()) {
            self.note(&path.path(), error);
        }
    }

    fn look(&self, path: &Path, node: &<Vaulted as Side>::Node) -> io::Result<ListedEntry> {
        let stat = self.vault.stat(node)?;
        let wanted = stat.kind == Kind::Symlink && (self.args.long || self.args.json);
        let target = wanted.then(|| self.vault.link_target(node)).transpose()?;
        Ok(ListedEntry { path: path.to_owned(), stat, target })
    }

    fn show(&mut self, entry: &ListedEntry) -> Outcome {
        if self.args.json {
            self.json.push(entry.json());
        } else {
            let line = if self.args.long { entry.long() } else { escaped(&entry.path) };
            self.is_read = print_bytes(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, error: &io::Error) {
        self.unreadable += 1;
        eprintln!("{path:?}: {error}");
    }
}

impl ListedEntry {
    fn long(&self) -> String {
        let ListedEntry { path, stat, target } = self;
        let target = target.as_ref().map(|target| format!(" -> {}", escaped(Path::new(target))));
        let size = match stat.kind {
            Kind::CharDevice | Kind::BlockDevice => {
                format!("{}, {}", rustix::fs::major(stat.rdev), rustix::fs::minor(stat.rdev))
            }
            _ => stat.size.to_string(),
        };
        format!(
            "{}{} {:>3} {:>6} {:>6} {size:>12} {} {}{}",
            letter(stat.kind),
            permissions(stat.mode),
            stat.nlink,
            stat.uid,
            stat.gid,
            time(stat.mtime),
            escaped(path),
            target.unwrap_or_default()
        )
    }

    fn json(&self) -> Value {
        let Stat { kind, mode, nlink, uid, gid, size, mtime, .. } = self.stat;
        let mut value = json::path(&self.path);
        value.insert("type".into(), json!(letter(kind).to_string()));
        value.insert("mode".into(), json!(format!("{mode:04o}")));
        value.insert("links".into(), json!(nlink));
        value.insert("user".into(), json!(uid));
        value.insert("group".into(), json!(gid));
        value.insert("size".into(), json!(size));
        value.insert("modified".into(), json!(mtime.seconds));
        value.insert("modified_nanoseconds".into(), json!(mtime.nanoseconds));
        if let Some(target) = &self.target {
            json::put_name(&mut value, "target", Path::new(target));
        }
        value.into()
    }
}

/// The letter for a type, as in `ls` and `find`.
fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    }
}

fn permissions(mode: u32) -> String {
    let mut text: Vec<u8> = b"rwxrwxrwx".to_vec();
    for (at, letter) in text.iter_mut().enumerate() {
        if mode & (0o400 >> at) == 0 {
            *letter = b'-';
        }
    }
    for (bit, at, letter) in [(0o4000, 2, b's'), (0o2000, 5, b's'), (0o1000, 8, b't')] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The time in UTC, or in seconds if it is outside the calendar.
fn time(time: Time) -> String {
    match u64::try_from(time.seconds) {
        Ok(seconds) if seconds <= LAST_SECOND => log::utc(UNIX_EPOCH + Duration::from_secs(seconds)),
        _ => format!("@{}", time.seconds),
    }
}

/// A name with everything escaped that could control a terminal or cannot be shown.
fn escaped(name: &Path) -> String {
    let mut text = String::new();
    for part in name.as_os_str().as_bytes().utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '\'' | '"' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        text.extend(part.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

//! The kernel's mount table, read without accessing any mount.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The filesystem type of vault mounts in the kernel's table.
pub const FS_TYPE: &str = "fuse.warpcrypt";

/// An entry of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub target: PathBuf,
    /// Filesystem type, with its subtype.
    pub fs_type: String,
    /// The mounted source; for vault mounts the vault's path.
    pub source: PathBuf,
    /// Mounted read-only.
    pub read_only: bool,
    /// The filesystem's own options, separated by commas.
    pub options: String,
    /// The user who mounted it; only FUSE mounts have one.
    pub owner: Option<u32>,
    /// Minor device number. Unique to each filesystem that has no block device.
    pub device: u32,
    major: u32,
    /// The directory of the filesystem that is mounted.
    root: PathBuf,
}

impl Mount {
    /// The device number of all files in it.
    pub fn device_number(&self) -> u64 {
        rustix::fs::makedev(self.major, self.device)
    }

    /// Whether it was mounted by root or the caller. Another user's mount can claim to be any vault.
    pub fn is_own(&self) -> bool {
        self.owner.is_some_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
    }

    /// As [`Mount::is_own`], or whether it was mounted by `user`, who is known to use the vault.
    pub fn is_own_or_of(&self, user: Option<u32>) -> bool {
        self.is_own() || user.is_some() && self.owner == user
    }

    /// Whether this is another entry of the same mount. A later mount may reuse the device number, so
    /// more is compared.
    pub fn is_same(&self, other: &Mount) -> bool {
        let identity = |mount: &Mount| (mount.device, mount.owner, mount.source.clone());
        identity(self) == identity(other)
    }
}

/// The topmost mount at exactly `target`, an absolute path without links.
pub fn at(target: &Path) -> io::Result<Option<Mount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(parse(&table).filter(|m| m.target == target).last())
}

/// The mount that contains `path`, an absolute path without links: the topmost of the nearest ones.
pub fn around(path: &Path) -> io::Result<Option<Mount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let above = parse(&table).filter(|m| path.starts_with(&m.target));
    Ok(above.max_by_key(|m| m.target.as_os_str().len()))
}

/// The mounts below `target`, which must be unmounted first.
pub fn below(target: &Path) -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    parse(&table).filter(|m| m.target != target && m.target.starts_with(target)).collect()
}

/// All vault mounts.
pub fn ours() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    parse(&table).filter(|m| m.fs_type == FS_TYPE).collect()
}

/// The mounts of the vault in the directory `vault`, an absolute path without links.
///
/// The mount table tells which directory a path leads to, bind mounts included. Accessing the vaults
/// themselves could block forever if one is inside a mount whose process hangs.
pub fn of_vault(vault: &Path) -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    of_vault_in(parse(&table).collect(), vault)
}

fn of_vault_in(all: Vec<Mount>, vault: &Path) -> Vec<Mount> {
    let known = directory(&all, vault);
    let same = |source: &Path| source == vault || known.is_some() && directory(&all, source) == known;
    let found = all.iter().filter(|mount| mount.fs_type == FS_TYPE && same(&mount.source));
    found.cloned().collect()
}

/// The directory that a path leads to: the filesystem's device number, and the path within that
/// filesystem.
fn directory(all: &[Mount], path: &Path) -> Option<((u32, u32), PathBuf)> {
    let around = all.iter().filter(|mount| path.starts_with(&mount.target));
    let nearest = around.max_by_key(|mount| mount.target.as_os_str().len())?;
    let below = path.strip_prefix(&nearest.target).ok()?;
    Some(((nearest.major, nearest.device), nearest.root.join(below)))
}

/// A process, as "PID (name)", whose mount namespace has `vault` mounted for writing by root, the caller
/// or `user`. Finds only processes that the caller may inspect.
pub fn seen_by(vault: &Path, user: Option<u32>) -> Option<String> {
    process_with(|m| m.source == vault && !m.read_only && m.is_own_or_of(user))
}

/// A process in whose mount namespace this mount still exists. Limited as [`seen_by`].
pub fn kept_by(mount: &Mount) -> Option<String> {
    process_with(|m| m.is_same(mount))
}

/// A process with a matching vault mount in its mount table.
fn process_with(is_meant: impl Fn(&Mount) -> bool) -> Option<String> {
    let sees = |process: &Path| {
        let table = fs::read(process.join("mountinfo")).unwrap_or_default();
        parse(&table).any(|m| m.fs_type == FS_TYPE && is_meant(&m))
    };
    processes().find(|process| sees(process)).map(|process| describe(&process))
}

fn parse(table: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    table.split(|&b| b == b'\n').filter_map(parse_line)
}

/// Parses the fields described in proc_pid_mountinfo(5): the third is the device number, the fourth the
/// mounted directory, the fifth the target, the sixth the mount's options. Type and source follow a lone
/// dash.
pub(super) fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let (major, device) = str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let (major, device) = (major.parse().ok()?, device.parse().ok()?);
    let root = fields.next()?;
    let target = fields.next()?;
    let read_only = fields.next()?.split(|&b| b == b',').any(|option| option == b"ro");
    let mut after = fields.skip_while(|f| *f != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(after.next()?).into_owned();
    let source = after.next()?;
    let options = String::from_utf8_lossy(after.next().unwrap_or_default()).into_owned();
    let owner = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    Some(Mount {
        target: unescape(target).into(),
        fs_type,
        source: unescape(source).into(),
        read_only,
        options,
        owner,
        device,
        major,
        root: unescape(root).into(),
    })
}

/// Decodes the table's octal escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = if first == b'\\' { tail.get(..3).and_then(octal_byte) } else { None };
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

fn octal_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// Resolves a path whose last component may be a mount that no longer answers. In that case only the
/// parent is looked up.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(whole) = path.canonicalize() {
        return Ok(whole);
    }
    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
    Ok(parent(path).canonicalize()?.join(name))
}

/// The directory that contains a path, or will contain it.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

/// Up to `most` other processes that use something below `target`, as "PID (name)". Finds only processes
/// that the caller may inspect.
pub fn users_of(target: &Path, most: usize) -> Vec<String> {
    let own = std::process::id().to_string();
    let others = processes().filter(|process| !process.ends_with(&own));
    others.filter(|process| uses(process, target)).take(most).map(|process| describe(&process)).collect()
}

/// The `/proc` directories of all processes.
fn processes() -> impl Iterator<Item = PathBuf> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|p| p.file_name().as_bytes().iter().all(u8::is_ascii_digit)).map(|p| p.path())
}

/// A process, given by its `/proc` directory, as "PID (name)".
pub fn describe(process: &Path) -> String {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let number = process.file_name().unwrap_or_default();
    format!("{} ({})", number.to_string_lossy(), name.trim_end())
}

/// Whether a process has its working directory, root, program, an open file or a mapping below `target`.
fn uses(process: &Path, target: &Path) -> bool {
    let below = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(target));
    if ["cwd", "root", "exe"].iter().any(|l| below(&process.join(l))) {
        return true;
    }
    let listed =
        |dir: &str| fs::read_dir(process.join(dir)).is_ok_and(|d| d.flatten().any(|f| below(&f.path())));
    listed("fd") || listed("map_files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_and_optional_fields() {
        let table =
            b"36 35 0:7 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - fuse.warpcrypt /a\\134b rw,user_id=7\n\
            37 35 98:0 / / rw - ext4 /dev/root rw\n";
        let mounts: Vec<Mount> = parse(table).collect();
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].target, Path::new("/mnt 2"));
        assert_eq!(mounts[0].fs_type, FS_TYPE);
        assert_eq!(mounts[0].source, Path::new("/a\\b"));
        assert_eq!((mounts[0].device, mounts[1].device), (7, 0));
        assert_eq!((mounts[0].owner, mounts[1].owner), (Some(7), None));
        assert_eq!((mounts[0].options.as_str(), mounts[1].options.as_str()), ("rw,user_id=7", "rw"));
        assert!(!mounts[0].read_only && parse_line(b"1 2 0:3 4 /x nodev,ro - t s").unwrap().read_only);
    }

    #[test]
    fn a_vault_is_found_by_every_path_to_it() {
        let table = b"1 1 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 8:1 /srv/vault /bound rw - ext4 /dev/a rw\n\
            3 1 8:2 / /other rw - ext4 /dev/b rw\n\
            4 1 0:7 / /mnt/a rw - fuse.warpcrypt /srv/vault rw\n\
            5 1 0:8 / /mnt/b rw - fuse.warpcrypt /mnt/a/inner rw\n\
            6 1 0:9 / /mnt/c rw - fuse.sshfs /srv/vault rw\n\
            7 1 0:10 / /mnt/d rw - fuse.warpcrypt /srv/vault/below rw\n\
            8 1 0:11 / /mnt/e rw - fuse.warpcrypt nothing rw\n";
        let found = |vault: &str| {
            let found = of_vault_in(parse(table).collect(), Path::new(vault));
            found.into_iter().map(|mount| mount.device).collect::<Vec<_>>()
        };
        assert_eq!(found("/srv/vault"), [7]);
        assert_eq!(found("/bound"), [7]);
        assert_eq!(found("/bound/below"), [10]);
        assert_eq!(found("/mnt/a/inner"), [8]);
        assert!(
            ["/other/srv/vault", "/srv", "/srv/vaults", "elsewhere"]
                .iter()
                .all(|vault| found(vault).is_empty())
        );
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let broken = [&b""[..], b"1 2 0:3", b"1 2 0:3 4 /x rw -", b"1 2 0:3 4 /x rw - ext4", b"\xff \xff"];
        for line in broken.into_iter().chain([&b"1 2 3 4 /x rw - ext4 s"[..]]) {
            assert_eq!(parse_line(line), None);
        }
        assert_eq!(unescape(b"\\04"), OsString::from("\\04"));
        assert_eq!(unescape(b"\\999"), OsString::from("\\999"));
    }
}

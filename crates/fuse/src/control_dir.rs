//! Location of a mount's control socket: a directory that only its user can write to, with one socket per
//! mount.
//!
//! The directory is `/run/warpcrypt` for root and `/run/user/UID/warpcrypt` for others. Where that cannot
//! be created, as in a user namespace or without a session, it is `/tmp/warpcrypt-UID.RANDOM`. No user
//! can create a directory that belongs to another, so a directory with the right name, owner and mode can
//! be trusted and reused. Nothing is looked up by its full path: a link or a mount in place of a
//! directory or a socket is refused.

use rustix::{
    fs::{
        Access, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Statx, StatxFlags,
        accessat, flock, major, minor, mkdirat, openat, openat2, statx, unlinkat,
    },
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::{Uid, geteuid},
    rand::{GetRandomFlags, getrandom},
};
use std::{
    ffi::OsStr,
    fmt, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// Name of the directory, below the user's session directory, or below `/run` for root.
const NAME: &str = "warpcrypt";
const TEMPORARY: &str = "/tmp";
/// Writable by the group or by others.
const WRITABLE: u16 = 0o022;
const OPEN: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The control directory of the calling user.
#[derive(Debug)]
pub struct ControlDir(OwnedFd);

impl AsFd for ControlDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Why no control directory is available: every place tried, with its error.
#[derive(Debug)]
pub struct NoControlDir(Vec<(PathBuf, io::Error)>);

impl fmt::Display for NoControlDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no directory for the control socket of the mount")?;
        self.0.iter().try_for_each(|(path, error)| write!(f, "; {}: {error}", path.display()))
    }
}

impl std::error::Error for NoControlDir {}

/// The name of a mount's socket. Dropping it removes the name, unless another mount has taken it over.
/// Drop it before closing the socket: after that, the inode number may be reused.
#[derive(Debug)]
pub struct SocketName {
    dir: OwnedFd,
    name: String,
    inode: u64,
}

impl ControlDir {
    /// Finds or creates the calling user's directory.
    ///
    /// # Errors
    /// Why each of the possible places is unusable.
    pub fn make() -> Result<Self, NoControlDir> {
        let user = geteuid();
        let usual = open_parent(user).and_then(|parent| make_in(&parent, NAME.as_ref(), user));
        let usual = match usual.and_then(writable) {
            Ok(dir) => return Ok(ControlDir(dir)),
            Err(e) => (parent(user).join(NAME), e),
        };
        make_temporary(Path::new(TEMPORARY), user)
            .and_then(writable)
            .map(ControlDir)
            .map_err(|e| NoControlDir(vec![usual, (Path::new(TEMPORARY).join(prefix(user)), e)]))
    }

    /// Listens for commands to the mount with this device number. A socket left by an earlier mount with
    /// that number is replaced: that mount has ended, or the kernel would not have reused the number.
    ///
    /// # Errors
    /// Errors of the system calls.
    pub fn listen(&self, device: u64) -> io::Result<(SocketName, UnixListener)> {
        let name = socket_name(device);
        // Readable, so that it can be locked.
        let dir = openat(&self.0, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let listener = {
            let _lock = DirLock::take(&dir)?;
            match unlinkat(&dir, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
            UnixListener::bind(through(&dir).join(&name))?
        };
        let inode = status(&dir, name.as_ref())?.stx_ino;
        Ok((SocketName { dir, name, inode }, listener))
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        let Ok(_lock) = DirLock::take(&self.dir) else { return };
        if status(&self.dir, self.name.as_ref()).is_ok_and(|there| there.stx_ino == self.inode) {
            // If this fails, the next mount with this number replaces the socket.
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Connects to the process of `owner`'s mount with this device number, without blocking. The caller must
/// verify the listener's identity.
///
/// # Errors
/// `NotFound` if there is no socket. `TimedOut` if the process's backlog is full. Otherwise the system's
/// error.
pub fn connect_to(device: u64, owner: Uid) -> io::Result<UnixStream> {
    let usual = open_parent(owner).and_then(|parent| open_in(&parent, NAME.as_ref(), owner));
    let temporary = Temporary::open(Path::new(TEMPORARY), owner).into_iter().flatten();
    let mut failed = io::Error::from(Errno::NOENT);
    for dir in usual.into_iter().chain(temporary) {
        match connect_in(&dir, device) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

fn connect_in(dir: &OwnedFd, device: u64) -> io::Result<UnixStream> {
    let node = open_beneath(dir, socket_name(device).as_ref(), OPEN)?;
    if FileType::from_raw_mode(status(&node, OsStr::new(""))?.stx_mode.into()) != FileType::Socket {
        return Err(io::Error::from(Errno::NOTSOCK));
    }
    // Do not wait for a process whose backlog is full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(through(&node))?).map_err(|e| match e {
        Errno::AGAIN => io::ErrorKind::TimedOut.into(),
        _ => io::Error::from(e),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn socket_name(device: u64) -> String {
    format!("mount-{}:{}", major(device), minor(device))
}

/// Parent of the user's usual directory.
fn parent(user: Uid) -> PathBuf {
    match user.is_root() {
        true => "/run".into(),
        false => format!("/run/user/{user}").into(),
    }
}

fn open_parent(user: Uid) -> io::Result<OwnedFd> {
    let dir = openat(CWD, parent(user), OPEN | OFlags::DIRECTORY, Mode::empty())?;
    require_own(&dir, user)?;
    Ok(dir)
}

fn prefix(user: Uid) -> String {
    format!("{NAME}-{user}.")
}

/// A user's directories below the temporary one.
struct Temporary {
    dir: OwnedFd,
    entries: Dir,
    user: Uid,
}

impl Temporary {
    fn open(path: &Path, user: Uid) -> io::Result<Self> {
        let dir = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Temporary { entries: Dir::read_from(&dir)?, dir, user })
    }
}

impl Iterator for Temporary {
    type Item = OwnedFd;

    fn next(&mut self) -> Option<OwnedFd> {
        let prefix = prefix(self.user);
        loop {
            let entry = self.entries.next()?.ok()?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(prefix.as_bytes())
                && let Ok(dir) = open_in(&self.dir, OsStr::from_bytes(name), self.user)
            {
                return Some(dir);
            }
        }
    }
}

fn make_temporary(path: &Path, user: Uid) -> io::Result<OwnedFd> {
    let mut standing = Temporary::open(path, user)?;
    if let Some(dir) = standing.next() {
        return Ok(dir);
    }
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let name = format!("{}{:016x}", prefix(user), u64::from_le_bytes(random));
    make_in(&standing.dir, name.as_ref(), user)
}

fn make_in(parent: &OwnedFd, name: &OsStr, user: Uid) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_in(parent, name, user),
        Err(e) => Err(e.into()),
    }
}

fn open_in(parent: &OwnedFd, name: &OsStr, user: Uid) -> io::Result<OwnedFd> {
    let dir = open_beneath(parent, name, OPEN | OFlags::DIRECTORY)?;
    require_own(&dir, user)?;
    Ok(dir)
}

/// Opens an entry without crossing a mount: another user's mount could block the caller forever.
fn open_beneath(dir: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(dir, name, flags, Mode::empty(), resolve)?)
}

/// Refuses a directory that does not belong to `user`, or that others can write to.
fn require_own(dir: &OwnedFd, user: Uid) -> io::Result<()> {
    let stat = status(dir, OsStr::new(""))?;
    if stat.stx_uid != user.as_raw() {
        return Err(io::Error::other(format!("it belongs to uid {}", stat.stx_uid)));
    }
    match stat.stx_mode & WRITABLE {
        0 => Ok(()),
        _ => Err(io::Error::other("others can write to it")),
    }
}

/// Refuses a directory that is not writable, for example on a read-only filesystem.
fn writable(dir: OwnedFd) -> io::Result<OwnedFd> {
    accessat(&dir, ".", Access::WRITE_OK, AtFlags::EACCESS)?;
    Ok(dir)
}

/// The status of an entry, or of the descriptor itself for an empty name. Sends no request to a FUSE
/// filesystem.
fn status(dir: &OwnedFd, name: &OsStr) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    Ok(statx(dir, name, flags, StatxFlags::BASIC_STATS)?)
}

/// A path to the node behind a descriptor, even after it was moved.
fn through(node: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", node.as_fd().as_raw_fd()).into()
}

/// Held while names are added and removed. Processes of one user share it, each only briefly.
struct DirLock<'a>(&'a OwnedFd);

impl<'a> DirLock<'a> {
    fn take(dir: &'a OwnedFd) -> io::Result<Self> {
        flock(dir, FlockOperation::LockExclusive)?;
        Ok(DirLock(dir))
    }
}

impl Drop for DirLock<'_> {
    fn drop(&mut self) {
        // Closing the descriptor also releases it.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    };

    fn number(minor: u32) -> u64 {
        rustix::fs::makedev(0, minor)
    }

    fn private() -> (tempfile::TempDir, ControlDir) {
        let place = tempfile::tempdir().unwrap();
        let dir = ControlDir(make_temporary(place.path(), geteuid()).unwrap());
        (place, dir)
    }

    #[test]
    fn a_temporary_directory_is_found_again() {
        let place = tempfile::tempdir().unwrap();
        let ino = |dir: &OwnedFd| status(dir, OsStr::new("")).unwrap().stx_ino;
        let first = make_temporary(place.path(), geteuid()).unwrap();
        let again = make_temporary(place.path(), geteuid()).unwrap();
        assert_eq!(ino(&first), ino(&again));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_can_plant_is_no_directory_of_a_user() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(format!("{}{name}", prefix(geteuid())));
        let aside = place.path().join("aside");
        fs::DirBuilder::new().mode(0o700).create(&aside).unwrap();
        symlink(&aside, at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("shared")).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o777)).unwrap();
        if geteuid().is_root() {
            fs::DirBuilder::new().mode(0o700).create(at("foreign")).unwrap();
            std::os::unix::fs::chown(at("foreign"), Some(65_534), Some(65_534)).unwrap();
        }
        assert!(Temporary::open(place.path(), geteuid()).unwrap().next().is_none());
        let made = make_temporary(place.path(), geteuid()).unwrap();
        let mode = status(&made, OsStr::new("")).unwrap().stx_mode;
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_a_newer_one_stays() {
        let (_place, dir) = private();
        let refused = connect_in(&dir.0, number(7)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        let (mut left, listener) = dir.listen(number(7)).unwrap();
        drop(listener);
        assert_eq!(connect_in(&dir.0, number(7)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let (newer, _listener) = dir.listen(number(7)).unwrap();
        connect_in(&dir.0, number(7)).unwrap();
        left.inode = left.inode.min(newer.inode - 1); // The filesystem may have reused the number.
        drop(left);
        connect_in(&dir.0, number(7)).unwrap();
        drop(newer);
        assert_eq!(connect_in(&dir.0, number(7)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_in_the_place_of_a_socket_is_not_followed() {
        let (place, dir) = private();
        let (_name, _listener) = dir.listen(number(7)).unwrap();
        let socket = through(&dir.0).join("mount-0:7");
        symlink(fs::canonicalize(socket).unwrap(), through(&dir.0).join("mount-0:8")).unwrap();
        let error = connect_in(&dir.0, number(8)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTSOCK));
        fs::write(through(&dir.0).join("mount-0:9"), "").unwrap();
        let error = connect_in(&dir.0, number(9)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOTSOCK));
        drop(place);
    }

    #[test]
    fn a_socket_with_as_many_callers_as_it_takes_is_not_waited_for() {
        let (_place, dir) = private();
        let (_name, listener) = dir.listen(number(7)).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect_in(&dir.0, number(7)).unwrap();
        assert_eq!(connect_in(&dir.0, number(7)).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

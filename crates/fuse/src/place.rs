//! A mount point, opened once: the checked directory is the one mounted on, even if its path leads
//! elsewhere by then.

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Stat, Statx, StatxAttributes, StatxFlags, fstat, makedev,
        openat, statx,
    },
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

/// In such a directory, others may add entries but may not replace those of another user.
const STICKY: u32 = 0o1000;
/// Writable by the group or by others.
const WRITABLE: u32 = 0o022;

/// A directory to mount on, and its parent.
#[derive(Debug)]
pub struct MountPoint {
    path: PathBuf,
    parent: OwnedFd,
    name: OsString,
    dir: OwnedFd,
}

/// Why a path does not lead to a mount point that root may use.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A component is a symbolic link.
    #[error("{} is a symbolic link", .0.display())]
    Link(PathBuf),
    /// A directory on the path, or the mount point itself, belongs to an untrusted user.
    #[error("{path} belongs to uid {uid}", path = .0.display(), uid = .1)]
    Foreign(PathBuf, u32),
    /// Others may replace entries of a directory on the path.
    #[error("{} can be written to by other users", .0.display())]
    Shared(PathBuf),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Trusted owners of the directories on a path to a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// All users.
    All,
    /// Only root.
    Root,
    /// Root, and the user who must own the mount point.
    User(u32),
}

impl Trust {
    fn includes(self, uid: u32) -> bool {
        uid == 0
            || match self {
                Trust::All => true,
                Trust::Root => false,
                Trust::User(user) => uid == user,
            }
    }
}

impl MountPoint {
    /// Opens the directory at the absolute `path`. Follows no symbolic link, and accepts only directories
    /// whose entries no one outside `trust` can replace.
    ///
    /// # Errors
    /// `Link`, `Foreign` or `Shared`; otherwise system errors such as ENOTDIR and ENOENT.
    pub fn open(path: &Path, trust: Trust) -> Result<Self, PlaceError> {
        let mut way = PathBuf::from("/");
        let mut names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            Component::ParentDir => Some(OsStr::new("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
        // The root cannot be mounted over.
        let mut name = names.next().ok_or_else(|| io::Error::from(Errno::BUSY))?;
        let mut parent = open(CWD, OsStr::new("/"))?;
        loop {
            let around = fstat(&parent).map_err(io::Error::from)?;
            require_kept(&way, &around, trust)?;
            way.push(name);
            let dir = open(&parent, name)?;
            let stat = fstat(&dir).map_err(io::Error::from)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => return Err(PlaceError::Link(way)),
                _ => return Err(io::Error::from(Errno::NOTDIR).into()),
            }
            if around.st_mode & WRITABLE != 0 && !trust.includes(stat.st_uid) {
                return Err(PlaceError::Foreign(way, stat.st_uid));
            }
            match names.next() {
                Some(next) => (parent, name) = (dir, next),
                None => {
                    if let Trust::User(user) = trust
                        && stat.st_uid != user
                    {
                        return Err(PlaceError::Foreign(way, stat.st_uid));
                    }
                    return Ok(MountPoint { path: way, parent, name: name.to_owned(), dir });
                }
            }
        }
    }

    /// Its path when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device number of the mount on this directory; `None` if the directory is gone, is not a mount,
    /// or was moved before it was mounted on. Once mounted on, the kernel prevents its entry from being
    /// renamed or removed.
    pub(super) fn device_number(&self) -> Option<u64> {
        let there = status(&self.parent, Path::new(&self.name))?;
        // Kernels before 5.8 do not report this attribute.
        let is_mount = !there.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            || there.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        is_mount.then(|| makedev(there.stx_dev_major, there.stx_dev_minor))
    }
}

impl AsFd for MountPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The device number of a mount, obtained without a request to it. This process must not wait for its own
/// answers: if it were killed meanwhile, no one could answer, and it could never exit.
pub(super) fn device_number(dir: impl AsFd, path: &Path) -> Option<u64> {
    status(dir, path).map(|there| makedev(there.stx_dev_major, there.stx_dev_minor))
}

fn status(dir: impl AsFd, path: &Path) -> Option<Statx> {
    statx(dir, path, AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()).ok()
}

fn open(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Refuses a directory whose entries an untrusted user can replace.
fn require_kept(path: &Path, stat: &Stat, trust: Trust) -> Result<(), PlaceError> {
    if trust == Trust::All {
        return Ok(());
    }
    if !trust.includes(stat.st_uid) {
        return Err(PlaceError::Foreign(path.into(), stat.st_uid));
    }
    match stat.st_mode & WRITABLE != 0 && stat.st_mode & STICKY == 0 {
        true => Err(PlaceError::Shared(path.into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    #[test]
    fn a_way_that_others_can_change_is_refused_unless_they_are_trusted() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let [theirs, link, shared] = ["theirs", "link", "shared"].map(|name| place.join(name));
        for dir in [&theirs, &shared] {
            fs::create_dir_all(dir.join("mnt")).unwrap();
        }
        symlink(&theirs, &link).unwrap();
        for trust in [Trust::All, Trust::Root] {
            assert!(
                matches!(MountPoint::open(&link.join("mnt"), trust), Err(PlaceError::Link(at)) if at == link)
            );
        }
        if !geteuid().is_root() {
            return;
        }
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        [theirs.clone(), theirs.join("mnt")].iter().for_each(|dir| chown(dir, Some(65_534), None).unwrap());
        let open = |dir: &Path, trust| MountPoint::open(&dir.join("mnt"), trust).map(drop);
        for trust in [Trust::Root, Trust::User(1)] {
            assert!(matches!(open(&theirs, trust), Err(PlaceError::Foreign(..))), "{trust:?}");
            assert!(matches!(open(&shared, trust), Err(PlaceError::Shared(_))), "{trust:?}");
        }
        open(&theirs, Trust::User(65_534)).unwrap();
        open(&theirs, Trust::All).unwrap();
        open(&shared, Trust::All).unwrap();
    }
}

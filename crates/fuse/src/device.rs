//! Mounting and unmounting: with mount(2) and umount(2) as root, with fusermount3 otherwise.
//!
//! fuser could do the former. But it does not notice that a mount has ended, and would unmount whatever
//! is mounted there by then. It also cannot set a filesystem type.

use super::{
    handing::receive,
    permission_policy::{DEFAULT_PERMISSIONS, PermissionPolicy},
    place::device_number,
};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};
use std::{
    ffi::{CString, OsStr, OsString},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The filesystem type in the kernel's mount table.
const TYPE: &str = "fuse.warpcrypt";
/// The type's suffix, passed to fusermount3 as `subtype`.
const SUBTYPE: &str = "warpcrypt";
/// The helper that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// Parameters of a mount.
pub struct FuseDevice<'a> {
    /// The mount point.
    pub dir: BorrowedFd<'a>,
    /// Path of the mount point.
    pub target: &'a Path,
    /// Source name in the kernel's mount table.
    pub source: &'a OsStr,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether other users may access the mount.
    pub allow_other: bool,
    /// The judge of permission bits.
    pub judge: PermissionPolicy,
    /// Flags by their names in mount(8). `judge` takes precedence over flags about permissions.
    pub flags: &'a [String],
}

impl FuseDevice<'_> {
    /// Mounts, and returns the descriptor that delivers the kernel's requests.
    ///
    /// # Errors
    /// If a flag is unknown, /dev/fuse does not open, or the kernel or the helper refuses.
    pub fn mount(&self) -> io::Result<OwnedFd> {
        let flags = self.kernel_flags()?;
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let data = CString::new(self.kernel_data(&fd))?;
        // By now the path may lead elsewhere.
        let target = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        match rustix::mount::mount(self.source, target, TYPE, flags, data.as_c_str()) {
            Ok(()) => Ok(fd),
            Err(Errno::PERM | Errno::ACCESS) => self.helper(),
            Err(e) => Err(e.into()),
        }
    }

    fn kernel_flags(&self) -> io::Result<MountFlags> {
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
        flags.set(MountFlags::RDONLY, self.read_only);
        for name in self.flags() {
            let (flag, on) = match name {
                "dev" => (MountFlags::NODEV, false),
                "nodev" => (MountFlags::NODEV, true),
                "suid" => (MountFlags::NOSUID, false),
                "nosuid" => (MountFlags::NOSUID, true),
                "exec" => (MountFlags::NOEXEC, false),
                "noexec" => (MountFlags::NOEXEC, true),
                "atime" => (MountFlags::NOATIME, false),
                "noatime" => (MountFlags::NOATIME, true),
                "async" => (MountFlags::SYNCHRONOUS, false),
                "sync" => (MountFlags::SYNCHRONOUS, true),
                "dirsync" => (MountFlags::DIRSYNC, true),
                _ => return Err(io::Error::other(format!("unknown mount flag `{name}`"))),
            };
            flags.set(flag, on);
        }
        Ok(flags)
    }

    fn kernel_data(&self, fd: &OwnedFd) -> String {
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut data = format!("fd={},rootmode=40000,user_id={user},group_id={group}", fd.as_raw_fd());
        for option in self.rules() {
            data.push(',');
            data.push_str(option);
        }
        data
    }

    fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(String::as_str).filter(|flag| *flag != DEFAULT_PERMISSIONS)
    }

    /// Mount options for the kernel's access checks.
    fn rules(&self) -> impl Iterator<Item = &str> {
        let judges = (self.judge == PermissionPolicy::Kernel).then_some(DEFAULT_PERMISSIONS);
        judges.into_iter().chain(self.allow_other.then_some("allow_other"))
    }

    fn helper_options(&self) -> OsString {
        let mut options = OsString::from("subtype=");
        options.push(SUBTYPE);
        options.push(if self.read_only { ",ro" } else { ",rw" });
        for option in self.rules().chain(self.flags()) {
            options.push(",");
            options.push(option);
        }
        options.push(",fsname=");
        options.push(escaped(self.source));
        options
    }

    /// Mounts through the helper. The helper sends the device's descriptor over a socket, which is its
    /// standard input.
    fn helper(&self) -> io::Result<OwnedFd> {
        let (ours, its) = UnixStream::pair()?;
        let child = Command::new(HELPER)
            .arg("-o")
            .arg(self.helper_options())
            .arg("--")
            .arg(self.target)
            .env("_FUSE_COMMFD", "0")
            .env("LC_ALL", "C")
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_helper)?;
        let received = receive(&ours, &mut [0]).ok().and_then(|(_, fd)| fd);
        let output = child.wait_with_output()?;
        match received {
            Some(fd) if output.status.success() => Ok(fd),
            _ => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

/// Unmounts `target`. If `lazy`, a mount in use is detached at once and ends when its last user is done.
///
/// # Errors
/// EBUSY if it is in use.
pub fn unmount(target: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount_at(target, flags) {
        Err(Errno::PERM | Errno::ACCESS) => helper_unmount(target, lazy),
        other => Ok(other?),
    }
}

/// Follows no symbolic links in the path: the mount table has none, so a link was planted there.
fn unmount_at(target: &Path, flags: UnmountFlags) -> rustix::io::Result<()> {
    let (Some(dir), Some(name)) = (target.parent(), target.file_name()) else { return Err(Errno::INVAL) };
    let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2(CWD, dir, open, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let at = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    rustix::mount::unmount(at, flags | UnmountFlags::NOFOLLOW)
}

/// Forces the mount at `target` to end even if it is in use. Requires root.
///
/// # Errors
/// The kernel's error.
pub fn force_unmount(target: &Path) -> io::Result<()> {
    // The kernel first fails every request. After that the mount is not busy, or it ends with its last
    // user.
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
    Ok(unmount_at(target, flags)?)
}

/// Makes the kernel abort a mount with this device number that was detached and is still in use.
///
/// # Errors
/// If the system does not permit it to this user.
pub fn abort(device: u64) -> io::Result<()> {
    let switch = format!("/sys/fs/fuse/connections/{}/abort", rustix::fs::minor(device));
    std::fs::write(switch, "1")
}

/// Ends the mount at `target` with this device number without its process: programs that have something
/// open get errors. This also works for a mount hidden by another filesystem.
///
/// # Errors
/// The kernel's or the helper's error. An error after the mount was detached means that it continues
/// until the last program closes it.
pub fn end(target: &Path, device: u64) -> io::Result<()> {
    if device_number(CWD, target) == Some(device) {
        if force_unmount(target).is_ok() {
            return Ok(());
        }
        unmount(target, true)?;
    }
    abort(device).map_err(|e| {
        let goes_on = format!("it is detached, and goes on until the last program lets go of it ({e})");
        io::Error::new(e.kind(), goes_on)
    })
}

fn helper_unmount(target: &Path, lazy: bool) -> io::Result<()> {
    let output = Command::new(HELPER)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(target)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(no_helper)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(Errno::BUSY.into()),
        false => Err(io::Error::other(said.trim().to_owned())),
    }
}

fn no_helper(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(e.kind(), format!("{HELPER} was not found: install the package fuse3"))
        }
        _ => e,
    }
}

/// A value in the helper's option list, with commas and backslashes escaped.
fn escaped(value: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    std::os::unix::ffi::OsStringExt::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::{
        super::place::{MountPoint, Trust},
        *,
    };
    use std::os::fd::AsFd;

    fn device<'a>(target: &'a MountPoint, flags: &'a [String]) -> FuseDevice<'a> {
        FuseDevice {
            dir: target.as_fd(),
            target: target.path(),
            source: OsStr::new("/a,b\\c"),
            read_only: true,
            allow_other: true,
            judge: PermissionPolicy::Kernel,
            flags,
        }
    }

    #[test]
    fn devices_and_set_user_id_are_off_unless_asked_for() {
        let target = MountPoint::open(Path::new("/proc"), Trust::All).unwrap();
        let flags = device(&target, &[]).kernel_flags().unwrap();
        assert_eq!(flags, MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RDONLY);
        let names = ["dev", "suid", "noexec"].map(String::from);
        let flags = device(&target, &names).kernel_flags().unwrap();
        assert_eq!(flags, MountFlags::NOEXEC | MountFlags::RDONLY);
        assert!(device(&target, &["fsname=x".to_owned()]).kernel_flags().is_err());
    }

    /// A user could do this when root is asked to mount over a directory of root.
    #[test]
    fn a_mount_point_that_becomes_a_link_is_mounted_on_as_it_was_checked() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let [point, moved, other] = ["point", "moved", "other"].map(|name| place.join(name));
        for dir in [&point, &other] {
            std::fs::create_dir(dir).unwrap();
        }
        let target = MountPoint::open(&point, Trust::All).unwrap();
        std::fs::rename(&point, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &point).unwrap();
        let fd = device(&target, &[]).mount().unwrap();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounted = |at: &Path| table.lines().any(|line| line.split(' ').nth(4) == at.to_str());
        assert_eq!([&point, &moved, &other].map(|at| mounted(at)), [false, true, false]);
        // The path now leads to a different directory.
        assert_eq!(target.device_number(), None);
        drop(fd);
        unmount(&moved, true).unwrap();
    }

    #[test]
    fn the_helpers_options_cannot_be_extended_by_a_path() {
        let target = MountPoint::open(Path::new("/proc"), Trust::All).unwrap();
        let options = device(&target, &["noexec".to_owned()]).helper_options();
        assert_eq!(options, "subtype=warpcrypt,ro,default_permissions,allow_other,noexec,fsname=/a\\,b\\\\c");
    }
}

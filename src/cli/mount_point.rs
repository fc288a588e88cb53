//! Checks a mount point: whether a vault can be mounted there, and what is already mounted.

use super::{
    exit::{Code, Failure, Outcome},
    mounts::{self, Mount},
    note,
    quoting::shell_word,
};
use fuse::{MountPoint, PlaceError, Trust};
use rustix::{
    fs::{Access, access, statfs},
    io::Errno,
    process::geteuid,
};
use std::{
    fs::{self, Metadata},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The mount point's absolute path, if a vault can be mounted there. With `nonempty` the directory may
/// have contents.
///
/// # Errors
/// The reason why nothing can be mounted there.
pub fn check(path: &Path, nonempty: bool, trust: Trust) -> Outcome<PathBuf> {
    let shown = path.display();
    let whole = mounts::resolve(path).or_else(|_| std::path::absolute(path));
    let whole = whole.map_err(|e| Failure::io(format!("mount point {shown}"), &e))?;
    let around = mounts::around(&whole).map_err(|e| Failure::io("the mount table", &e))?;
    if let Some(mount) = around {
        if is_fuse(&mount) && is_dead(path) {
            return Err(dead(path, &mount));
        }
        refuse_fuse(path, &whole, &mount)?;
    }
    let metadata = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Failure::new(
            Code::MountPointMissing,
            format!("the mount point {shown} does not exist"),
            format!("Create it: mkdir {}", shell_word(path)),
        ),
        _ => Failure::io(format!("mount point {shown}"), &e),
    })?;
    require_directory(path, &metadata)?;
    require_own(path, &metadata)?;
    if trust != Trust::All {
        // Check the path as it was given, which may contain links.
        let given = std::path::absolute(path).map_err(|e| Failure::io(format!("mount point {shown}"), &e))?;
        MountPoint::open(&given, trust).map_err(|e| refused(path, &e))?;
    }
    let whole = path.canonicalize().map_err(|e| Failure::io(format!("mount point {shown}"), &e))?;
    Ok(open(&whole, nonempty, trust)?.path().to_owned())
}

/// Opens the mount point at `path`, an absolute path without links. Later changes of the path have no
/// effect on the result. With `nonempty` the directory may have contents.
///
/// # Errors
/// The reason why nothing can be mounted there.
pub fn open(path: &Path, nonempty: bool, trust: Trust) -> Outcome<MountPoint> {
    let shown = path.display();
    let place = MountPoint::open(path, trust).map_err(|e| refused(path, &e))?;
    let inside = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    let mut entries = fs::read_dir(inside).map_err(|e| Failure::io(format!("mount point {shown}"), &e))?;
    if !nonempty && entries.next().is_some() {
        return Err(Failure::new(
            Code::MountPointNotEmpty,
            format!("the mount point {shown} is not empty"),
            "A mount would hide its content. Name an empty directory, or mount with `-o nonempty`.",
        ));
    }
    Ok(place)
}

fn refused(path: &Path, error: &PlaceError) -> Failure {
    let what = format!("mount point {}: {error}", path.display());
    let advice = match error {
        PlaceError::System(e) => return Failure::io(format!("mount point {}", path.display()), e),
        PlaceError::Link(_) => {
            "Root does not follow symbolic links to a mount point. Name the directory itself, or mount with `-o any-path`."
        }
        PlaceError::Foreign(..) | PlaceError::Shared(_) => {
            "Its owner could put another directory in the place. Choose one that root alone can change, or mount with \
             `-o for-uid=UID`, for a user's own mount point, or `-o any-path`."
        }
    };
    Failure::new(Code::Failed, what, advice)
}

/// Whether `path` is in a mount whose process was killed.
///
/// If requests came over io_uring, the kernel closes the process's connection a moment after its end and
/// returns other errors until then. So a failing mount is polled for a while.
pub fn is_dead(path: &Path) -> bool {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        // Attributes of a dead mount may still be cached in the kernel. statfs is always forwarded.
        match statfs(path) {
            Ok(_) => return false,
            Err(Errno::NOTCONN) => return true,
            Err(_) => thread::sleep(PAUSE),
        }
    }
    false
}

fn is_fuse(mount: &Mount) -> bool {
    mount.fs_type.starts_with("fuse")
}

/// The failure if the process behind the mount at or above the mount point was killed.
fn dead(path: &Path, mount: &Mount) -> Failure {
    Failure::new(
        Code::MountPointBusy,
        format!(
            "{}: the mount of {} on {} is dead: {}",
            path.display(),
            mount.source.display(),
            mount.target.display(),
            io::Error::from(Errno::NOTCONN)
        ),
        format!("Remove the dead mount (`{}`) and try again.", unmount_command(mount)),
    )
}

/// Rejects a place that is already a FUSE mount, and prints a notice if it is inside another vault's
/// mount.
fn refuse_fuse(path: &Path, whole: &Path, mount: &Mount) -> Outcome {
    let (shown, source) = (path.display(), mount.source.display());
    if mount.target == whole && is_fuse(mount) {
        return Err(Failure::new(
            Code::MountPointBusy,
            format!("{shown}: {source} is already mounted there"),
            format!("Unmount it (`{}`) or choose another directory.", unmount_command(mount)),
        ));
    }
    if mount.fs_type == mounts::FS_TYPE {
        note(format_args!(
            "{shown} is inside the mount of {source} on {}: that can be unmounted only after this one",
            mount.target.display()
        ));
    }
    Ok(())
}

fn unmount_command(mount: &Mount) -> String {
    let program = if mount.fs_type == mounts::FS_TYPE { "warpcrypt umount" } else { "umount" };
    format!("{program} {}", shell_word(&mount.target))
}

fn require_directory(path: &Path, metadata: &Metadata) -> Outcome {
    if metadata.is_dir() {
        return Ok(());
    }
    Err(Failure::new(
        Code::MountPointNotDir,
        format!("the mount point {} is not a directory", path.display()),
        "Name an empty directory.",
    ))
}

/// Checks the requirements of fusermount3 for ordinary users.
fn require_own(path: &Path, metadata: &Metadata) -> Outcome {
    const STICKY: u32 = 0o1000;
    let user = geteuid();
    let others_sticky = metadata.mode() & STICKY != 0 && metadata.uid() != user.as_raw();
    if user.is_root() || !others_sticky && access(path, Access::WRITE_OK) != Err(Errno::ACCESS) {
        return Ok(());
    }
    Err(Failure::new(
        Code::Failed,
        format!("the mount point {} belongs to another user (uid {})", path.display(), metadata.uid()),
        "Name a directory of your own, or mount as root.",
    ))
}

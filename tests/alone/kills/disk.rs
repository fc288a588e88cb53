//! Filesystems for stores, in image files behind loop devices.

use crate::support::command::{ok, run};
use rustix::{
    fs::{Advice, fadvise},
    mount::{UnmountFlags, unmount},
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

/// Size of an image in bytes; XFS requires at least 300 MiB.
const SIZE: u64 = 512 << 20;

/// The tested filesystems, and the commands that create them.
pub const FILESYSTEMS: [(&str, &[&str]); 3] =
    [("ext4", &["mkfs.ext4", "-q"]), ("xfs", &["mkfs.xfs", "-q"]), ("btrfs", &["mkfs.btrfs", "-q"])];

/// Creates a filesystem in a new image.
pub fn make(filesystem: &str, image: &Path) {
    File::create(image).and_then(|f| f.set_len(SIZE)).expect("image");
    let (_, line) = FILESYSTEMS.iter().find(|(name, _)| *name == filesystem).expect("a filesystem");
    ok(Command::new(line[0]).args(&line[1..]).arg(image), 60);
}

/// A mounted image.
pub struct Disk {
    pub at: PathBuf,
    filesystem: String,
}

impl Disk {
    pub fn mount(filesystem: &str, image: &Path, at: &Path) -> Result<Disk, String> {
        let options = if filesystem == "xfs" { "loop,nouuid" } else { "loop" };
        let mut said = String::new();
        // Another program may grab the same loop device concurrently.
        for _ in 0..5 {
            let done =
                run(Command::new("mount").args(["-t", filesystem, "-o", options]).arg(image).arg(at), 60);
            if done.status.success() {
                return Ok(Disk { at: at.to_path_buf(), filesystem: filesystem.into() });
            }
            said = done.stderr;
            sleep(Duration::from_millis(20));
        }
        Err(said)
    }

    /// Makes the kernel start writing back its dirty pages of some files, without waiting or flushing.
    pub fn hurry(&self, files: &[PathBuf]) {
        for path in files {
            if let Ok(file) = File::open(path) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A killed process may not have exited yet.
        for _ in 0..200 {
            if unmount(&self.at, UnmountFlags::empty()).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        if self.filesystem == "btrfs" {
            // The next image may be a different state of the same filesystem.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]), 30);
        }
    }
}

/// Copies an image, preserving its holes.
pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_file(to);
    ok(Command::new("cp").arg("--sparse=always").arg(from).arg(to), 60);
}

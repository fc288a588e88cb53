//! Filesystems mounted for one test, in memory or in an image.

use super::command::{ok, run};
use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

/// A filesystem in memory of a given size, mounted for one test.
pub struct Disk(pub tempfile::TempDir);

impl Disk {
    /// A filesystem of this `size`, in the syntax of tmpfs ("8m"). Needs root.
    pub fn new(size: &str) -> Disk {
        let place = tempfile::TempDir::with_prefix("warpcrypt-disk-").expect("directory");
        let options = format!("size={size},mode=755");
        ok(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place.path()), 30);
        Disk(place)
    }

    /// Takes all room that is left, with a file whose path it returns.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.path().join("ballast");
        let ballast = File::create(&path).expect("ballast");
        let mut len = 0;
        loop {
            let space = statvfs(self.0.path()).expect("free space");
            match space.f_bfree * space.f_frsize {
                0 => return path,
                // Another may take some of it first.
                free => match fallocate(&ballast, FallocateFlags::empty(), len, free) {
                    Err(Errno::NOSPC) => {}
                    taken => {
                        taken.expect("room");
                        len += free;
                    }
                },
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.0.path()), 30);
    }
}

/// A small ext4 in an image, mounted for one test. It reuses the number of a deleted inode for the next one
/// created.
pub struct Ext4(pub PathBuf);

impl Ext4 {
    /// Creates it in the file `image` and mounts it on the new directory `at`. Needs root.
    pub fn at(image: &Path, at: &Path) -> Ext4 {
        File::create(image).expect("image").set_len(8 << 20).expect("length");
        let options = ["-q", "-m", "0", "-b", "4096", "-I", "256", "-N", "2048", "-O", "^has_journal"];
        ok(Command::new("mkfs.ext4").args(options).arg(image), 60);
        fs::create_dir(at).expect("mkdir");
        ok(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at), 60);
        Ext4(at.to_path_buf())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.0), 30);
    }
}

//! Filesystems mounted for one test, in memory or in an image.

use super::{
    command::{ok, run},
    mounted::Vault,
    store::{by_inode, inode},
};
use rustix::{
    fs::statvfs,
    mount::{MountFlags, mount_remount},
};
use std::{
    ffi::CString,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
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

    /// Changes the size, given in the syntax of tmpfs. tmpfs refuses one below the space in use.
    pub fn resize(&self, size: &str) -> rustix::io::Result<()> {
        let options = CString::new(format!("size={size}")).expect("no zero byte");
        mount_remount(self.0.path(), MountFlags::empty(), options.as_c_str())
    }

    /// Writes a new file in a mount of `vault`, which is on this disk of `size`, and takes all free space
    /// before the content is stored. Returns the open file.
    pub fn write_unstored(&self, size: &str, vault: &Vault, path: &Path, content: &[u8]) -> File {
        let file = File::create(path).expect("create");
        let stored = by_inode(&vault.store)[&inode(path)].clone();
        loop {
            file.sync_all().expect("sync");
            file.write_all_at(content, 0).expect("write");
            let in_use = || {
                let space = statvfs(self.0.path()).expect("space");
                (space.f_blocks - space.f_bfree) * space.f_frsize
            };
            while self.resize(&in_use().to_string()).is_err() {}
            if fs::metadata(&stored).expect("stored file").blocks() * 512 < content.len() as u64 {
                return file;
            }
            // The flusher stored everything first.
            self.resize(size).expect("resize");
            file.set_len(0).expect("truncate");
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

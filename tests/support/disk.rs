//! Filesystems in memory, mounted for one test.

use super::command::{ok, run};
use std::process::Command;

/// A filesystem in memory of a given size, mounted for one test.
pub struct Disk(pub tempfile::TempDir);

impl Disk {
    /// Of `size` as tmpfs writes it ("8m"); needs root.
    pub fn new(size: &str) -> Disk {
        let place = tempfile::TempDir::with_prefix("warpcrypt-disk-").expect("directory");
        let options = format!("size={size},mode=755");
        ok(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place.path()), 30);
        Disk(place)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.0.path()), 30);
    }
}

//! A mount that another process detached. The kernel still serves its users, but does not tell the
//! mount's process.

use super::server::Server;
use std::fs;

impl Server {
    /// Shuts the gate down if the mount was detached, because the vault could no longer be reached to
    /// unlock it. Returns whether the mount is ending.
    pub(super) fn ends_if_detached(&self) -> bool {
        if !self.gate.is_ending() && self.device.get().is_some_and(|device| !is_attached(*device)) {
            log::info!("the mount was detached");
            self.gate.end();
        }
        self.gate.is_ending()
    }
}

/// Whether the mount with this minor device number appears anywhere in this process's mount table. True
/// if the table cannot be read.
fn is_attached(device: u32) -> bool {
    let is_of = |line: &str| line.split(' ').nth(2) == Some(&format!("0:{device}"));
    fs::read("/proc/self/mountinfo").map_or(true, |table| String::from_utf8_lossy(&table).lines().any(is_of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{minor, stat};

    #[test]
    fn what_is_mounted_is_attached() {
        assert!(is_attached(minor(stat("/proc").unwrap().st_dev)));
        assert!(!is_attached(u32::MAX));
    }
}

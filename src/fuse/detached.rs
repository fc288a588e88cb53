//! A mount that was detached by others: the kernel serves its users on, and tells its process nothing.

use super::server::Server;
use std::fs;

impl Server {
    /// Has the gate end if the mount was detached: nobody finds the vault any more to unlock it. Returns whether the mount is
    /// to end.
    pub(super) fn ends_if_detached(&self) -> bool {
        if !self.gate.is_ending() && self.device.get().is_some_and(|device| !is_attached(*device)) {
            log::info!("the mount was detached");
            self.gate.end();
        }
        self.gate.is_ending()
    }
}

/// Whether the mount with this device number (the minor one) is in this process's mount table, wherever. If the table cannot
/// be read, it is.
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

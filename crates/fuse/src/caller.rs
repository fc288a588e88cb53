//! The process that makes a request, as reported by the kernel.

use fuser::Request;
use std::fs;

/// Bit of CAP_FSETID in a thread's capabilities.
const FSETID: u64 = 1 << 4;
/// Bit of CAP_SYS_ADMIN.
const SYS_ADMIN: u64 = 1 << 21;

/// The process that waits for a request's answer, and its rights.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Filesystem user ID.
    pub user: u32,
    /// Filesystem group ID.
    pub group: u32,
    /// The calling thread's ID; 0 if it is not visible from this PID namespace.
    pub thread: u32,
}

impl Caller {
    /// The caller of a request.
    pub fn of(request: &Request) -> Caller {
        Caller { user: request.uid(), group: request.gid(), thread: request.pid() }
    }

    /// Whether its changes preserve the set-user-id and set-group-id bits. A program of root may have
    /// dropped that right.
    pub fn keeps_set_id(&self) -> bool {
        self.may(FSETID)
    }

    /// Whether it sees `trusted.` attributes; not even their names are visible to others (xattr(7)).
    pub fn sees_trusted(&self) -> bool {
        self.may(SYS_ADMIN)
    }

    fn may(&self, right: u64) -> bool {
        self.user == 0 && effective(&status(self.thread)).is_none_or(|rights| rights & right != 0)
    }

    /// Whether it belongs to `group`. The kernel sends only one of its groups. If the others cannot be
    /// read, the answer is no.
    pub fn is_in(&self, group: u32) -> bool {
        self.group == group || groups(&status(self.thread)).contains(&group)
    }
}

/// The kernel's status text of a thread; empty for one that is not visible.
fn status(thread: u32) -> String {
    // This path works for every thread, although /proc lists only thread group leaders.
    fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default()
}

/// The effective capabilities.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The supplementary groups.
fn groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_taken_from_a_status() {
        assert_eq!(groups("Name:\tx\nGid:\t1\t1\t1\t1\nGroups:\t4 24 65534 \nNStgid:\t7\n"), [4, 24, 65_534]);
        assert!(groups("Groups:\t \n").is_empty());
        assert!(groups("").is_empty());
        let mut ours: Vec<u32> =
            rustix::process::getgroups().expect("groups").into_iter().map(|group| group.as_raw()).collect();
        let mut read = groups(&status(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()));
        ours.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, ours);
    }

    #[test]
    fn capabilities_are_taken_from_a_status() {
        assert_eq!(
            effective("CapPrm:\t0000000000000000\nCapEff:\t000001ffffffffef\n"),
            Some(0x1ff_ffff_ffef)
        );
        assert_eq!(effective("Name:\tx\n"), None);
        let caller = |user, thread| Caller { user, group: 0, thread };
        assert!(caller(0, 0).keeps_set_id() && !caller(1, 0).keeps_set_id());
    }

    #[test]
    fn who_cannot_be_seen_is_in_one_group() {
        let caller = Caller { user: 1, group: 2, thread: 0 };
        assert!(caller.is_in(2) && !caller.is_in(0));
    }
}

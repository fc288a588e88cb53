//! System prerequisites of a mount: FUSE, its helpers, the mount table, a log.

use super::finding::Diagnosis;
use crate::cli::{exit::Code, log, mount};
use rustix::process::geteuid;
use std::{env, fs, path::Path};

const ONLY_ROOT: &str = "only root can mount";

/// All findings about mounting.
pub fn findings() -> [Diagnosis; 7] {
    [
        device(),
        fusermount(),
        mtab(),
        allow_other(),
        helper("/sbin/mount.fuse.warpcrypt", "/etc/fstab and mount(8) cannot mount vaults"),
        helper("/sbin/umount.fuse.warpcrypt", "umount(8) returns before everything is stored"),
        log_place(),
    ]
}

fn device() -> Diagnosis {
    let Err(failure) = mount::fuse_available() else { return Diagnosis::ok("/dev/fuse", "opens") };
    let (found, mend) = failure.message.split_once('\n').unwrap_or((&failure.message, ""));
    let found = found.trim_start_matches("/dev/fuse: ");
    Diagnosis::ok("/dev/fuse", found).missing("this user cannot mount", mend).blocks_if(true, failure.code)
}

fn fusermount() -> Diagnosis {
    const NAME: &str = "fusermount3";
    let path = env::var_os("PATH").unwrap_or_default();
    match env::split_paths(&path).map(|dir| dir.join(NAME)).find(|program| program.is_file()) {
        Some(program) => Diagnosis::ok(NAME, program.display()),
        None => Diagnosis::ok(NAME, "not in PATH")
            .missing(ONLY_ROOT, "as root: apt-get install fuse3")
            .blocks_if(!geteuid().is_root(), Code::FuseUnavailable),
    }
}

/// fusermount3 reads the mount table through this file.
fn mtab() -> Diagnosis {
    match fs::File::open("/etc/mtab") {
        Ok(_) => Diagnosis::ok("/etc/mtab", "readable"),
        Err(e) => Diagnosis::ok("/etc/mtab", e)
            .missing(ONLY_ROOT, "as root: ln -s /proc/self/mounts /etc/mtab")
            .blocks_if(!geteuid().is_root(), Code::FuseUnavailable),
    }
}

fn allow_other() -> Diagnosis {
    const NAME: &str = "user_allow_other";
    if mount::others_allowed().unwrap_or(false) {
        return Diagnosis::ok(NAME, "in /etc/fuse.conf");
    }
    let mend = "as root: echo user_allow_other >> /etc/fuse.conf";
    Diagnosis::ok(NAME, "not in /etc/fuse.conf").missing("only root can use --allow-other", mend)
}

/// Helper programs that mount(8) and umount(8) call.
fn helper(path: &'static str, cost: &str) -> Diagnosis {
    match Path::new(path).is_file() {
        true => Diagnosis::ok(path, "installed"),
        false => Diagnosis::ok(path, "not installed").missing(cost, "as root: mount-scripts/install.sh"),
    }
}

/// Opens the log as a mount does.
fn log_place() -> Diagnosis {
    match log::try_usual() {
        Ok(()) => Diagnosis::ok("log", "opens"),
        Err(why) => Diagnosis::ok("log", why)
            .missing("a mount in the background has no log", "warpcrypt mount --log-file FILE …"),
    }
}

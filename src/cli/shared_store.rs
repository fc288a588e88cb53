//! Checks the options of a network mount that holds a store for `--shared`: whether its locks reach
//! other machines, and whether changes by those are visible at once.

use super::{
    exit::{Code, Failure, Outcome},
    mounts::{self, Mount},
    note,
};
use std::{fs, path::Path};

/// Rejects a `vault`, an absolute path without links, if its store does not reliably lock against other
/// machines. Prints a notice if the store caches what other machines may have changed.
///
/// # Errors
/// If two machines could write to one file at once.
pub fn check(vault: &Path) -> Outcome {
    // An unreadable mount table does not prevent the mount.
    let Ok(Some(store)) = mounts::around(vault) else { return Ok(()) };
    let shown = store.target.display();
    if has_own_locks(&store) {
        return Err(Failure::new(
            Code::Failed,
            format!("--shared: locks on {shown} are not seen by other machines"),
            "Two could write to one file at once and damage it. Mount it without `nolock` and `local_lock`, or as NFS 4.",
        ));
    }
    if takes_up_lost_locks(&store) {
        return Err(Failure::new(
            Code::Failed,
            format!(
                "--shared: a machine that loses its locks on {shown} would continue to write, although another machine may hold them by then"
            ),
            "Mount CephFS without `recover_session=clean`; for NFS set the kernel's `nfs.recover_lost_locks` to N.",
        ));
    }
    if is_late(&store) {
        note(format_args!(
            "{shown} may show changes by other machines up to a minute late: mount it with lookupcache=none,actimeo=0"
        ));
    }
    Ok(())
}

fn is_nfs(store: &Mount) -> bool {
    matches!(store.fs_type.as_str(), "nfs" | "nfs4")
}

fn has(store: &Mount, wanted: &str) -> bool {
    store.options.split(',').any(|option| option == wanted)
}

/// Whether the client handles flock(2) locally, without asking the server.
fn has_own_locks(store: &Mount) -> bool {
    is_nfs(store) && (has(store, "local_lock=all") || has(store, "local_lock=flock"))
}

/// Whether the kernel acquires lost locks anew instead of failing their holders.
fn takes_up_lost_locks(store: &Mount) -> bool {
    let of_nfs = || fs::read_to_string("/sys/module/nfs/parameters/recover_lost_locks");
    store.fs_type == "ceph" && has(store, "recover_session=clean")
        || is_nfs(store) && of_nfs().is_ok_and(|set| set.trim() == "Y")
}

/// Whether names or attributes may come from a stale cache.
fn is_late(store: &Mount) -> bool {
    // The kernel shows options that differ from its defaults. `actimeo=0` and `noac` set all four times
    // to 0.
    let at_once = ["lookupcache=none", "acregmin=0", "acregmax=0", "acdirmin=0", "acdirmax=0"];
    is_nfs(store) && !at_once.iter().all(|option| has(store, option))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store as it appears in the mount table of Linux 6.1, without the options common to all cases.
    fn store(fs_type: &str, options: &str) -> Mount {
        let line = format!("36 25 0:27 / /store rw,relatime - {fs_type} server:/ rw,vers=4.2,hard,{options}");
        mounts::parse_line(line.as_bytes()).expect("a line of the table")
    }

    #[test]
    fn what_an_nfs_mount_keeps_is_told() {
        let zero = "acregmin=0,acregmax=0,acdirmin=0,acdirmax=0";
        for options in [
            "local_lock=none",
            "lookupcache=none,local_lock=none",
            &format!("{zero},lookupcache=pos,local_lock=none"),
            &format!("{zero},local_lock=none"),
            "acregmin=0,acregmax=0,lookupcache=none,local_lock=none",
            "acregmin=1,acregmax=1,acdirmin=1,acdirmax=1,lookupcache=none,local_lock=none",
        ] {
            assert!(is_late(&store("nfs4", options)), "{options}");
        }
        for options in ["hard,proto=tcp", "hard,noac,proto=tcp"] {
            let options = format!("{zero},{options},lookupcache=none,local_lock=none");
            assert!(!is_late(&store("nfs4", &options)), "{options}");
        }
        assert!(!is_late(&store("ext4", "errors=remount-ro")));
    }

    #[test]
    fn locks_of_one_machine_are_refused() {
        for (options, own) in [
            ("nolock,local_lock=all", true),
            ("local_lock=flock", true),
            ("local_lock=posix", false),
            ("local_lock=none", false),
        ] {
            assert_eq!(has_own_locks(&store("nfs", options)), own, "{options}");
        }
        assert!(!has_own_locks(&store("ext4", "local_lock=all")));
    }

    #[test]
    fn a_client_that_goes_on_without_its_locks_is_known() {
        assert!(takes_up_lost_locks(&store("ceph", "name=admin,recover_session=clean")));
        assert!(!takes_up_lost_locks(&store("ceph", "name=admin,recover_session=no")));
    }
}

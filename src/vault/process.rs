//! What an open vault asks of its process.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Raises the number of descriptors as far as it goes (every open file and directory holds one), and
/// keeps keys and plaintext out of core dumps.
pub(super) fn prepare() {
    let files = getrlimit(Resource::Nofile);
    let wishes = [
        (Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum }),
        (Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }),
    ];
    for (resource, limit) in wishes {
        if let Err(e) = setrlimit(resource, limit) {
            log::warn!("limit {resource:?} stays as it is: {e}");
        }
    }
    if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("the process stays open to debuggers of its own user: {e}");
    }
}

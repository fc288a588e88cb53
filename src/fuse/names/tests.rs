use super::*;
use crate::{
    fuse::{caching::CacheMode, gate::Gate, inodes::ROOT, loops::Loops, permissions::Judge},
    vault::tests::Fixture,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel asks anew for names that it has known for a minute, beside whatever else is done to them.
#[test]
fn a_file_looked_up_while_it_is_renamed_is_known_by_its_new_name_alone() {
    let vault = Fixture::new();
    let loops = Loops::new(2, Box::new(|| false));
    let passage = (loops, Gate::new());
    let cache = CacheMode::Auto;
    let server = Server::new(vault.vault.clone(), false, Judge::Nobody, true, cache, passage, 8).unwrap();
    let new = Wanted { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let root = Caller { user: 0, group: 0, thread: 0 };
    let number = server.mknod(ROOT, OsStr::new("a"), new, libc::S_IFREG, 0).unwrap().id.number;
    let node = server.inodes.get(number).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["a", "b"].map(OsStr::new) {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    if let Some(found) = server.lookup(ROOT, name).unwrap() {
                        server.inodes.forget(found.id.number, 1);
                    }
                }
            });
        }
        let mut names = ["a", "b"].map(OsStr::new);
        for _ in 0..5000 {
            server.rename((ROOT, names[0]), (ROOT, names[1]), RenameFlags::empty(), root).unwrap();
            names.reverse();
            let known = node.names.read().any().cloned();
            let stands = server.vault.lookup(&server.vault.root(), names[0]).unwrap().0;
            if known.as_ref().map(|known| &known.stored) != Some(&stands) {
                done.store(true, Ordering::Relaxed);
                panic!("{known:?} is where the file stood");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    server.finish();
}

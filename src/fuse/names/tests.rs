use super::*;
use crate::{
    fuse::{
        caching::CacheMode, forgotten::Place, gate::Gate, inodes::ROOT, loops::Loops, permissions::Judge,
    },
    vault::{
        Vault,
        tests::{Fixture, new_vault, share},
    },
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

fn serve(vault: &Arc<Vault>) -> Arc<Server> {
    let loops = Loops::new(2, Box::new(|| false));
    let passage = (loops, Gate::new());
    Server::new(vault.clone(), false, Judge::Nobody, true, CacheMode::Auto, passage, 8).unwrap()
}

/// This is the state after `cp -al A B`, once the kernel has dropped `B` and its entries.
#[test]
fn a_node_is_reached_by_the_name_whose_directory_the_kernel_knows() {
    let vault = Fixture::new();
    let server = serve(&vault.vault);
    let new = Wanted { mode: 0o755, umask: 0, uid: 0, gid: 0 };
    let [one, other] = ["A", "B"].map(|name| server.mkdir(ROOT, OsStr::new(name), new).unwrap().id.number);
    let name = OsStr::new("f");
    let number = server.mknod(one, name, new, libc::S_IFREG, 0).unwrap().id.number;
    server.link(number, other, name).unwrap();
    server.inodes.forget(number, 1);
    server.inodes.forget(other, 1);
    server.dirs.drop_dir(other);
    server.getattr(number, None).unwrap();
    let unknown = server.inodes.forgotten.place(u64::MAX);
    assert_eq!(unknown, Place::Unknown, "nothing was searched");
    server.finish();
}

/// The kernel looks names up again after a minute, concurrently with any other operation on them.
#[test]
fn a_file_looked_up_while_it_is_renamed_is_known_by_its_new_name_alone() {
    let vault = Fixture::new();
    let server = serve(&vault.vault);
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

/// An NFS server may reuse the number of a directory that was removed while a client has it open.
#[test]
fn a_directory_that_another_machine_removed_does_not_stand_for_one_that_got_its_number() {
    let place = new_vault();
    let [one, other] = [(); 2].map(|()| share(place.path(), Duration::ZERO));
    let server = serve(&one);
    let new = Wanted { mode: 0o755, umask: 0, uid: 0, gid: 0 };
    let made = |name: &str| server.mkdir(ROOT, OsStr::new(name), new).unwrap().id.number;
    let (removed, number) = (made("removed"), made("made"));
    let open = server.dir(removed).unwrap();
    let root = other.root();
    other.rmdir(&root, &other.find(&root, OsStr::new("removed")).unwrap()).unwrap();
    server.dirs.put(number, open);
    server.mknod(number, OsStr::new("f"), new, libc::S_IFREG, 0).unwrap();
    server.finish();
}

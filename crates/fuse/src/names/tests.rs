use super::*;
use crate::{
    caching::CacheMode,
    fixture::{Fixture, new_vault, open_anchored, share},
    forgotten::Place,
    gate::Gate,
    inodes::ROOT,
    loops::Loops,
    owners::Owners,
    permission_policy::PermissionPolicy,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use vault::Vault;

fn serve(vault: &Arc<Vault>) -> Arc<Server> {
    let loops = Loops::new(2, Box::new(|| false));
    let passage = (loops, Gate::new());
    Server::new(
        vault.clone(),
        false,
        (PermissionPolicy::Nobody, Owners::default()),
        true,
        CacheMode::Auto,
        passage,
        8,
    )
    .unwrap()
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

fn is_stale<T>(done: Result<T>) -> bool {
    done.is_err_and(|e| matches!(e, Error::Store(e) if e.raw_os_error() == Some(libc::ESTALE)))
}

/// Path in the store of a node in the root.
fn stored_at(server: &Server, number: u64) -> PathBuf {
    let stored = server.inodes.get(number).unwrap().names.read().any().unwrap().stored.clone();
    server.vault.root().path_in_store(&stored.0)
}

/// Replaces a directory of files with a copy, as a program does that restores a backup.
fn replace_dir(path: &Path) {
    let copy = path.with_file_name(".copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::remove_dir_all(path).unwrap();
    fs::rename(copy, path).unwrap();
}

/// The kernel looks the directory up again only after ESTALE. After ENOENT it would treat an existing file
/// as missing for up to a minute. With an anchor, the missing names must not be reported as a rollback.
#[test]
fn every_request_in_a_directory_that_was_replaced_is_stale() {
    let new = Wanted { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let root = Caller { user: 0, group: 0, thread: 0 };
    let [f, g] = ["f", "g"].map(OsStr::new);
    let (place, plain) = (new_vault(), Fixture::new());
    let anchored = open_anchored(place.path(), &place.path().with_extension("anchor"));
    for vault in [&plain.vault, &anchored] {
        let server = serve(vault);
        let dir = server.mkdir(ROOT, OsStr::new("d"), Wanted { mode: 0o755, ..new }).unwrap().id.number;
        let file = server.mknod(dir, f, new, libc::S_IFREG, 0).unwrap().id.number;
        let open = server.dir(dir).unwrap();
        replace_dir(&stored_at(&server, dir));
        let requests: [(&str, &dyn Fn() -> bool); 11] = [
            ("lookup", &|| is_stale(server.lookup(dir, f))),
            ("create", &|| is_stale(server.create(dir, g, new, OpenFlags(libc::O_RDWR)))),
            ("mknod", &|| is_stale(server.mknod(dir, g, new, libc::S_IFREG, 0))),
            ("mkdir", &|| is_stale(server.mkdir(dir, g, new))),
            ("tmpfile", &|| is_stale(server.tmpfile(dir, new, OpenFlags(libc::O_RDWR)))),
            ("unlink", &|| is_stale(server.unlink(dir, f))),
            ("rename", &|| is_stale(server.rename((dir, f), (ROOT, g), RenameFlags::empty(), root))),
            ("opendir", &|| is_stale(server.opendir(dir))),
            ("getattr", &|| is_stale(server.getattr(dir, None))),
            ("open", &|| is_stale(server.open(file, OpenFlags(libc::O_RDONLY)))),
            ("getattr of a file", &|| is_stale(server.getattr(file, None))),
        ];
        for (what, request) in requests {
            server.dirs.put(dir, open.clone());
            assert!(request(), "{what}");
        }
        let found = server.lookup(ROOT, OsStr::new("d")).unwrap().unwrap();
        assert_ne!(found.id.number, dir);
        assert!(server.lookup(found.id.number, f).unwrap().is_some());
        server.finish();
    }
}

/// The kernel knows a directory by its former name for up to a minute.
#[test]
fn a_directory_that_was_renamed_in_the_store_stays_usable() {
    let vault = Fixture::new();
    let server = serve(&vault.vault);
    let new = Wanted { mode: 0o755, umask: 0, uid: 0, gid: 0 };
    let [dir, empty] = ["d", "e"].map(|name| server.mkdir(ROOT, OsStr::new(name), new).unwrap().id.number);
    let f = OsStr::new("f");
    server.mknod(dir, f, new, libc::S_IFREG, 0).unwrap();
    let other = stored_at(&server, empty);
    fs::remove_dir_all(&other).unwrap();
    fs::rename(stored_at(&server, dir), other).unwrap();
    assert!(server.lookup(dir, f).unwrap().is_some());
    server.mknod(dir, OsStr::new("g"), new, libc::S_IFREG, 0).unwrap();
    server.unlink(dir, f).unwrap();
    server.finish();
}

//! Processes that share a vault: requests that one refuses, and state that one leaves behind when it
//! vanishes.

use super::{
    super::{super::sharing::SharingRule, errno, node, raw_names, unlock},
    Broken, alone, break_rules, broken, check, fails_without, name, new_vault, share,
};
use crate::{
    Dir, Kind, OpenError, OpenFile, OpenOptions, RenameMode, SetAttr, StoredName, Target, Vault, attr::key,
    dir_lock::LockMode,
};
use content::{Error, LeaseRule};
use rustix::{fs::OFlags, io::Errno};
use std::{
    ffi::OsStr,
    sync::{atomic::Ordering, mpsc},
    thread,
    time::Duration,
};
use store::{BackingFile, DirFile};

#[test]
fn who_has_a_vault_alone_and_who_share_it_keep_each_other_out() {
    let dir = new_vault();
    let open =
        |sharing| Vault::open(dir.path(), &unlock(), OpenOptions { sharing, ..OpenOptions::default() });
    let shared = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    assert!(matches!(open(None), Err(OpenError::Shared)));
    shared.iter().for_each(|vault| vault.shut_down().unwrap());
    drop(shared);
    let one = alone(dir.path());
    assert!(matches!(open(Some(Duration::ZERO)), Err(OpenError::Locked)));
    one.shut_down().unwrap();
}

/// The state after another process was killed between the two steps of removing the directory.
fn a_directory_that_lost_its_id() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (stored, _) = one.mkdir(&one.root(), name("d"), node(0o755)).unwrap();
    let known = one.open_dir(&one.root(), &stored).unwrap();
    let id = dir.path().join(&stored.0).join("warpcrypt.dir");
    std::fs::remove_file(&id).unwrap();
    let without = other.open_dir(&other.root(), &stored).unwrap();
    assert!(other.list(&without).unwrap().is_empty());
    let made = other.mknod(&without, name("x"), node(0o644), Kind::File, 0);
    assert_eq!(errno(made), Some(Errno::NOENT));
    one.mknod(&known, name("x"), node(0o644), Kind::File, 0).unwrap();
    let again = other.open_dir(&other.root(), &stored).unwrap();
    assert_eq!(other.list(&again).unwrap().len(), 1, "it has its id again");
    assert_eq!(errno(other.rmdir_name(&other.root(), name("d"))), Some(Errno::NOTEMPTY));
    for vault in [one, other] {
        vault.shut_down().unwrap();
    }
    drop((known, without, again));
    let vault = alone(dir.path());
    check(&vault, &vault.root());
}

#[test]
fn whoever_knows_the_id_of_a_directory_puts_it_back() {
    a_directory_that_lost_its_id();
    assert!(fails_without(SharingRule::KeepIds, a_directory_that_lost_its_id));
}

fn a_directory_that_gets_a_name() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (stored, _) = one.mkdir(&one.root(), name("d"), node(0o755)).unwrap();
    let adding = one.lock_dir(&one.open_dir(&one.root(), &stored).unwrap(), false).unwrap();
    assert_eq!(errno(other.rmdir_name(&other.root(), name("d"))), Some(Errno::AGAIN));
    drop(adding);
    let adding = one.lock_dir(&one.root(), false).unwrap();
    let make = |name: &str| other.mknod(&other.root(), OsStr::new(name), node(0o644), Kind::File, 0);
    make("short").unwrap();
    assert_eq!(errno(make(&"l".repeat(200))), Some(Errno::AGAIN));
    drop(adding);
    make(&"l".repeat(200)).unwrap();
    other.rmdir_name(&other.root(), name("d")).unwrap();
}

#[test]
fn nobody_removes_a_directory_while_a_name_is_added() {
    a_directory_that_gets_a_name();
    assert!(fails_without(SharingRule::LockDirectory, a_directory_that_gets_a_name));
}

#[test]
fn who_waits_for_a_directory_holds_up_no_other() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::from_secs(20)), share(dir.path(), Duration::ZERO)];
    let root = other.root();
    let stored = ["d", "e"].map(|made| other.mkdir(&root, name(made), node(0o755)).unwrap().0);
    let waiting: [&(dyn Fn() -> content::Result<()> + Sync); 2] =
        [&|| one.rmdir_name(&one.root(), name("d")), &|| {
            let root = one.root();
            one.rename_name((&root, name("f")), (&root, name("e")), RenameMode::Replace).map(drop)
        }];
    other.mkdir(&root, name("f"), node(0o755)).unwrap();
    for (stored, wait) in stored.iter().zip(waiting) {
        let adding = other.lock_dir(&other.open_dir(&root, stored).unwrap(), false).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(wait);
            thread::sleep(Duration::from_millis(200)); // by now it holds everything but this directory's lock
            let free = one.long_names.try_lock().is_some();
            drop(adding);
            waits.join().unwrap().unwrap();
            assert!(free, "it waits for another machine with a lock of its own");
        });
    }
}

/// Another machine moves the directory just before the rename.
#[test]
fn a_directory_that_was_to_be_replaced_and_moved_keeps_its_id() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let root = one.root();
    let stored = ["d", "moving"].map(|made| one.mkdir(&root, name(made), node(0o755)).unwrap().0);
    let place = one.place(&root, name("d")).unwrap();
    let replaced = Dir::new(root.store.open_dir(&stored[0].0).unwrap(), None);
    let [locked] = one.lock_dirs([(&replaced, LockMode::ToGo)]).unwrap();
    one.take_away((&root, &place), (&replaced, locked), || {
        let root = other.root();
        other.rename_name((&root, name("d")), (&root, name("elsewhere")), RenameMode::Replace).unwrap();
        one.root().store.rename(&stored[1].0, &root.store, &stored[0].0)
    })
    .unwrap();
    let (elsewhere, _) = other.lookup(&other.root(), name("elsewhere")).unwrap();
    let moved = other.open_dir(&other.root(), &elsewhere).unwrap();
    other.mknod(&moved, name("x"), node(0o644), Kind::File, 0).unwrap();
    assert!(!raw_names(dir.path()).iter().any(|name| name.as_encoded_bytes().starts_with(b"warpcrypt.tmp.")));
}

#[test]
fn a_directory_without_its_id_can_be_removed() {
    let dir = new_vault();
    let vault = share(dir.path(), Duration::ZERO);
    let (stored, _) = vault.mkdir(&vault.root(), name("d"), node(0o755)).unwrap();
    std::fs::remove_file(dir.path().join(&stored.0).join("warpcrypt.dir")).unwrap();
    vault.rmdir_name(&vault.root(), name("d")).unwrap();
    assert!(!raw_names(dir.path()).contains(&stored.0));
}

/// Another machine would assume that a file in place is durable.
#[test]
fn a_sidecar_that_could_not_be_synced_is_not_in_place() {
    let dir = new_vault();
    let vault = share(dir.path(), Duration::ZERO);
    let make = || vault.mknod(&vault.root(), OsStr::new(&"l".repeat(200)), node(0o644), Kind::File, 0);
    let before = raw_names(dir.path());
    vault.pending.failing.store(1, Ordering::Relaxed);
    assert_eq!(errno(make()), Some(Errno::IO));
    assert_eq!(raw_names(dir.path()), before);
    make().unwrap();
    vault.shut_down().unwrap();
}

#[test]
fn attributes_are_seen_by_others_and_lists_are_refused() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    let seen = other.open_file(&other.root(), &stored, false).unwrap();
    one.set_xattr(Target::File(&open), name("user.a"), b"value", false, false).unwrap();
    assert_eq!(other.get_xattr(Target::File(&seen), name("user.a")).unwrap(), b"value");
    other.set_xattr(Target::File(&seen), name("user.b"), b"other", false, false).unwrap();
    assert_eq!(one.list_xattr(Target::File(&open)).unwrap().len(), 2);
    let large = one.set_xattr(Target::File(&open), name("user.c"), &[1; 65_530], false, false);
    assert!(matches!(&large, Err(Error::Store(_))), "{large:?}");
    assert!(!dir.path().join("warpcrypt.xattrs").exists());
}

/// Another machine gives the name to another node while this one looks up the node.
#[test]
fn an_attribute_is_not_bound_to_another_node_than_it_is_on() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (mine, theirs) = (one.root(), other.root());
    let make = |text| match text {
        "d" | "e" => other.mkdir(&theirs, name(text), node(0o755)).unwrap().0,
        text => other.mknod(&theirs, name(text), node(0o644), Kind::File, 0).unwrap().0,
    };
    for [from, to] in [["d", "e"], ["f", "g"]] {
        let [_, stored] = [make(from), make(to)];
        let target = Target::Entry(&mine, &stored);
        let found = target.node().unwrap();
        one.identity(&target, &found, true).unwrap().unwrap();
        other.rename_name((&theirs, name(from)), (&theirs, name(to)), RenameMode::Replace).unwrap();
        assert!(errno(one.identity(&target, &found, true)) == Some(Errno::STALE));
        one.set_xattr(target, name("user.a"), b"value", false, false).unwrap();
    }
}

/// The attribute changes without a lease.
#[test]
fn an_fsync_makes_an_attribute_durable_that_changed_alone() {
    let dir = new_vault();
    let vault = share(dir.path(), Duration::ZERO);
    let (_, _, open) = vault.create(&vault.root(), name("f"), node(0o644)).unwrap();
    vault.set_xattr(Target::File(&open), name("user.a"), b"value", false, false).unwrap();
    vault.sync_file(&open).unwrap();
    let life = vault.files().life.clone();
    life.end_after(0); // nothing reaches the store
    vault.sync_data(&open).unwrap();
    vault.sync_file(&open).unwrap_err();
    life.end_after(i64::MAX);
    vault.shut_down().unwrap();
}

/// A machine whose store is full finds a file that another left half-written. It may read the file, but
/// has no use for the lease.
#[test]
fn who_cannot_recover_a_file_leaves_it_to_others() {
    let dir = new_vault();
    let [one, full, third] = [(); 3].map(|()| share(dir.path(), Duration::ZERO));
    let (stored, _, made) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    made.file.write(0, &[1; 100_000]).unwrap();
    one.files().flush_at_close(&made).unwrap();
    made.file.write(0, &[2; 100_000]).unwrap();
    one.files().life.end_after(2);
    made.file.sync().unwrap_err();
    drop(made);
    one.files().end_flusher();
    drop(one); // its locks are released with it
    full.files().life.end_after(0);
    let open = full.open_file(&full.root(), &stored, true).unwrap();
    open.file.write(0, &[3; 10]).unwrap_err();
    let other = third.open_file(&third.root(), &stored, true).unwrap();
    other.file.write(0, &[4; 10]).unwrap();
    third.files().flush_at_close(&other).unwrap();
    full.files().life.end_after(i64::MAX);
    open.file.write(10, &[5; 10]).unwrap();
    let mut read = [0; 20];
    open.file.read(0, &mut read).unwrap();
    assert_eq!(read, [[4; 10], [5; 10]].concat()[..]);
}

#[test]
fn a_size_set_by_name_is_seen_at_once() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    open.file.write(0, &[7; 10_000]).unwrap();
    one.files().flush_at_close(&open).unwrap();
    let root = other.root();
    let size = crate::SetAttr { size: Some(5), ..Default::default() };
    other.set_attr(Target::Entry(&root, &stored), &size).unwrap();
    assert_eq!(one.stat(Target::File(&open)).unwrap().size, 5);
    let mut out = [0; 8];
    assert_eq!(open.file.read(0, &mut out).unwrap(), 5);
    assert_eq!(out, [7, 7, 7, 7, 7, 0, 0, 0]);
}

#[test]
fn of_two_that_rename_to_a_free_name_one_wins() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    for (vault, from) in [(&one, "a"), (&other, "b")] {
        vault.mknod(&vault.root(), name(from), node(0o644), Kind::File, 0).unwrap();
    }
    let rename = |vault: &Vault, from| {
        let root = vault.root();
        vault.rename_name((&root, name(from)), (&root, name("c")), RenameMode::NoReplace).map(drop)
    };
    rename(&one, "a").unwrap();
    assert_eq!(errno(rename(&other, "b")), Some(Errno::EXIST));
}

#[test]
fn a_locked_vault_takes_what_others_wrote_meanwhile() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    open.file.write(0, b"before").unwrap();
    one.put_away().unwrap();
    let theirs = other.open_file(&other.root(), &stored, true).unwrap();
    theirs.file.write(0, b"behind").unwrap();
    other.files().flush_at_close(&theirs).unwrap();
    let (_, _, master) = Vault::unlock_config(dir.path(), &unlock()).unwrap();
    one.bring_back(master.expose()).unwrap();
    let mut out = [0; 6];
    assert_eq!(open.file.read(0, &mut out).unwrap(), 6);
    assert_eq!(&out, b"behind");
}

/// Revokes the lock of `open`, and has `other` write to the file.
fn write_to_a_file_of_a_lost_lease(open: &OpenFile, other: &Vault, name: &StoredName) {
    open.file.write(0, b"mine").unwrap();
    open.file.sync().unwrap();
    open.file.write(4, b" again").unwrap();
    // In this test a descriptor that was open before still works, as on a store without fencing.
    open.store.unlock();
    let theirs = other.open_file(&other.root(), name, true).unwrap();
    theirs.file.write(0, b"theirs").unwrap();
    other.files().flush_at_close(&theirs).unwrap();
    other.files().release(theirs);
}

fn all_of(open: &OpenFile) -> Vec<u8> {
    let mut all = vec![0; 100];
    let len = open.file.read(0, &mut all).unwrap();
    all.truncate(len);
    all
}

fn what_is_opened_anew_is_what_others_wrote() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    one.files().end_flusher();
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    write_to_a_file_of_a_lost_lease(&open, &other, &stored);
    let anew = one.open_file(&one.root(), &stored, true).unwrap();
    assert_eq!(all_of(&anew), b"theirs");
    let failed = [
        open.file.write(0, b"x"),
        one.sync_file(&open),
        one.files().flush_at_close(&open),
        open.file.read(0, &mut [0]).map(drop),
    ];
    assert!(failed.into_iter().all(|done| errno(done) == Some(Errno::IO)));
    one.files().release(open);
    anew.file.write(0, b"O").unwrap();
    one.files().flush_at_close(&anew).unwrap();
    assert_eq!(all_of(&other.open_file(&other.root(), &stored, false).unwrap()), b"Oheirs");
    assert_eq!(errno(one.shut_down()), Some(Errno::IO), "something was lost");
}

#[test]
fn who_lost_a_lease_fails_and_opens_the_file_anew() {
    what_is_opened_anew_is_what_others_wrote();
    for rule in [
        LeaseRule::CheckLeaseAtOpen.into(),
        LeaseRule::FailWithoutLease.into(),
        LeaseRule::KnowOwnRecords.into(),
        Broken::from(SharingRule::OpenAnew),
    ] {
        assert!(fails_without(rule, what_is_opened_anew_is_what_others_wrote), "{rule:?}");
    }
}

#[test]
fn a_handle_of_a_lost_lease_does_not_cut_what_others_wrote() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    one.files().end_flusher();
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    write_to_a_file_of_a_lost_lease(&open, &other, &stored);
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    // The first attempt detects that the lease is lost.
    for _ in 0..2 {
        assert_eq!(errno(one.set_attr(Target::File(&open), &cut)), Some(Errno::IO));
    }
    let anew = other.open_file(&other.root(), &stored, false).unwrap();
    assert_eq!(all_of(&anew), b"theirs");
    // A change by name does not depend on the lost lease.
    one.set_attr(Target::Entry(&one.root(), &stored), &cut).unwrap();
    anew.file.lease().refresh().unwrap();
    assert_eq!(all_of(&anew), b"");
}

/// A process that is writing can continue, and so can one that only has the file open.
#[test]
fn a_store_that_has_no_lock_for_the_moment_takes_no_file_away() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::ZERO), share(dir.path(), Duration::ZERO)];
    [&one, &other].iter().for_each(|vault| vault.files().end_flusher());
    let (stored, _, open) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    open.file.write(0, b"first").unwrap();
    one.files().life.has_no_lock(1);
    assert_eq!(errno(one.open_file(&one.root(), &stored, true)), Some(Errno::NOLCK));
    one.files().flush_at_close(&open).unwrap();
    let theirs = other.open_file(&other.root(), &stored, true).unwrap();
    theirs.file.write(0, b"other").unwrap();
    theirs.file.sync().unwrap();
    one.files().life.has_no_lock(1);
    assert_eq!(errno(one.open_file(&one.root(), &stored, true)), Some(Errno::NOLCK));
    other.files().flush_at_close(&theirs).unwrap();
    assert_eq!(all_of(&open), b"other");
}

#[test]
fn a_lease_that_was_lost_and_is_free_goes_on() {
    let dir = new_vault();
    let vault = share(dir.path(), Duration::ZERO);
    vault.files().end_flusher();
    let (stored, _, open) = vault.create(&vault.root(), name("f"), node(0o644)).unwrap();
    for text in [&b"first"[..], b"second"] {
        open.file.write(0, text).unwrap();
        open.store.unlock();
        let again = vault.open_file(&vault.root(), &stored, true).unwrap();
        vault.sync_file(&again).unwrap();
        vault.files().release(again);
    }
    assert_eq!(all_of(&open), b"second");
    vault.files().flush_at_close(&open).unwrap();
    vault.shut_down().unwrap();
}

/// A process with a read-only descriptor examines a file that another left half-written; meanwhile, the
/// file is opened for writing.
fn a_lock_stays_while_the_file_is_opened_for_writing() {
    let dir = new_vault();
    let [one, other] = [share(dir.path(), Duration::from_secs(1)), share(dir.path(), Duration::ZERO)];
    let (stored, _, made) = one.create(&one.root(), name("f"), node(0o644)).unwrap();
    one.files().release(made);
    let root = one.root();
    let store = DirFile::quiet(root.store.open_file(&stored.0, OFlags::RDONLY).unwrap());
    let reading = one.files().open(key(&rustix::fs::fstat(&*store.fd()).unwrap()), store).unwrap();
    let writing = other.open_file(&other.root(), &stored, true).unwrap();
    writing.file.write(0, &[1; 100_000]).unwrap();
    other.files().life.end_after(2);
    writing.file.sync().unwrap_err();
    drop(writing);
    other.files().end_flusher();
    drop(other); // its locks are released with it
    // If another process could lock the stored file, it would continue from the present content.
    let others = DirFile::new(root.store.open_file(&stored.0, OFlags::RDWR).unwrap());
    let (found, looked) = mpsc::channel();
    let (rule, opener) = (broken(), one.clone());
    one.files().life.when_locked(move || {
        let opening = thread::spawn(move || {
            break_rules(rule);
            let opened = opener.open_file(&opener.root(), &stored, true).unwrap();
            opener.files().release(opened);
        });
        thread::sleep(Duration::from_millis(300)); // without the rule, the file is open by then
        found.send((!others.try_lock().unwrap(), opening)).unwrap();
    });
    reading.file.lease().refresh().unwrap();
    let (is_locked, opening) = looked.recv().unwrap();
    opening.join().unwrap();
    assert!(is_locked, "another may lock a file that is being looked at");
    assert!(reading.store.writable());
    one.files().release(reading);
    one.shut_down().unwrap();
}

#[test]
fn a_descriptor_with_a_lock_is_not_exchanged() {
    a_lock_stays_while_the_file_is_opened_for_writing();
    assert!(fails_without(
        LeaseRule::KeepLockedDescriptor,
        a_lock_stays_while_the_file_is_opened_for_writing
    ));
}

//! Syncs that fail, and recovery of the small files that names depend on.

use super::*;
use std::{
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    sync::atomic::Ordering,
};
use store::scarce;

/// Creates a directory and a long name. Returns the files that a failed sync may lose, the id file and
/// the sidecar, and the long name.
fn made(f: &Fixture) -> (PathBuf, PathBuf, String) {
    f.mkdir(&f.root(), "new");
    let long = "n".repeat(200);
    f.touch(&f.root(), &long).unwrap();
    let mut sidecar = f.stored(&f.root(), &long).into_os_string();
    sidecar.push(".name");
    (f.stored(&f.root(), "new").join("warpcrypt.dir"), sidecar.into(), long)
}

fn sync(f: &Fixture) -> Option<Errno> {
    errno(f.vault.sync_dir(&f.root()))
}

#[test]
fn a_failed_sync_is_told_once_and_what_it_lost_is_written_again() {
    let f = Fixture::new();
    let (id, sidecar, long) = made(&f);
    let good = [&id, &sidecar].map(|path| std::fs::read(path).unwrap());
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    assert_eq!(sync(&f), Some(Errno::IO));
    // Act like a store that drops data that it could not write.
    for path in [&id, &sidecar] {
        std::fs::write(path, b"").unwrap();
    }
    assert_eq!(sync(&f), None);
    assert_eq!([&id, &sidecar].map(|path| std::fs::read(path).unwrap()), good);
    assert_eq!(sync(&f), None);
    let mut names = [OsString::from("new"), long.into()];
    names.sort();
    let f = f.reopen();
    assert_eq!(f.names(&f.root()), names);
}

/// Names are created after a failed sync of the whole store, as if they were created during it.
#[test]
fn what_a_failed_sync_of_all_lost_is_written_again() {
    let f = Fixture::new();
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    assert_eq!(errno(f.vault.sync_store()), Some(Errno::IO));
    let (id, sidecar, _) = made(&f);
    let good = [&id, &sidecar].map(|path| std::fs::read(path).unwrap());
    for path in [&id, &sidecar] {
        std::fs::write(path, b"").unwrap();
    }
    assert_eq!(sync(&f), None);
    assert_eq!([&id, &sidecar].map(|path| std::fs::read(path).unwrap()), good);
}

#[test]
fn a_sync_that_goes_on_failing_is_told_each_time() {
    let f = Fixture::new();
    made(&f);
    f.vault.pending.failing.store(3, Ordering::Relaxed);
    let told: Vec<_> = (0..4).map(|_| sync(&f)).collect();
    assert_eq!(told, [Some(Errno::IO), Some(Errno::IO), Some(Errno::IO), None]);
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    f.mkdir(&f.root(), "last");
    f.vault.shut_down().unwrap();
}

#[test]
fn what_was_removed_after_a_failed_sync_stays_removed() {
    let f = Fixture::new();
    let (id, sidecar, long) = made(&f);
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    assert_eq!(sync(&f), Some(Errno::IO));
    f.vault.unlink_name(&f.root(), OsStr::new(&long)).unwrap();
    f.vault.rmdir_name(&f.root(), OsStr::new("new")).unwrap();
    assert_eq!(sync(&f), None);
    assert!(!sidecar.exists() && !id.exists());
}

/// The store cannot be synced as a whole.
#[test]
fn what_a_killed_process_left_is_made_durable_before_it_is_relied_on() {
    scarce::like_fuse(true);
    let f = Fixture::new();
    let long = ["d", "e", "f", "g"].map(|letter| letter.repeat(200));
    for name in ["short", &long[0]] {
        f.touch(&f.mkdir(&f.root(), name), "file").unwrap();
    }
    long[1..].iter().for_each(|name| f.touch(&f.root(), name).unwrap());
    // The kill happened before the sidecar was removed.
    std::fs::remove_file(f.stored(&f.root(), &long[3])).unwrap();
    let Fixture { vault, dir } = f;
    drop(vault);
    let f = Fixture { vault: open(dir.path(), false), dir };
    let (root, v) = (f.root(), &f.vault);
    let open_file = |dir: &Dir, name: &str| {
        let (stored, _) = v.lookup(dir, OsStr::new(name)).unwrap();
        v.open_file(dir, &stored, true).unwrap()
    };
    let file_in = |name: &str| {
        let (stored, _) = v.lookup(&root, OsStr::new(name)).unwrap();
        open_file(&v.open_dir(&root, &stored).unwrap(), "file")
    };
    // Whether `sync` makes more durable than its own target.
    let more = |sync: &dyn Fn() -> Result<()>| {
        v.pending.failing.store(1, Ordering::Relaxed);
        let failed = errno(sync()).is_some();
        v.pending.failing.store(0, Ordering::Relaxed);
        sync().unwrap();
        failed
    };
    for name in ["short", &long[0]] {
        let file = file_in(name);
        assert!(more(&|| v.sync_file(&file)), "the directory's id");
        let again = file_in(name);
        assert!(!more(&|| v.sync_file(&again)), "once");
    }
    let file = open_file(&root, &long[1]);
    assert!(more(&|| v.sync_data(&file)), "the file's sidecar");
    f.touch(&root, &long[3]).unwrap();
    assert!(more(&|| v.sync_data(&file)), "a sidecar that was there");
    assert!(more(&|| v.sync_dir(&root)), "the sidecars in a directory");
    assert!(!more(&|| v.sync_dir(&root)), "once");
    drop(file);
    v.shut_down().unwrap();
    scarce::like_fuse(false);
}

#[test]
fn names_change_while_a_failed_sync_is_mended() {
    let f = Fixture::new();
    let (_, _, long) = made(&f);
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    assert_eq!(sync(&f), Some(Errno::IO));
    let (root, new) = (f.root(), "m".repeat(200));
    let moved =
        f.vault.rename_name((&root, OsStr::new(&long)), (&root, OsStr::new(&new)), RenameMode::NoReplace);
    let stored = moved.unwrap().0;
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    f.mkdir(&root, "another");
    assert_eq!(sync(&f), Some(Errno::IO));
    let target = crate::Target::Entry(&root, &stored);
    f.vault.link(target, &root, OsStr::new(&long)).unwrap();
    assert_eq!(sync(&f), None);
}

#[test]
fn more_than_are_remembered_are_found_again() {
    let f = Fixture::new();
    let (first, sidecar, _) = made(&f);
    let deep = f.mkdir(&f.mkdir(&f.root(), "deep"), "deeper");
    let inner = f.stored(
        &f.vault.open_dir(&f.root(), &f.vault.lookup(&f.root(), OsStr::new("deep")).unwrap().0).unwrap(),
        "deeper",
    );
    for i in 0..600 {
        f.mkdir(&deep, &format!("{i}"));
    }
    f.vault.pending.failing.store(2, Ordering::Relaxed);
    assert_eq!(sync(&f), Some(Errno::IO));
    assert_eq!(sync(&f), Some(Errno::IO), "written again, but not durable");
    let changed = |path: &Path| path.metadata().map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
    let small = [first, sidecar, inner.join("warpcrypt.dir")];
    let before: Vec<_> = small.iter().map(|path| changed(path)).collect();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(sync(&f), None);
    assert!(small.iter().zip(before).all(|(path, before)| changed(path) != before));
    // A file that can no longer be recovered is reported once.
    f.vault.pending.failing.store(1, Ordering::Relaxed);
    for i in 600..1200 {
        f.mkdir(&deep, &format!("{i}"));
    }
    assert_eq!(sync(&f), Some(Errno::IO));
    std::fs::write(f.stored(&deep, "700").join("warpcrypt.dir"), b"").unwrap();
    assert_eq!(sync(&f), Some(Errno::IO));
    assert_eq!(sync(&f), None);
    assert!(raw_names(&inner).iter().all(|name| !name.as_bytes().starts_with(b"warpcrypt.tmp.")));
}

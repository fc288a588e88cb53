//! Repairs of names and ids: nothing is lost in the process, and nothing that may be intact is repaired.

use super::*;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const LONG: usize = 200;

/// The content of each file that was set aside.
fn aside(f: &Fixture) -> Vec<Vec<u8>> {
    let in_root = fs::read_dir(f.dir.path()).unwrap().map(|entry| entry.unwrap());
    let folders = in_root.filter(|entry| entry.file_name().to_string_lossy().starts_with("warpcrypt.aside."));
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap());
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_directory_has_an_id_at_any_moment_of_its_repair() {
    let f = Fixture::new();
    let dir = f.mkdir(&f.root(), "dir");
    f.touch(&dir, "file").unwrap();
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("dir")).unwrap();
    let id = f.stored(&f.root(), "dir").join("warpcrypt.dir");
    let done = AtomicBool::new(false);
    let was_missing = || {
        let mut missing = false;
        while !done.load(Ordering::Relaxed) {
            missing |= !id.exists();
        }
        missing
    };
    let missing = thread::scope(|scope| {
        let watching = scope.spawn(was_missing);
        for _ in 0..50 {
            let mut content = fs::read(&id).unwrap();
            content[20] ^= 1;
            let damaged = content.clone();
            fs::write(id.with_extension("new"), content).unwrap();
            fs::rename(id.with_extension("new"), &id).unwrap();
            f.vault.repair_dir_id(&f.root(), &stored, &f.vault.aside().unwrap()).unwrap();
            assert!(aside(&f).contains(&damaged));
        }
        done.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    });
    assert!(!missing);
    let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
    assert_eq!(f.names(&dir), ["file"]);
}

/// Root repairs a vault that a user mounts next.
#[test]
fn a_repaired_id_is_of_use_to_whoever_may_enter_the_directory() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "dir");
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("dir")).unwrap();
    let dir = f.stored(&f.root(), "dir");
    let owner = if rustix::process::geteuid().is_root() { 1000 } else { rustix::process::geteuid().as_raw() };
    chown(&dir, Some(owner), None).unwrap();
    fs::remove_file(dir.join("warpcrypt.dir")).unwrap();
    f.vault.repair_dir_id(&f.root(), &stored, &f.vault.aside().unwrap()).unwrap();
    let id = fs::metadata(dir.join("warpcrypt.dir")).unwrap();
    assert_eq!((id.uid(), id.permissions().mode() & 0o777), (owner, 0o644));
}

#[test]
fn a_name_is_damaged_without_its_sidecar_but_not_if_that_cannot_be_read() {
    let f = Fixture::new();
    let root = f.root();
    f.touch(&root, "l".repeat(LONG)).unwrap();
    let file = f.stored(&root, "l".repeat(LONG));
    let sidecar = PathBuf::from(file.display().to_string() + ".name");
    let content = fs::read(&sidecar).unwrap();
    fs::remove_file(&sidecar).unwrap();
    // A failing disk cannot be simulated here, but a directory cannot be read as a file either.
    fs::create_dir(&sidecar).unwrap();
    let contents = f.vault.inspect_dir(&root).unwrap();
    assert_eq!((contents.unread.len(), contents.damaged.len(), contents.entries.len()), (1, 0, 0));
    fs::remove_dir(&sidecar).unwrap();
    let contents = f.vault.inspect_dir(&root).unwrap();
    assert_eq!((contents.unread.len(), contents.damaged.len(), contents.entries.len()), (0, 1, 0));
    // The stored name is recorded: with the sidecar, the file gets its name back.
    let stored = file.file_name().unwrap();
    let new = f.vault.rename_nameless(&root, stored, &f.vault.aside().unwrap()).unwrap();
    let noted = [file.as_os_str(), OsStr::new("\0"), &new.stored.0].map(OsStr::as_encoded_bytes).concat();
    assert_eq!(aside(&f), [noted]);
    fs::rename(f.dir.path().join(&new.stored.0), &file).unwrap();
    fs::write(&sidecar, content).unwrap();
    assert_eq!(f.names(&root), [OsString::from("l".repeat(LONG))]);
}

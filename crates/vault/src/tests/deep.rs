//! A tree far deeper than the stack and the limit on open files: commands that walk a vault must not
//! abort.

use super::*;
use crate::{AnchorUse, Rotated};
use format::{dir_id::DirId, name::DIR_ID_NAME};
use rustix::fs::FileType;
use store::{BackingFile, DirFile, StoreDir};

/// Distance in levels between second directories, to which a walk has to climb back.
const FORKS: usize = 1000;
/// Maximum number of open descriptors, including those of other tests in this process.
const OPEN_MAX: usize = 5000;

/// The store. It is removed level by level, because the standard library would recurse.
struct Deep(TempDir);

impl Drop for Deep {
    fn drop(&mut self) {
        let store = StoreDir::open_path(self.0.path()).unwrap();
        let [top, up] = ["top", "up"].map(OsStr::new);
        let mut next: Vec<OsString> = directories(&store).collect();
        while let Some(name) = next.pop() {
            store.rename(&name, &store, top).unwrap();
            let dir = store.open_dir(top).unwrap();
            for entry in dir.list().unwrap() {
                if entry.kind == FileType::Directory {
                    let name = OsString::from(format!("{}{}", up.display(), next.len()));
                    dir.rename(&entry.name, &store, &name).unwrap();
                    next.push(name);
                } else {
                    dir.unlink(&entry.name).unwrap();
                }
            }
            store.rmdir(top).unwrap();
        }
    }
}

fn directories(store: &StoreDir) -> impl Iterator<Item = OsString> {
    store.list().unwrap().into_iter().filter(|e| e.kind == FileType::Directory).map(|entry| entry.name)
}

/// Creates a directory with the same result as a mount. `Vault::mkdir` moves it in from the root, for
/// which the kernel checks every level.
fn dig(vault: &Vault, parent: &Dir, name: &str) -> Arc<Dir> {
    let stored = vault.place(parent, OsStr::new(name)).unwrap().stored;
    parent.store.mkdir(&stored.0, 0o755).unwrap();
    let dir = Dir::new(parent.store.open_dir(&stored.0).unwrap(), None);
    let id = DirId::random().unwrap();
    let file = DirFile::new(dir.store.create_file(OsStr::new(DIR_ID_NAME), 0o644).unwrap());
    file.write_at(&vault.keys().dir_ids.encode(&id), 0).unwrap();
    Arc::new(Dir { id: Some(id), ..dir })
}

#[test]
fn a_tree_deeper_than_the_stack_is_walked() {
    // A thread's stack of 2 MiB has room for some 6,000 frames of a recursive walk.
    let levels = crate::cases(8000, 100_000) as usize;
    let deep = Deep(tempfile::tempdir().unwrap());
    let path = deep.0.path();
    Vault::init(path, settings(NameMode::Encrypted), &slot()).unwrap();
    let vault = open(path, false);
    let mut at = vault.root();
    for level in 0..levels {
        if level % FORKS == 0 {
            dig(&vault, &at, "beside");
        }
        at = dig(&vault, &at, "below");
    }
    drop(at);
    vault.shut_down().unwrap();
    drop(vault);

    let all = levels + levels / FORKS;
    let anchor = tempfile::tempdir().unwrap();
    let used = AnchorUse { file: anchor.path().join("anchor"), accept: true };
    let options = OpenOptions { anchor: Some(used), ..OpenOptions::default() };
    let vault = Vault::open(path, &unlock(), options).unwrap();
    let mut taken = 0;
    vault
        .take_into_anchor(&mut || {
            taken += 1;
            few_are_open(taken)
        })
        .unwrap();
    assert_eq!(taken, all);
    vault.shut_down().unwrap();
    drop(vault);

    let (rotated, _) = rotate::list_at(path);
    Vault::lock_config(path).unwrap().write(path, &rotated).unwrap();
    let vault = open(path, false);
    let mut seen = 0;
    let done = vault
        .rotate(&mut |_| {
            seen += 1;
            few_are_open(seen)
        })
        .unwrap();
    assert_eq!((done, seen % (all + 1)), (Rotated::Whole { aside: 0 }, 0));
    vault.ownerless_lists().unwrap();
    vault.shut_down().unwrap();
}

/// Checks now and then that few descriptors are open. Returns true, so that the walk continues.
fn few_are_open(step: usize) -> bool {
    if step.is_multiple_of(1000) {
        assert!(std::fs::read_dir("/proc/self/fd").unwrap().count() < OPEN_MAX);
    }
    true
}

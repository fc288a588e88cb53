//! Running out of descriptors: each open that an operation makes in the store fails, because too many
//! are in use, and then everything works again. Also a failing store: from each change of a name on, all
//! further changes of that operation are refused. An operation that fails has changed nothing, reports
//! the reason, and works when it is repeated.

use super::*;
use crate::{OpenError, OpenFile, SetAttr, Target};
use std::collections::BTreeMap;
use store::scarce;

type Act = fn(&Fixture) -> Result<()>;

const ACTS: [(&str, Act); 26] = [
    ("mkdir", |f| f.vault.mkdir(&f.root(), OsStr::new("new"), node(0o755)).map(drop)),
    ("mkdir, long", |f| f.vault.mkdir(&f.root(), &long('n'), node(0o755)).map(drop)),
    ("create", |f| {
        let (_, _, file) = f.vault.create(&f.root(), OsStr::new("new"), node(0o644))?;
        file.file.write(0, &[3; 5000])
    }),
    ("create, long", |f| f.vault.create(&f.root(), &long('n'), node(0o644)).map(drop)),
    ("create, inside", |f| f.vault.create(&*dir(f)?, OsStr::new("new"), node(0o644)).map(drop)),
    ("mknod", |f| f.touch(&*dir(f)?, "new")),
    ("symlink", |f| f.vault.symlink(&f.root(), OsStr::new("new"), OsStr::new("to"), node(0o777)).map(drop)),
    ("link", |f| at(f, "file", |target| f.vault.link(target, &*dir(f)?, &long('n')).map(drop))),
    ("unlink", |f| f.vault.unlink_name(&f.root(), OsStr::new("file")).map(drop)),
    ("unlink, long", |f| f.vault.unlink_name(&f.root(), &long('l')).map(drop)),
    ("rmdir", |f| f.vault.rmdir_name(&f.root(), OsStr::new("empty"))),
    ("rename", |f| rename(f, "file", "other")),
    ("rename, replacing", |f| rename(f, "file", "kept")),
    ("rename, directory", |f| rename(f, "dir", "empty")),
    ("rename, long", |f| {
        let names = ((&*f.root(), &*long('l')), (&*dir(f)?, &*long('n')));
        f.vault.rename_name(names.0, names.1, RenameMode::Replace).map(drop)
    }),
    ("exchange", |f| {
        let names = ((&*f.root(), &*long('l')), (&*dir(f)?, OsStr::new("inner")));
        f.vault.rename_name(names.0, names.1, RenameMode::Exchange).map(drop)
    }),
    ("write", |f| opened(f, "file")?.file.write(2000, &[4; 9000])),
    ("fsync", |f| f.vault.sync_file(&*opened(f, "kept")?)),
    ("resize", |f| {
        let changes = SetAttr { mode: Some(0o600), size: Some(100), ..SetAttr::default() };
        at(f, "file", |target| f.vault.set_attr(target, &changes).map(drop))
    }),
    ("set an attribute", |f| {
        at(f, "file", |target| f.vault.set_xattr(target, OsStr::new("user.y"), b"value", false, false))
    }),
    ("set a long attribute", |f| {
        let value = [7; 60_000];
        at(f, "file", |target| f.vault.set_xattr(target, OsStr::new("user.y"), &value, false, false))
    }),
    ("remove an attribute", |f| at(f, "file", |target| f.vault.remove_xattr(target, OsStr::new("user.x")))),
    ("look at all", |f| tree(f).map(drop)),
    ("fsync of a directory", |f| f.vault.sync_dir(&*dir(f)?)),
    ("sync", |f| f.vault.sync_store().map(drop)),
    ("shut down", |f| f.vault.shut_down()),
];

fn long(letter: char) -> OsString {
    letter.to_string().repeat(200).into()
}

fn dir(f: &Fixture) -> Result<Arc<Dir>> {
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("dir"))?;
    f.vault.open_dir(&f.root(), &stored)
}

fn at<T>(f: &Fixture, name: &str, act: impl FnOnce(Target) -> Result<T>) -> Result<T> {
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new(name))?;
    act(Target::Entry(&f.root(), &stored))
}

fn opened(f: &Fixture, name: &str) -> Result<Arc<OpenFile>> {
    let (stored, _) = f.vault.lookup(&f.root(), OsStr::new(name))?;
    f.vault.open_file(&f.root(), &stored, true)
}

fn rename(f: &Fixture, from: &str, to: &str) -> Result<()> {
    let root = f.root();
    let names = ((&*root, OsStr::new(from)), (&*root, OsStr::new(to)));
    f.vault.rename_name(names.0, names.1, RenameMode::Replace).map(drop)
}

/// A vault that was just mounted. The last of its names are not durable yet, and a file has bytes that
/// are not stored.
fn prepared() -> (Fixture, Arc<OpenFile>) {
    let f = Fixture::new();
    let root = f.root();
    let inside = f.mkdir(&root, "dir");
    f.mkdir(&root, "empty");
    for (dir, name) in
        [(&root, "file".into()), (&root, "kept".into()), (&root, long('l')), (&inside, "inner".into())]
    {
        let (_, _, file) = f.vault.create(dir, &name, node(0o644)).unwrap();
        file.file.write(0, &vec![name.len() as u8; 7000]).unwrap();
    }
    f.vault.symlink(&root, OsStr::new("symlink"), OsStr::new("somewhere"), node(0o777)).unwrap();
    at(&f, "file", |file| f.vault.set_xattr(file, OsStr::new("user.x"), b"x", false, false)).unwrap();
    let f = f.reopen();
    f.mkdir(&f.root(), "last");
    f.touch(&f.root(), long('t')).unwrap();
    let file = opened(&f, "kept").unwrap();
    file.file.write(3000, b"later").unwrap();
    (f, file)
}

/// Type, attributes and content of the node at each path.
type Tree = BTreeMap<PathBuf, String>;

fn tree(f: &Fixture) -> Result<Tree> {
    let mut all = Tree::new();
    walk(f, &f.root(), Path::new(""), &mut all)?;
    Ok(all)
}

fn walk(f: &Fixture, dir: &Arc<Dir>, path: &Path, all: &mut Tree) -> Result<()> {
    for entry in f.vault.list(dir)? {
        let (stored, stat) = f.vault.lookup(dir, &entry.name)?;
        let path = path.join(&entry.name);
        let holds = match stat.kind {
            Kind::Dir => {
                walk(f, &f.vault.open_dir(dir, &stored)?, &path, all)?;
                Vec::new()
            }
            Kind::Symlink => f.vault.readlink(dir, &stored)?.into_encoded_bytes(),
            _ => {
                let file = f.vault.open_file(dir, &stored, false)?;
                let mut bytes = vec![0; file.file.size() as usize];
                file.file.read(0, &mut bytes)?;
                bytes
            }
        };
        let attributes = f.vault.list_xattr(Target::Entry(dir, &stored))?;
        let holds = String::from_utf8_lossy(&holds).into_owned();
        all.insert(path, format!("{:?} {:o} {} {attributes:?} {holds}", stat.kind, stat.mode, stat.nlink));
    }
    Ok(())
}

/// Runs `act` on a new vault after `fail` has planned a failure. Returns false if the operation made too
/// few calls to reach it.
fn meets(name: &str, act: Act, fail: impl FnOnce(), error: Errno, wrong: &mut Vec<String>) -> bool {
    let (f, file) = prepared();
    let before = tree(&f).unwrap();
    // Open this directory in advance, because the kernel keeps its directories open.
    let stored = f.vault.lookup(&f.root(), OsStr::new("empty")).unwrap().0;
    let empty = f.vault.open_dir(&f.root(), &stored).unwrap();
    fail();
    let done = act(&f);
    let failed = scarce::end();
    let mut note = |what: String| wrong.push(format!("{name}, {error:?}: {what}"));
    let added = failed && f.touch(&empty, "added").is_ok();
    if added {
        let all = tree(&f).unwrap();
        if !all.keys().any(|path| path.ends_with("added")) {
            note("a name is lost that was made afterwards".into());
        }
        f.vault.unlink_name(&empty, OsStr::new("added")).unwrap();
    }
    if !failed {
        done.unwrap();
    } else if let Err(e) = done {
        let text = e.to_string();
        if errno::<()>(Err(e)) != Some(error) {
            note(format!("fails with {text}"));
        }
        let left = tree(&f).unwrap();
        if let Err(e) = act(&f) {
            note(format!("fails again: {e}"));
        }
        // The operation may have been done without being durable.
        let changed = |(path, _): &(&PathBuf, &String)| before.get(*path) != left.get(*path);
        if left != before && left != tree(&f).unwrap() {
            let paths = Vec::from_iter(left.iter().filter(changed).map(|(path, _)| path));
            note(format!("fails, and leaves something else at {paths:?}"));
        }
    }
    let after = tree(&f).unwrap();
    if let Err(e) = f.vault.sync_file(&file) {
        note(format!("another file is not synced afterwards: {e}"));
    }
    drop(file);
    if tree(&f.reopen()).unwrap() != after {
        note("mounted again, something is different".into());
    }
    failed
}

#[test]
fn each_open_of_an_operation_finds_no_descriptor() {
    let mut wrong = Vec::new();
    for (name, act) in ACTS {
        let fails = |nth: &u64| {
            let error = [Errno::MFILE, Errno::NFILE][(nth % 2) as usize];
            let (name, fail) = (format!("{name}, open {nth}"), || scarce::fail_open(*nth, error));
            meets(&name, act, fail, error, &mut wrong)
        };
        let opens = (0..).take_while(fails).count();
        println!("{name}: {opens} opens");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn from_each_change_of_a_name_on_all_are_refused() {
    let mut wrong = Vec::new();
    for (name, act) in ACTS {
        let fails = |nth: &u64| {
            let error = [Errno::IO, Errno::NOSPC][(nth % 2) as usize];
            let (name, fail) = (format!("{name}, change {nth}"), || scarce::fail_changes(*nth, error));
            meets(&name, act, fail, error, &mut wrong)
        };
        let changes = (0..).take_while(fails).count();
        println!("{name}: {changes} changes");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_open_of_an_unlocking_finds_no_descriptor() {
    let (f, file) = prepared();
    let before = tree(&f).unwrap();
    drop(file);
    let dir = f.close();
    for nth in 0.. {
        scarce::fail_open(nth, Errno::MFILE);
        let vault = Vault::open(dir.path(), &unlock(), OpenOptions::default());
        if !scarce::end() {
            assert!(nth > 2, "{nth} opens");
            break;
        }
        match vault {
            Ok(vault) => vault.shut_down().unwrap(),
            Err(OpenError::Store { source, .. }) => {
                assert_eq!(Errno::from_io_error(&source), Some(Errno::MFILE), "open {nth}");
            }
            Err(e) => panic!("open {nth}: {e}"),
        }
    }
    let f = Fixture { vault: open(dir.path(), false), dir };
    assert_eq!(tree(&f).unwrap(), before);
}

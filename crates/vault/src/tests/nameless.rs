//! Files that are created without a name.

use super::*;
use crate::{OpenFile, Target};

fn make(f: &Fixture, content: &[u8]) -> Arc<OpenFile> {
    let (there, file) = f.vault.create_nameless(&f.root(), node(0o640)).unwrap();
    assert_eq!((there.stat.nlink, there.stat.mode, there.inode()), (0, 0o640, file.key));
    file.file.write(0, content).unwrap();
    file
}

fn content(f: &Fixture, dir: &Dir, name: &str) -> Vec<u8> {
    let (stored, stat) = f.vault.lookup(dir, OsStr::new(name)).unwrap();
    let open = f.vault.open_file(dir, &stored, false).unwrap();
    let mut content = vec![0; stat.size as usize];
    assert_eq!(open.file.read(0, &mut content).unwrap(), content.len());
    content
}

#[test]
fn one_that_gets_no_name_leaves_nothing() {
    let f = Fixture::new();
    let before = raw_names(f.dir.path());
    let file = make(&f, &[7; 100_000]);
    f.vault.sync_file(&file).unwrap();
    assert_eq!(f.vault.stat(Target::File(&file)).unwrap().size, 100_000);
    assert_eq!(raw_names(f.dir.path()), before);
    let key = file.key;
    f.vault.files().release(file);
    assert!(f.vault.files().get(key).is_none(), "nobody waits until it is stored");
    assert_eq!(raw_names(f.dir.path()), before);
}

#[test]
fn one_that_is_linked_keeps_what_was_and_is_written() {
    for (synced, name) in [(false, "short".to_owned()), (true, "l".repeat(200))] {
        let f = Fixture::new();
        let dir = f.mkdir(&f.root(), "dir");
        f.touch(&dir, "taken").unwrap();
        let file = make(&f, b"before");
        if synced {
            f.vault.sync_file(&file).unwrap();
        }
        let target = Target::File(&file);
        assert_eq!(errno(f.vault.link(target, &dir, OsStr::new("taken"))), Some(Errno::EXIST));
        let (_, stat) = f.vault.link(target, &dir, OsStr::new(&name)).unwrap();
        assert_eq!((stat.nlink, stat.size), (1, 6));
        file.file.write(6, b" and after").unwrap();
        f.vault.files().release(file);
        assert_eq!(content(&f, &dir, &name), b"before and after");
        let f = f.reopen();
        let (stored, _) = f.vault.lookup(&f.root(), OsStr::new("dir")).unwrap();
        let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
        assert_eq!(content(&f, &dir, &name), b"before and after");
    }
}

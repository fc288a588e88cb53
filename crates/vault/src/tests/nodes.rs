use super::*;
use crate::{RenameMode, SetAttr, SetTime, Target};
use content::Time;

#[test]
fn symlinks_keep_any_target_and_tell_its_length() {
    let f = Fixture::new();
    let root = f.root();
    for (i, target) in
        ["x", "../../etc/passwd", "/абс/путь", &"t".repeat(3039), &"t".repeat(3040), &"t".repeat(4095)]
            .iter()
            .enumerate()
    {
        let name = format!("link{i}");
        let (stored, stat) =
            f.vault.symlink(&root, OsStr::new(&name), OsStr::new(target), node(0o777)).unwrap();
        assert_eq!((stat.kind, stat.size), (Kind::Symlink, target.len() as u64));
        let found = f.vault.lookup(&root, OsStr::new(&name)).unwrap().1;
        assert_eq!(found.size, target.len() as u64);
        assert_eq!(f.vault.readlink(&root, &stored).unwrap(), OsStr::new(target));
        let raw = std::fs::read_link(f.stored(&root, &name)).unwrap();
        assert_ne!(raw.as_os_str(), OsStr::new(target));
    }
    let too_long = f.vault.symlink(&root, OsStr::new("l"), OsStr::new(&"t".repeat(4096)), node(0o777));
    assert!(matches!(too_long, Err(Error::NameTooLong)));
    f.touch(&root, "file").unwrap();
    let stored = f.vault.lookup(&root, OsStr::new("file")).unwrap().0;
    assert_eq!(errno(f.vault.readlink(&root, &stored)), Some(Errno::INVAL));
}

/// Paths of the files that hold long targets.
fn targets(f: &Fixture) -> Vec<PathBuf> {
    let dir = std::fs::read_dir(f.dir.path().join("warpcrypt.links")).unwrap();
    dir.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_long_target_goes_with_the_last_name_of_its_link() {
    let f = Fixture::new();
    let root = f.root();
    let make = |name: &str| {
        let target = name.repeat(4000 / name.len());
        f.vault.symlink(&root, OsStr::new(name), OsStr::new(&target), node(0o777)).unwrap().0
    };
    let stored = make("one");
    f.vault.link(Target::Entry(&root, &stored), &root, OsStr::new("again")).unwrap();
    let replace = |from: &str, to: &str, mode| {
        f.vault.rename_name((&root, OsStr::new(from)), (&root, OsStr::new(to)), mode).unwrap();
    };
    replace("one", "moved", RenameMode::NoReplace);
    assert_eq!(targets(&f).len(), 1);
    f.vault.unlink_name(&root, OsStr::new("moved")).unwrap();
    assert_eq!(targets(&f).len(), 1, "another name leads to it");
    let again = f.vault.lookup(&root, OsStr::new("again")).unwrap().0;
    assert!(f.vault.readlink(&root, &again).unwrap().to_string_lossy().starts_with("oneone"));
    make("two");
    assert_eq!(targets(&f).len(), 2);
    replace("two", "again", RenameMode::Exchange);
    assert_eq!(targets(&f).len(), 2);
    replace("two", "again", RenameMode::Replace);
    assert_eq!(targets(&f).len(), 1, "one was replaced");
    let left = f.vault.lookup(&root, OsStr::new("again")).unwrap().0;
    assert!(f.vault.readlink(&root, &left).unwrap().to_string_lossy().starts_with("oneone"));
    // A link that cannot be created leaves no target behind.
    let taken = f.vault.symlink(&root, OsStr::new("again"), OsStr::new(&"x".repeat(4000)), node(0o777));
    assert_eq!(errno(taken), Some(Errno::EXIST));
    assert_eq!(targets(&f).len(), 1);
    assert!(f.vault.unlinked_targets().unwrap().unwrap().1.is_empty());
    f.vault.unlink_name(&root, OsStr::new("again")).unwrap();
    assert_eq!(targets(&f).len(), 0);
    assert_eq!(f.names(&root), Vec::<OsString>::new());
}

#[test]
fn a_long_target_that_is_missing_changed_or_anothers_is_damage() {
    let f = Fixture::new();
    let root = f.root();
    let make = |name: &str| {
        let made = f.vault.symlink(&root, OsStr::new(name), OsStr::new(&name.repeat(4000)), node(0o777));
        (made.unwrap().0, targets(&f))
    };
    let (a, before) = make("a");
    let (b, both) = make("b");
    let file_a = &before[0];
    let file_b = both.iter().find(|file| *file != file_a).unwrap();
    let read = |link| f.vault.readlink(&root, link);
    std::fs::copy(file_a, file_b).unwrap();
    assert!(matches!(read(&b), Err(Error::Damaged(_))), "another's");
    let mut bytes = std::fs::read(file_a).unwrap();
    bytes.push(0);
    std::fs::write(file_a, &bytes).unwrap();
    assert!(matches!(read(&a), Err(Error::Damaged(_))), "longer");
    std::fs::remove_file(file_a).unwrap();
    assert!(matches!(read(&a), Err(Error::Damaged(_))), "missing");
    // Both links can be removed; a target file without a link is an orphan.
    f.vault.unlink_name(&root, OsStr::new("a")).unwrap();
    std::fs::write(file_a, "left").unwrap();
    assert_eq!(f.vault.unlinked_targets().unwrap().unwrap().1, [file_a.file_name().unwrap()]);
}

#[test]
fn links_count_and_reach_symlinks_and_fifos_too() {
    let f = Fixture::new();
    let root = f.root();
    f.touch(&root, "file").unwrap();
    f.vault.symlink(&root, OsStr::new("sym"), OsStr::new("nowhere"), node(0o777)).unwrap();
    f.vault.mknod(&root, OsStr::new("fifo"), node(0o600), Kind::Fifo, 0).unwrap();
    let dir = f.mkdir(&root, "dir");
    for name in ["file", "sym", "fifo"] {
        let stored = f.vault.lookup(&root, OsStr::new(name)).unwrap().0;
        let (_, stat) = f.vault.link(Target::Entry(&root, &stored), &dir, OsStr::new(name)).unwrap();
        assert_eq!(stat.nlink, 2);
        assert_eq!(Some(stat.ino), f.ino(&root, name));
        let again = f.vault.link(Target::Entry(&root, &stored), &dir, OsStr::new(name));
        assert_eq!(errno(again), Some(Errno::EXIST));
    }
    assert_eq!(errno(f.vault.link(Target::Dir(&dir), &root, OsStr::new("d2"))), Some(Errno::PERM));
}

#[test]
fn modes_are_exact_whatever_the_umask() {
    let f = Fixture::new();
    let root = f.root();
    for mode in [0o000, 0o400, 0o644, 0o666, 0o777, 0o1777, 0o4755, 0o2755, 0o6711] {
        let name = format!("{mode:o}");
        let (_, stat) = f.vault.mknod(&root, OsStr::new(&name), node(mode), Kind::File, 0).unwrap();
        assert_eq!(stat.mode, mode);
        let (_, stat) = f.vault.mkdir(&root, OsStr::new(&("d".to_owned() + &name)), node(mode)).unwrap();
        assert_eq!(stat.mode, mode, "directory");
    }
    for mode in [0o000, 0o4755] {
        f.vault.unlink_name(&root, OsStr::new(&format!("{mode:o}"))).unwrap();
        f.vault.rmdir_name(&root, OsStr::new(&format!("d{mode:o}"))).unwrap();
    }
}

#[test]
fn a_setgid_directory_hands_down_its_bit() {
    let f = Fixture::new();
    let (stored, _) = f.vault.mkdir(&f.root(), OsStr::new("g"), node(0o2775)).unwrap();
    let dir = f.vault.open_dir(&f.root(), &stored).unwrap();
    let (_, stat) = f.vault.mkdir(&dir, OsStr::new("sub"), node(0o755)).unwrap();
    assert_eq!(stat.mode, 0o2755);
    let (_, stat) = f.vault.mknod(&dir, OsStr::new("file"), node(0o644), Kind::File, 0).unwrap();
    assert_eq!(stat.mode, 0o644);
}

#[test]
fn times_are_set_to_the_nanosecond_and_one_by_one() {
    let f = Fixture::new();
    let root = f.root();
    f.mkdir(&root, "dir");
    f.vault.symlink(&root, OsStr::new("sym"), OsStr::new("nowhere"), node(0o777)).unwrap();
    f.vault.mknod(&root, OsStr::new("fifo"), node(0o600), Kind::Fifo, 0).unwrap();
    for name in ["dir", "sym", "fifo"] {
        let stored = f.vault.lookup(&root, OsStr::new(name)).unwrap().0;
        let target = Target::Entry(&root, &stored);
        let (a, m) =
            (Time { seconds: -3, nanoseconds: 999_999_999 }, Time { seconds: 1 << 33, nanoseconds: 1 });
        let both = SetAttr { atime: Some(SetTime::At(a)), mtime: Some(SetTime::At(m)), ..SetAttr::default() };
        let stat = f.vault.set_attr(target, &both).unwrap();
        assert_eq!((stat.atime, stat.mtime), (a, m), "{name}");
        let now = SetAttr { atime: Some(SetTime::Now), ..SetAttr::default() };
        let stat = f.vault.set_attr(target, &now).unwrap();
        assert!(stat.atime.seconds > 1_600_000_000);
        assert_eq!(stat.mtime, m, "{name}");
    }
}

#[test]
fn attributes_of_what_has_none_are_refused() {
    let f = Fixture::new();
    let root = f.root();
    f.vault.symlink(&root, OsStr::new("sym"), OsStr::new("nowhere"), node(0o777)).unwrap();
    let stored = f.vault.lookup(&root, OsStr::new("sym")).unwrap().0;
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    assert!(matches!(f.vault.set_attr(Target::Entry(&root, &stored), &chmod), Err(Error::NotSupported(_))));
    assert!(matches!(f.vault.set_attr(Target::Entry(&root, &stored), &cut), Err(Error::Invalid(_))));
    assert_eq!(errno(f.vault.set_attr(Target::Dir(&root), &cut)), Some(Errno::ISDIR));
    assert_eq!(f.vault.set_attr(Target::Dir(&root), &chmod).unwrap().mode, 0o600);
}

#[test]
fn special_files_are_never_opened() {
    let f = Fixture::new();
    let root = f.root();
    f.vault.mknod(&root, OsStr::new("fifo"), node(0o600), Kind::Fifo, 0).unwrap();
    f.vault.mknod(&root, OsStr::new("socket"), node(0o600), Kind::Socket, 0).unwrap();
    for name in ["fifo", "socket"] {
        let stored = f.vault.lookup(&root, OsStr::new(name)).unwrap().0;
        for write in [false, true] {
            assert!(matches!(f.vault.open_file(&root, &stored, write), Err(Error::Invalid(_))));
        }
        assert_eq!(errno(f.vault.open_dir(&root, &stored)), Some(Errno::NOTDIR));
    }
    assert!(matches!(
        f.vault.mknod(&root, OsStr::new("d"), node(0o600), Kind::Dir, 0),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn a_link_of_a_later_version_is_not_taken_for_damage() {
    let f = Fixture::new();
    let (stored, _) = f.vault.symlink(&f.root(), OsStr::new("link"), OsStr::new("x"), node(0o777)).unwrap();
    let path = f.stored(&f.root(), "link");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(format!("warpcrypt.later.{}", "A".repeat(24)), &path).unwrap();
    assert!(matches!(f.vault.readlink(&f.root(), &stored), Err(Error::NotSupported(_))));
    let (root, new) = (f.root(), OsStr::new("new"));
    let moved = f.vault.rename_name((&root, OsStr::new("link")), (&root, new), RenameMode::NoReplace);
    assert!(matches!(f.vault.readlink(&root, &moved.unwrap().0), Err(Error::NotSupported(_))));
    f.vault.unlink_name(&root, new).unwrap();
}

use super::*;
use crate::RenameMode;
use std::thread;

const THREADS: usize = 8;

#[test]
fn one_of_many_wins_a_name() {
    let f = Fixture::new();
    for name in ["short".to_owned(), "l".repeat(200)] {
        for round in 0..20 {
            let root = f.root();
            let wins: usize = thread::scope(|scope| {
                let tries: Vec<_> = (0..THREADS)
                    .map(|i| {
                        let (f, root, name) = (&f, &root, &name);
                        scope.spawn(move || {
                            let made = if i % 2 == 0 {
                                f.touch(root, name)
                            } else {
                                f.vault.mkdir(root, OsStr::new(name), node(0o755)).map(drop)
                            };
                            made.is_ok()
                        })
                    })
                    .collect();
                tries.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
            });
            assert_eq!(wins, 1, "round {round}");
            assert_eq!(f.names(&root).len(), 1);
            let name = OsStr::new(&name);
            f.vault.unlink_name(&root, name).map(drop).or_else(|_| f.vault.rmdir_name(&root, name)).unwrap();
        }
    }
    assert_eq!(
        raw_names(f.dir.path()),
        ["warpcrypt.dir", "warpcrypt.json", "warpcrypt.json.copy", "warpcrypt.lock", "warpcrypt.times"]
    );
}

#[test]
fn a_long_name_never_loses_its_sidecar() {
    let f = Fixture::new();
    let root = f.root();
    let name = "l".repeat(200);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..100 {
                    let _ = f.touch(&root, &name);
                    let _ = f.vault.unlink_name(&root, OsStr::new(&name));
                }
            });
        }
    });
    f.touch(&root, &name).unwrap();
    assert_eq!(f.names(&root), [OsString::from(&name)]);
}

#[test]
fn a_directory_never_loses_its_id_to_a_removal_that_fails() {
    let f = Fixture::new();
    let root = f.root();
    let (stored, _) = f.vault.mkdir(&root, OsStr::new("d"), node(0o755)).unwrap();
    let dir = f.vault.open_dir(&root, &stored).unwrap();
    f.touch(&dir, "always there").unwrap();
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (f, root, dir, stored) = (&f, &root, &dir, &stored);
            scope.spawn(move || {
                for _ in 0..100 {
                    match i % 3 {
                        0 => assert_eq!(
                            errno(f.vault.rmdir_name(root, OsStr::new("d"))),
                            Some(Errno::NOTEMPTY)
                        ),
                        1 => assert!(
                            f.names(&f.vault.open_dir(root, stored).unwrap())
                                .contains(&OsString::from("always there"))
                        ),
                        _ => {
                            let name = format!("{i}").repeat(170);
                            f.touch(dir, &name).unwrap();
                            f.vault.unlink_name(dir, OsStr::new(&name)).unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(f.names(&dir), ["always there"]);
}

#[test]
fn names_moved_to_and_fro_are_never_lost() {
    let f = Fixture::new();
    let (a, b) = (f.mkdir(&f.root(), "a"), f.mkdir(&f.root(), "b"));
    for i in 0..THREADS {
        f.touch(&a, format!("{i}")).unwrap();
    }
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (f, a, b) = (&f, &a, &b);
            scope.spawn(move || {
                let (short, long) = (format!("{i}"), format!("{i}").repeat(200));
                for _ in 0..25 {
                    let (there, back) = ((&**a, OsStr::new(&short)), (&**b, OsStr::new(&long)));
                    f.vault.rename_name(there, back, RenameMode::NoReplace).unwrap();
                    f.vault.list(b).unwrap();
                    f.vault.rename_name(back, there, RenameMode::Replace).unwrap();
                }
            });
        }
    });
    assert_eq!(f.names(&a).len(), THREADS);
    assert_eq!(f.names(&b), Vec::<OsString>::new());
}

#[test]
fn directories_made_and_removed_by_many_end_as_they_should() {
    let f = Fixture::new();
    let root = f.root();
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (f, root) = (&f, &root);
            scope.spawn(move || {
                for j in 0..50 {
                    let name = format!("{i}-{j}");
                    let dir = f.mkdir(root, &name);
                    f.touch(&dir, "file").unwrap();
                    if j % 10 == 0 {
                        f.vault.sync_dir(&dir).unwrap();
                    }
                    f.vault.unlink_name(&dir, OsStr::new("file")).unwrap();
                    f.vault.rmdir_name(root, OsStr::new(&name)).unwrap();
                }
            });
        }
    });
    assert_eq!(f.names(&root), Vec::<OsString>::new());
    f.vault.make_names_durable().unwrap();
}

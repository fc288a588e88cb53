use super::*;
use crate::fixture::Fixture;
use content::Time;
use vault::NewNode;

const DEVICE: u64 = 7;

fn stat(ino: u64, kind: Kind, nlink: u32) -> Stat {
    Stat {
        dev: DEVICE,
        ino,
        kind,
        mode: 0o644,
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    }
}

fn name(parent: u64, stored: &str) -> Name {
    Name { parent, stored: StoredName(stored.into()) }
}

fn table() -> Inodes {
    Inodes::new((DEVICE, 500))
}

/// Counts a lookup of a node that still has the name under which it was found.
fn found(inodes: &Inodes, stat: &Stat, name: Name) -> Id {
    inodes.found(stat, name, |_| 0, |_| true, false).unwrap()
}

fn nobody_asks(_: &Name) -> bool {
    panic!("the store is asked for nothing")
}

#[test]
fn a_node_keeps_the_stores_number_and_the_root_is_1() {
    let inodes = table();
    let id = found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "a"));
    assert_eq!(id, Id { number: 42, generation: 0 });
    assert_eq!(inodes.number_of((DEVICE, 500)), ROOT);
    assert_eq!(inodes.get(ROOT).unwrap().key, (DEVICE, 500));
    assert!(inodes.get(43).is_err());
}

#[test]
fn other_devices_and_inode_1_get_numbers_of_their_own() {
    let inodes = table();
    let one = found(&inodes, &stat(1, Kind::File, 1), name(ROOT, "one"));
    let other = Stat { dev: 9, ..stat(42, Kind::Dir, 2) };
    let foreign = found(&inodes, &other, name(ROOT, "mount"));
    assert!(one.number >= FOREIGN && foreign.number >= FOREIGN && one.number != foreign.number);
    assert_eq!(found(&inodes, &other, name(ROOT, "mount")), foreign, "stable while known");
    assert_eq!(inodes.find((9, 42)).unwrap().number, foreign.number);
    assert!(inodes.find((DEVICE, 42)).is_none());
    inodes.forget(foreign.number, 2);
    assert!(inodes.find((9, 42)).is_none());
    assert_ne!(found(&inodes, &other, name(ROOT, "mount")).number, foreign.number);
}

#[test]
fn the_last_forget_ends_a_node() {
    let inodes = table();
    for _ in 0..3 {
        found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "a"));
    }
    inodes.forget(42, 2);
    assert!(inodes.get(42).is_ok());
    inodes.forget(42, 1);
    assert!(inodes.get(42).is_err());
    inodes.forget(42, 1);
    inodes.forget(ROOT, u64::MAX);
    assert!(inodes.get(ROOT).is_ok());
}

#[test]
fn forgetting_more_than_was_looked_up_does_no_harm() {
    let inodes = table();
    found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "a"));
    inodes.forget(42, u64::MAX);
    assert!(inodes.get(42).is_err());
}

#[test]
fn hard_links_are_one_node_with_several_names() {
    let inodes = table();
    found(&inodes, &stat(42, Kind::File, 2), name(ROOT, "a"));
    found(&inodes, &stat(42, Kind::File, 2), name(ROOT, "b"));
    let node = inodes.get(42).unwrap();
    let mut names = node.names.write();
    assert_eq!(names.any(), Some(&name(ROOT, "b")));
    names.remove(&name(ROOT, "b"), &stat(42, Kind::File, 2), false, None);
    assert_eq!(names.any(), Some(&name(ROOT, "a")));
    assert!(names.gone().is_none());
    names.remove(&name(ROOT, "a"), &stat(42, Kind::File, 1), true, None);
    assert_eq!(names.any(), None);
    assert_eq!(names.gone().unwrap().nlink, 0);
}

#[test]
fn a_number_given_away_again_is_a_new_generation_with_one_sum_of_lookups() {
    let inodes = table();
    found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "old"));
    let old = inodes.get(42).unwrap();
    old.names.write().remove(&name(ROOT, "old"), &stat(42, Kind::File, 1), true, None);
    let id = found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "new"));
    assert_eq!(id, Id { number: 42, generation: 1 });
    let new = inodes.get(42).unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    assert_eq!(new.names.read().any(), Some(&name(ROOT, "new")));
    inodes.forget(42, 1);
    assert!(inodes.get(42).is_ok(), "the old node's forget is not the new one's");
    inodes.forget(42, 1);
    assert!(inodes.get(42).is_err());
}

#[test]
fn a_name_that_moved_since_it_was_found_is_not_noted() {
    let inodes = table();
    let file = stat(42, Kind::File, 1);
    assert!(
        inodes.found(&file, name(ROOT, "a"), |_| 0, nobody_asks, false).is_some(),
        "the kernel asks under its lock"
    );
    let node = inodes.get(42).unwrap();
    node.names.write().replace(&name(ROOT, "a"), name(ROOT, "b"));
    assert_eq!(inodes.found(&file, name(ROOT, "a"), |_| 0, |_| false, false), None);
    assert_eq!(node.names.read().any(), Some(&name(ROOT, "b")));
    assert!(inodes.found(&file, name(ROOT, "b"), |_| 0, nobody_asks, false).is_some(), "known");
    node.names.write().remove(&name(ROOT, "b"), &file, true, None);
    assert_eq!(inodes.found(&file, name(ROOT, "b"), |_| 0, |_| false, false), None);
    assert!(node.names.read().gone().is_some() && Arc::ptr_eq(&node, &inodes.get(42).unwrap()));
    inodes.forget(42, 2);
    assert!(inodes.get(42).is_err(), "what was not found was not counted");
}

fn made_nameless(inodes: &Inodes, ino: u64) -> Id {
    let f = Fixture::new();
    let (there, _) = f.vault.create_nameless(&f.vault.root(), NewNode::plain(0o644, 0, 0)).unwrap();
    inodes.made_nameless(There::new(there.pin, stat(ino, Kind::File, 0)))
}

#[test]
fn a_node_without_a_name_is_gone_until_it_gets_one() {
    let inodes = table();
    let id = made_nameless(&inodes, 42);
    let node = inodes.get(id.number).unwrap();
    assert!(id.number == 42 && node.names.read().any().is_none() && node.names.read().gone().is_some());
    node.names.write().came_back(name(ROOT, "a"));
    assert_eq!(found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "a")), id);
    assert!(node.names.read().gone().is_none() && Arc::ptr_eq(&node, &inodes.get(42).unwrap()));
    inodes.forget(42, 2);
    assert!(inodes.get(42).is_err());
    // Another process removed the file, and the store reused its number.
    let old = found(&inodes, &stat(43, Kind::File, 1), name(ROOT, "b"));
    let new = made_nameless(&inodes, 43);
    assert!(new.number == 43 && new.generation != old.generation);
    assert!(inodes.get(43).unwrap().names.read().any().is_none());
}

#[test]
fn another_type_under_the_same_number_is_another_node() {
    let inodes = table();
    found(&inodes, &stat(42, Kind::File, 1), name(ROOT, "a"));
    let id = found(&inodes, &stat(42, Kind::Dir, 2), name(ROOT, "a"));
    assert_eq!(id.generation, 1);
    assert_eq!(inodes.get(42).unwrap().kind, Kind::Dir);
}

#[test]
fn log_lines_name_the_stored_path() {
    let inodes = table();
    found(&inodes, &stat(42, Kind::Dir, 2), name(ROOT, "Dir"));
    found(&inodes, &stat(43, Kind::File, 1), name(42, "File"));
    assert_eq!(inodes.stored_path(43), "Dir/File");
    assert_eq!(inodes.stored_path(ROOT), "the root directory");
    assert_eq!(inodes.stored_path(99), "inode 99");
    inodes.forget(42, 1);
    assert_eq!(inodes.stored_path(43), "inode 43");
}

#[test]
fn lookups_and_forgets_from_many_threads_come_out_even() {
    let inodes = table();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let inodes = &inodes;
            scope.spawn(move || {
                for round in 0..2000_u64 {
                    let ino = 100 + round % 5;
                    let id = found(inodes, &stat(ino, Kind::File, 1), name(ROOT, &format!("{ino}")));
                    if let Ok(node) = inodes.get(id.number)
                        && round % 7 == thread
                    {
                        let gone = name(ROOT, &format!("{ino}"));
                        node.names.write().remove(&gone, &stat(ino, Kind::File, 1), true, None);
                    }
                    inodes.forget(id.number, 1);
                }
            });
        }
    });
    assert_eq!(inodes.table.lock().nodes.len(), 1);
}

#[test]
fn a_size_is_compared_with_what_was_told_while_the_file_was_not_open() {
    let told = KernelSize::default();
    assert!(!told.other_than(7), "nothing was told");
    told.note(7);
    assert!(!told.other_than(7) && told.other_than(8));
    told.by_file();
    assert!(!told.other_than(7) && !told.other_than(8));
}

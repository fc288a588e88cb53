//! A store that another program keeps in sync with a second one, file by file, while both are mounted. A
//! read returns data that was stored for that file or an error. A write reaches the file that the
//! program opened, or fails.
//!
//! `ROUNDS=100 cargo test --release --test mounted synced` runs more rounds.

mod world;

use crate::support::{
    self,
    command::ok,
    disk::{Disk, Ext4},
    mounted::Vault,
    random::Random,
    ready_as_root, say, setting,
    store::{by_inode, inode},
    waiting::wait_for,
};
use rustix::io::Errno;
use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use world::World;

/// Operations per round.
const STEPS: usize = 400;

/// A vault on a small ext4, which reuses inode numbers immediately.
struct Small {
    vault: Vault,
    // Dropped, and so unmounted, after the vault.
    _disk: Ext4,
    _place: TempDir,
}

impl Small {
    fn new() -> Small {
        let place = tempfile::tempdir().expect("directory");
        let disk = Ext4::at(&place.path().join("image"), &place.path().join("disk"));
        let vault = Vault::at(&disk.0.join("vault"), "aes-256-ctr");
        Small { vault, _disk: disk, _place: place }
    }
}

fn ready() -> bool {
    ready_as_root(&["mkfs.ext4", "losetup"])
}

/// The stored file for a path in a mount.
fn stored(vault: &Vault, path: &Path) -> PathBuf {
    by_inode(&vault.store)[&inode(path)].clone()
}

/// Atomically replaces `to` with a copy of `from`, as copying programs do.
fn replace(from: &Path, to: &Path) {
    let temporary = to.with_file_name(".copy");
    fs::copy(from, &temporary).expect("copy");
    fs::rename(&temporary, to).expect("rename");
}

/// Replaces a stored file with a copy whose inode number is that of a removed file. The number becomes
/// free once the mount has closed that file.
fn replace_by_number(path: &Path, number: u64) {
    let given = (0..10_000).any(|_| {
        replace(path, path);
        inode(path) == number
    });
    assert!(given, "the store has not given the number to another");
}

#[test]
fn a_file_that_gets_the_inode_number_of_another_is_not_taken_for_that() {
    if !ready() {
        return;
    }
    let Small { vault, .. } = &Small::new();
    let mount = vault.mount();
    fs::create_dir(mount.join("d")).unwrap();
    fs::write(mount.join("f"), "one").unwrap();
    fs::write(mount.join("d/x"), "x").unwrap();
    let [f, x] = ["f", "d/x"].map(|name| stored(vault, &mount.join(name)));
    let mount = mount.remount();
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"one");
    assert_eq!(fs::read(mount.join("d/x")).unwrap(), b"x");
    let number = inode(&x);
    fs::remove_file(&x).unwrap();
    replace_by_number(&f, number);
    assert_eq!(fs::read(mount.join("f")).unwrap(), b"one");
    assert!(fs::read(mount.join("d/x")).is_err(), "it was removed");
    mount.unmount();
}

#[test]
fn what_is_appended_by_a_name_that_went_does_not_reach_the_file_that_has_its_inode_number() {
    if !ready() {
        return;
    }
    let Small { vault, .. } = &Small::new();
    let mount = vault.mount();
    for name in ["x", "other"] {
        fs::write(mount.join(name), name).unwrap();
    }
    let [x, other] = ["x", "other"].map(|name| stored(vault, &mount.join(name)));
    let mount = mount.remount();
    // The kernel has both names cached.
    assert_eq!(fs::metadata(mount.join("x")).unwrap().len(), 1);
    let number = inode(&x);
    fs::remove_file(&x).unwrap();
    replace_by_number(&other, number);
    assert_eq!(fs::read(mount.join("other")).unwrap(), b"other");
    let written =
        OpenOptions::new().append(true).open(mount.join("x")).and_then(|mut x| x.write_all(b"oops"));
    assert!(written.is_err(), "x is gone");
    assert_eq!(fs::read(mount.join("other")).unwrap(), b"other");
    mount.unmount();
}

#[test]
fn a_file_written_over_another_one_in_place_is_read_anew() {
    if !ready() {
        return;
    }
    let Small { vault, .. } = &Small::new();
    let mount = vault.mount();
    fs::write(mount.join("f"), [1; 9000]).unwrap();
    fs::write(mount.join("g"), [2; 9000]).unwrap();
    let [f, g] = ["f", "g"].map(|name| stored(vault, &mount.join(name)));
    let mount = mount.remount();
    assert_eq!(fs::read(mount.join("f")).unwrap(), [1; 9000]);
    let number = inode(&f);
    fs::copy(&g, &f).unwrap();
    assert_eq!(inode(&f), number);
    // The kernel sends releases asynchronously. An open before the release joins the ending one.
    wait_for("it is read anew", || {
        let content = fs::read(mount.join("f")).unwrap();
        assert!([[1; 9000], [2; 9000]].iter().any(|whole| content == whole));
        content[0] == 2
    });
    mount.unmount();
}

#[test]
fn a_directory_that_was_made_anew_is_listed_and_the_former_is_stale() {
    if !ready() {
        return;
    }
    let Small { vault, .. } = &Small::new();
    let mount = vault.mount();
    fs::create_dir(mount.join("d")).unwrap();
    fs::write(mount.join("d/f"), "f").unwrap();
    let dir = stored(vault, &mount.join("d/f")).parent().unwrap().to_path_buf();
    let mount = mount.remount();
    assert_eq!(fs::read(mount.join("d/f")).unwrap(), b"f");
    let copy = vault.store.join(".copy");
    let script = "cp -r \"$1\" \"$2\" && rm -r \"$1\" && mv \"$2\" \"$1\"";
    crate::support::command::sh("/", script, &[&dir, &copy], 60);
    assert_eq!(fs::read(mount.join("d/f")).unwrap(), b"f");
    fs::write(mount.join("d/g"), "g").unwrap();
    let names: Vec<_> = fs::read_dir(mount.join("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    mount.unmount();
}

#[test]
fn a_name_that_another_program_took_away_does_not_lead_to_the_file_under_its_new_one() {
    if !ready() {
        return;
    }
    let Small { vault, .. } = &Small::new();
    let mount = vault.mount();
    for name in ["f", "g"] {
        fs::write(mount.join(name), name).unwrap();
    }
    let [f, g] = ["f", "g"].map(|name| stored(vault, &mount.join(name)));
    let mount = mount.remount();
    // The kernel has the name cached. An open file would be known by both names, and there is no way to
    // tell when the kernel has sent the release.
    assert_eq!(fs::metadata(mount.join("f")).unwrap().len(), 1);
    fs::rename(&f, &g).unwrap();
    assert_eq!(fs::read(mount.join("g")).unwrap(), b"f");
    fs::write(mount.join("g"), "anew").unwrap();
    assert!(fs::read(mount.join("f")).is_err(), "it was renamed");
    let appended = OpenOptions::new().append(true).open(mount.join("f"));
    assert!(appended.is_err(), "it was renamed");
    assert_eq!(fs::read(mount.join("g")).unwrap(), b"anew");
    mount.unmount();
}

#[test]
fn what_file_managers_leave_in_a_directory_goes_with_it_and_other_files_are_named() {
    if !support::ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let make = || {
        fs::create_dir(mount.join("d")).unwrap();
        fs::write(mount.join("d/f"), "f").unwrap();
        let dir = stored(&vault, &mount.join("d/f")).parent().unwrap().to_path_buf();
        fs::remove_file(mount.join("d/f")).unwrap();
        dir
    };
    let dir = make();
    for name in [".DS_Store", "desktop.ini", "Thumbs.db", ".directory", ".nfs0000000000c8a6fd00000001"] {
        fs::write(dir.join(name), "x").unwrap();
    }
    fs::create_dir_all(dir.join("@eaDir/inner")).unwrap();
    fs::write(dir.join("@eaDir/inner/thumb"), "x").unwrap();
    fs::remove_dir(mount.join("d")).unwrap();
    assert!(!dir.exists());
    let dir = make();
    fs::write(dir.join("notes.txt"), "x").unwrap();
    fs::write(dir.join(".DS_Store"), "x").unwrap();
    let refused = fs::remove_dir(mount.join("d")).unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOTEMPTY));
    assert!(vault.log_text().contains("notes.txt"), "{}", vault.log_text());
    let told = ok(Vault::program().arg("stat").arg(mount.path()), 60);
    assert!(
        told.starts_with("Something in the store is in the way.") && told.contains("notes.txt"),
        "{told}"
    );
    assert!(dir.join(".DS_Store").exists(), "nothing goes unless the directory does");
    // The directory is unchanged.
    fs::write(mount.join("d/g"), "g").unwrap();
    assert_eq!(fs::read(mount.join("d/g")).unwrap(), b"g");
    fs::remove_file(mount.join("d/g")).unwrap();
    fs::remove_file(dir.join("notes.txt")).unwrap();
    fs::remove_dir(mount.join("d")).unwrap();
    mount.unmount();
}

/// Two stores kept in sync at random, each on a separate filesystem.
fn keep_in_step(what: &str, places: [&Path; 2]) {
    let rounds = setting("ROUNDS").unwrap_or(3);
    let mut random = Random::new(what);
    for round in 0..rounds {
        let mut world = World::new(places.map(|place| place.join(format!("{round}"))));
        world.run(STEPS, &mut random);
        let seen = &world.seen;
        say(format_args!("{what}: {seen:?}"));
        assert!(seen.read * 2 > seen.read_errors, "most of it cannot be read: {seen:?}");
        drop(world);
        for place in places {
            fs::remove_dir_all(place.join(format!("{round}"))).expect("remove");
        }
    }
}

#[test]
fn two_stores_on_ext4_are_kept_in_step_while_both_are_mounted() {
    if !ready() {
        return;
    }
    let place = tempfile::tempdir().expect("directory");
    let disks = ["one", "two"]
        .map(|name| Ext4::at(&place.path().join(format!("{name}.image")), &place.path().join(name)));
    keep_in_step("synced, ext4", [&disks[0].0, &disks[1].0]);
}

#[test]
fn two_stores_in_memory_are_kept_in_step_while_both_are_mounted() {
    if !ready() {
        return;
    }
    let disks = [(); 2].map(|()| Disk::new("64m"));
    keep_in_step("synced, tmpfs", [disks[0].0.path(), disks[1].0.path()]);
}

/// Whether an error means that the store has changed or is damaged. Any other error would be the mount's
/// own fault.
fn is_expected(error: &std::io::Error) -> bool {
    let expected = [Errno::IO, Errno::STALE, Errno::NOENT, Errno::NOTEMPTY, Errno::EXIST];
    Errno::from_io_error(error).is_some_and(|errno| expected.contains(&errno))
}

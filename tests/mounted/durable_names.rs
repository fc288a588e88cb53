//! A power cut, as the store's disk would show it: a file that fsync confirmed is found again under its
//! name.
//!
//! The store is a filesystem in an image. Copying the image while it is mounted captures what had
//! reached the disk at that moment, without the contents of the page cache.

use crate::support::{say, waiting::NEVER};
use crypto::{cipher::Cipher, integrity::Integrity};
use format::{
    config::Settings,
    key_slot::{DEFAULT_COST, NewSlot, SlotSecret},
    name::NameMode,
};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use vault::{Dir, NewNode, OpenError, OpenOptions, RenameMode, Target, Unlock, Vault};

const KEY: &[u8] = b"0123456789abcdef";

/// A mounted image, unmounted on drop.
struct Image(PathBuf);

impl Image {
    fn mount(image: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).status();
        mounted.is_ok_and(|status| status.success()).then(|| Image(at.into()))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The disk of a store that is still in use.
struct Disk {
    dir: TempDir,
    _mounted: Image,
}

impl Disk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
        let mounted = made
            .is_ok_and(|status| status.success())
            .then(|| Image::mount(&image, &dir.path().join("store")))
            .flatten();
        match mounted {
            Some(mounted) => Some(Disk { dir, _mounted: mounted }),
            None => {
                let required = std::env::var_os("REQUIRE_LOOP").is_some_and(|v| v == "1");
                assert!(!required, "needs root, mkfs.ext4 and a loop device");
                say("SKIPPED: a power cut needs root, mkfs.ext4 and a loop device");
                None
            }
        }
    }

    fn vault(&self) -> Arc<Vault> {
        let path = self.dir.path().join("store/vault");
        let slot = NewSlot { secret: SlotSecret::KeyFile(KEY), cost: DEFAULT_COST, created: 0, label: None };
        let settings =
            Settings { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, names: NameMode::Encrypted };
        Vault::init(&path, settings, &slot).unwrap();
        open(&path)
    }

    /// Commits the store's journal, which makes all names durable, but not the contents of new files.
    fn write_journal(&self) {
        std::fs::File::create(self.dir.path().join("store/other")).unwrap().sync_all().unwrap();
    }

    /// The vault as a power cut at this moment would leave it.
    fn after_power_cut(&self) -> (Image, Arc<Vault>) {
        let (copy, at) = (self.dir.path().join("copy"), self.dir.path().join("after"));
        std::fs::copy(self.dir.path().join("image"), &copy).unwrap();
        let image = Image::mount(&copy, &at).expect("a copy of an image mounts as it did");
        let vault = open(&at.join("vault"));
        (image, vault)
    }
}

/// Opens a vault, retrying while it is locked: a process that another test spawns inherits this
/// process's locks until it calls exec.
fn open(path: &Path) -> Arc<Vault> {
    let end = Instant::now() + NEVER;
    loop {
        match Vault::open(path, &Unlock::KeyFile(KEY.to_vec().into()), OpenOptions::default()) {
            Err(OpenError::Locked) if Instant::now() < end => sleep(Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
}

fn node(mode: u32) -> NewNode<'static> {
    NewNode::plain(mode, 0, 0)
}

fn mkdir(vault: &Vault, parent: &Dir, name: &str) -> Arc<Dir> {
    let (stored, _) = vault.mkdir(parent, OsStr::new(name), node(0o755)).unwrap();
    vault.open_dir(parent, &stored).unwrap()
}

/// Creates a file and syncs it.
fn synced(vault: &Vault, parent: &Dir, name: &str) {
    let (_, _, file) = vault.create(parent, OsStr::new(name), node(0o644)).unwrap();
    file.file.write(0, name.as_bytes()).unwrap();
    vault.sync_file(&file).unwrap();
}

/// Whether the directory lists the name and the file has this content.
fn holds(vault: &Vault, place: &[&str], name: &str, content: &str) -> bool {
    let dir = place.iter().try_fold(vault.root(), |dir, name| {
        let (stored, _) = vault.lookup(&dir, OsStr::new(name)).ok()?;
        vault.open_dir(&dir, &stored).ok()
    });
    let Some(dir) = dir else { return false };
    let Ok(entries) = vault.list(&dir) else { return false };
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else { return false };
    let file = vault.open_file(&dir, &entry.stored, false).unwrap();
    let mut out = vec![0; content.len() + 1];
    let n = file.file.read(0, &mut out).unwrap();
    &out[..n] == content.as_bytes()
}

#[test]
fn names_of_synced_files_survive_a_power_cut() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    let (root, long) = (vault.root(), "n".repeat(250));
    let inner = mkdir(&vault, &mkdir(&vault, &root, "new"), "newer");
    synced(&vault, &inner, "file");
    synced(&vault, &root, &long);
    let (_image, after) = disk.after_power_cut();
    assert!(holds(&after, &["new", "newer"], "file", "file"), "in new directories");
    assert!(holds(&after, &[], &long, &long), "under a long name");
    after.shut_down().unwrap();
    vault.shut_down().unwrap();
}

#[test]
fn a_synced_file_survives_being_moved_into_a_new_directory() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    let (root, long) = (vault.root(), "n".repeat(250));
    synced(&vault, &root, "moved");
    synced(&vault, &root, "linked");
    let (one, two) = (mkdir(&vault, &root, "one"), mkdir(&vault, &root, "two"));
    let spot = |dir: &Dir, name: &str| vault.find(dir, OsStr::new(name)).unwrap();
    let (from, to) = (spot(&root, "moved"), spot(&one, &long));
    vault.rename((&root, &from), (&one, &to), RenameMode::Replace).unwrap();
    let stored = vault.lookup(&root, OsStr::new("linked")).unwrap().0;
    vault.link(Target::Entry(&root, &stored), &two, OsStr::new(&long)).unwrap();
    vault.unlink(&root, &spot(&root, "linked")).unwrap();
    // The fsync of an unrelated file makes the current names durable.
    synced(&vault, &root, "another");
    let (_image, after) = disk.after_power_cut();
    assert!(holds(&after, &["one"], &long, "moved"));
    assert!(holds(&after, &["two"], &long, "linked"));
    after.shut_down().unwrap();
    vault.shut_down().unwrap();
}

#[test]
fn a_file_that_was_synced_before_it_had_a_name_survives_under_that() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    let (root, long) = (vault.root(), "n".repeat(250));
    let dir = mkdir(&vault, &root, "new");
    let made = |content: &str| {
        let (_, file) = vault.create_nameless(&root, node(0o644)).unwrap();
        file.file.write(0, content.as_bytes()).unwrap();
        vault.sync_file(&file).unwrap();
        file
    };
    let (file, nameless) = (made(&long), made("gone"));
    vault.link(Target::File(&file), &dir, OsStr::new(&long)).unwrap();
    vault.sync_dir(&dir).unwrap();
    let (_image, after) = disk.after_power_cut();
    assert!(holds(&after, &["new"], &long, &long));
    assert_eq!(after.list(&after.root()).unwrap().len(), 1);
    after.shut_down().unwrap();
    drop((file, nameless));
    vault.shut_down().unwrap();
}

#[test]
fn directories_are_all_to_be_opened_after_a_power_cut() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    for i in 0..50 {
        let dir = mkdir(&vault, &vault.root(), &format!("{i}"));
        vault.create(&dir, OsStr::new("never synced"), node(0o644)).unwrap();
    }
    disk.write_journal();
    let (_image, after) = disk.after_power_cut();
    let root = after.root();
    let entries = after.list(&root).unwrap();
    assert_eq!(entries.len(), 50);
    for entry in entries {
        let dir = after.open_dir(&root, &entry.stored).unwrap();
        after.list(&dir).unwrap();
        after.create(&dir, OsStr::new("usable"), node(0o644)).unwrap();
    }
    after.shut_down().unwrap();
    vault.shut_down().unwrap();
}

#[test]
fn what_was_unmounted_survives_a_power_cut() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    let root = vault.root();
    synced(&vault, &root, "renamed");
    let (_, _, file) = vault.create(&root, OsStr::new("never synced"), node(0o644)).unwrap();
    file.file.write(0, b"never synced").unwrap();
    drop(file);
    let spot = |name: &str| vault.find(&root, OsStr::new(name)).unwrap();
    vault.rename((&root, &spot("renamed")), (&root, &spot("new name")), RenameMode::Replace).unwrap();
    vault.shut_down().unwrap();
    let (_image, after) = disk.after_power_cut();
    assert!(holds(&after, &[], "never synced", "never synced"));
    assert!(holds(&after, &[], "new name", "renamed"));
    assert_eq!(after.list(&after.root()).unwrap().len(), 2);
    after.shut_down().unwrap();
}

#[test]
fn a_synced_file_survives_an_exchange_with_a_long_name() {
    let Some(disk) = Disk::new() else { return };
    let vault = disk.vault();
    let (root, long) = (vault.root(), "n".repeat(250));
    synced(&vault, &root, "short");
    vault.create(&root, OsStr::new(&long), node(0o644)).unwrap();
    let spot = |name: &str| vault.find(&root, OsStr::new(name)).unwrap();
    vault.rename((&root, &spot(&long)), (&root, &spot("short")), RenameMode::Exchange).unwrap();
    disk.write_journal();
    let (_image, after) = disk.after_power_cut();
    assert!(holds(&after, &[], &long, "short"));
    after.shut_down().unwrap();
    vault.shut_down().unwrap();
}

//! Rotating the master key, against an attacker who has the old key and can write to the store.

use crate::support::{
    command::{ok, run, sh},
    mounted::Vault,
    ready,
    waiting::wait_for,
};
use format::{
    config::VaultConfig,
    dir_id::{DirId, DirIdKey},
    key_slot::SlotSecret,
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const UNREADABLE: i32 = 41;
const WRONG_KEY: i32 = 10;
const OWN: &[u8] = b"the owner's text";
const FORGED: &[u8] = b"a forger's text!";

/// A vault with the files "file" and "other", and an attacker's copy of it that opens with the original
/// key.
struct Attacked {
    vault: Vault,
    copy: Vault,
    _place: TempDir,
}

impl Attacked {
    fn new() -> Self {
        let vault = Vault::new("aes-256-ctr");
        let mount = vault.mount();
        fs::write(mount.join("file"), OWN).expect("write");
        fs::create_dir(mount.join("directory")).expect("mkdir");
        fs::write(mount.join("directory/other"), [3; 5000]).expect("write");
        mount.unmount();
        let place = TempDir::with_prefix("warpcrypt-test-copy-").expect("temporary directory");
        let store = place.path().join("vault");
        sh("/", "cp -a \"$1\" \"$2\"", &[&vault.store, &store], 60);
        let copy = vault.with_store(&store);
        Attacked { vault, copy, _place: place }
    }

    /// Changes the file in the copy and plants the resulting stored file in the vault.
    fn forge(&self) {
        let mount = self.copy.mount();
        fs::write(mount.join("file"), FORGED).expect("write");
        mount.unmount();
        fs::write(file_of(&self.vault.store), fs::read(file_of(&self.copy.store)).expect("read"))
            .expect("write");
    }

    fn is_rotating(&self) -> bool {
        let info = ok(Vault::program().args(["info", "--json"]).arg(&self.vault.store), 60);
        info.contains("\"key_rotation\": true")
    }

    fn is_refused(&self) {
        for options in [&["--read-only"][..], &[]] {
            let mount = self.vault.mount_with(options);
            let read = fs::read(mount.join("file"));
            assert!(read.is_err(), "{:?}", read.map(String::from_utf8));
            assert_eq!(fs::read(mount.join("directory/other")).expect("read"), [3; 5000]);
            mount.unmount();
        }
        let mut cat = Vault::program();
        cat.arg("cat").arg(&self.vault.store).arg("file").arg("--key-file").arg(&self.vault.key);
        let done = run(&mut cat, 60);
        assert_ne!(done.code(), 0, "{}", done.text());
    }
}

/// The only regular file in the root that the vault did not create for itself.
fn file_of(store: &Path) -> PathBuf {
    let entries = fs::read_dir(store).expect("list").map(|entry| entry.expect("entry"));
    let is_it = |entry: &fs::DirEntry| {
        let name = entry.file_name().into_string().expect("UTF-8");
        entry.file_type().expect("type").is_file()
            && !name.starts_with("warpcrypt.")
            && !name.starts_with("AAAA")
    };
    let found: Vec<_> = entries.filter(is_it).map(|entry| entry.path()).collect();
    let [file] = &found[..] else { panic!("{found:?}") };
    file.clone()
}

#[test]
fn an_entry_under_no_key_holds_no_rotation_open_and_a_forgery_is_not_read() {
    if !ready(&["cp"]) {
        return;
    }
    for mounted in [false, true] {
        let attacked = Attacked::new();
        fs::write(attacked.vault.store.join("A".repeat(43)), [0x5a; 5000]).expect("write");
        let mount = mounted.then(|| attacked.vault.mount());
        let done = attacked.vault.rotate(&[]);
        assert_eq!(done.code(), 0, "{}", done.stderr);
        wait_for("the rotation's end", || !attacked.is_rotating());
        if let Some(mount) = mount {
            assert_eq!(fs::read(mount.join("file")).expect("read"), OWN);
            mount.unmount();
        }
        attacked.forge();
        attacked.is_refused();
    }
}

/// A damaged file does keep the rotation from finishing, but an attacker gains nothing from that.
#[test]
fn a_rotation_that_is_held_open_accepts_no_forgery() {
    if !ready(&["cp"]) {
        return;
    }
    for mounted in [false, true] {
        let attacked = Attacked::new();
        let mount = attacked.vault.mount();
        fs::write(mount.join("directory/damaged"), [1; 5000]).expect("write");
        mount.unmount();
        let stored = walk_files(&attacked.vault.store).into_iter().find(|path| {
            let bytes = fs::read(path).expect("read");
            bytes.len() > 4096 && !attacked.copy_has(path)
        });
        let stored = stored.expect("the damaged file");
        let mut bytes = fs::read(&stored).expect("read");
        bytes[4096] ^= 1;
        fs::write(&stored, bytes).expect("write");
        let mount = mounted.then(|| attacked.vault.mount());
        let done = attacked.vault.rotate(&[]);
        assert_eq!(done.code(), if mounted { 0 } else { UNREADABLE }, "{}", done.stderr);
        if let Some(mount) = mount {
            assert_eq!(fs::read(mount.join("file")).expect("read"), OWN);
            mount.unmount();
        }
        assert!(attacked.is_rotating());
        attacked.forge();
        attacked.is_refused();
        let mut again = Vault::program();
        again.args(["key", "rotate"]).arg(&attacked.vault.store).arg("--key-file").arg(&attacked.vault.key);
        assert_eq!(run(&mut again, 60).code(), UNREADABLE);
        attacked.is_refused();
        let mount = attacked.vault.mount();
        fs::remove_file(mount.join("directory/damaged")).expect("remove");
        mount.unmount();
        // The mount may already have finished the rotation.
        if attacked.is_rotating() {
            let done = run(&mut again, 60);
            assert_eq!(done.code(), 0, "{}", done.stderr);
        }
        assert!(!attacked.is_rotating());
        attacked.is_refused();
    }
}

impl Attacked {
    fn copy_has(&self, path: &Path) -> bool {
        self.copy.store.join(path.strip_prefix(&self.vault.store).expect("in the vault")).exists()
    }
}

fn walk_files(store: &Path) -> Vec<PathBuf> {
    let own = |path: &PathBuf| {
        path.file_name().is_some_and(|name| !name.to_str().expect("UTF-8").starts_with("warpcrypt."))
    };
    crate::support::store::walk(store).into_iter().filter(|path| path.is_file() && own(path)).collect()
}

/// With the old master key an attacker forges a configuration that counts as the newest, with a slot
/// that the old secret opens, and an id for the root directory.
#[test]
fn a_forged_configuration_and_root_mount_nothing_and_replace_nothing() {
    if !ready(&["cp"]) {
        return;
    }
    let attacked = Attacked::new();
    let (vault, old_key) = (&attacked.vault, fs::read(&attacked.vault.key).expect("key"));
    let text = fs::read(vault.store.join("warpcrypt.json")).expect("configuration");
    assert_eq!(vault.rotate(&[]).code(), 0);
    let mut forged = VaultConfig::parse(&text).expect("a configuration");
    let former = forged.unlock(&SlotSecret::KeyFile(&old_key)).expect("it opens");
    forged.outdate(&former, 1 << 40).expect("its own key");
    let id = DirIdKey::derive(&former).encode(&DirId::random().expect("random"));
    let place = |name: &str| vault.store.join(name);
    let [good, own_id] = ["warpcrypt.json", "warpcrypt.dir"].map(|name| fs::read(place(name)).expect("read"));
    fs::write(place("warpcrypt.json.copy"), forged.to_json()).expect("write");
    fs::write(place("warpcrypt.dir"), id).expect("write");
    let new_key = fs::read(&vault.key).expect("key");
    let other = place("../other-key");
    fs::write(&other, [9; 64]).expect("write");
    for key in [&new_key, &old_key] {
        fs::write(&vault.key, key).expect("key");
        for options in [&["--read-only"][..], &[]] {
            assert_ne!(vault.try_mount(options).code(), 0);
        }
        for mut command in [vault.add_key(&other), vault.rotate_to(&other)] {
            assert_ne!(run(&mut command, 60).code(), 0);
        }
        assert!(fs::read(place("warpcrypt.json")).expect("read") == good);
    }
    // With its own directory id restored, the vault is unchanged.
    fs::write(&vault.key, &new_key).expect("key");
    fs::write(place("warpcrypt.dir"), own_id).expect("write");
    let mount = vault.mount();
    assert_eq!(fs::read(mount.join("file")).expect("read"), OWN);
    mount.unmount();
    assert_eq!(fs::read(place("warpcrypt.json.copy")).expect("read"), good);
}

#[test]
fn a_rotation_takes_a_secret_that_opens_nothing_yet() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let config = || fs::read(vault.store.join("warpcrypt.json")).expect("read");
    let other = vault.place_path().join("other-key");
    fs::write(&other, [9; 64]).expect("write");
    ok(&mut vault.add_key(&other), 60);
    let before = config();
    for known in [&vault.key, &other] {
        let done = run(vault.rotate_to(known).arg("--drop-other-slots"), 60);
        assert!(done.code() == 2 && done.stderr.contains("opens the vault already"), "{}", done.stderr);
        assert!(config() == before);
    }
    let former = fs::read(&vault.key).expect("key");
    assert_eq!(vault.rotate(&["--drop-other-slots"]).code(), 0);
    vault.mount().unmount();
    for old in [former, vec![9; 64]] {
        fs::write(&vault.key, old).expect("key");
        assert_eq!(vault.try_mount(&[]).code(), WRONG_KEY);
    }
}

//! A vault in a store that refuses long names.

use crate::support::{
    command::{ok, run, sh},
    mounted::Vault,
    ready,
};
use rustix::io::Errno;
use std::{
    collections::BTreeSet,
    fs,
    io::Error,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// An EncFS. Its names have at most 175 bytes, although it reports 189.
struct Encfs {
    plain: PathBuf,
    _places: [TempDir; 2],
}

impl Encfs {
    fn new() -> Encfs {
        Encfs::below(&std::env::temp_dir())
    }

    /// An EncFS with its encrypted files below `dir`.
    fn below(dir: &Path) -> Encfs {
        let raw = tempfile::tempdir_in(dir).expect("directory");
        // Root must be able to reach the mount point, which would not be so below another user's mount.
        let mount_point = tempfile::tempdir().expect("directory");
        let script = "encfs --standard --extpass='echo password' \"$1\" \"$2\" >/dev/null";
        sh("/", script, &[raw.path(), mount_point.path()], 60);
        Encfs { plain: mount_point.path().to_owned(), _places: [raw, mount_point] }
    }
}

impl Drop for Encfs {
    fn drop(&mut self) {
        let _ = run(Command::new("fusermount3").args(["-u", "-z"]).arg(&self.plain), 60);
    }
}

/// Names of every length, each with its length at the end.
fn names() -> BTreeSet<String> {
    (3..=255).map(|len| format!("{}{len:03}", "n".repeat(len - 3))).collect()
}

fn listed(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").file_name());
    entries.map(|name| name.into_string().expect("text")).collect()
}

/// Writes a file under each of these names.
fn fill(dir: &Path, names: &BTreeSet<String>) {
    for name in names {
        fs::write(dir.join(name), name).expect("write");
    }
}

/// Asserts that `fill` made exactly this.
fn compare(dir: &Path, names: &BTreeSet<String>) {
    assert_eq!(listed(dir), *names);
    for name in names {
        assert_eq!(fs::read_to_string(dir.join(name)).expect("read"), *name);
    }
}

fn reported_limit(dir: &Path) -> usize {
    ok(Command::new("getconf").arg("NAME_MAX").arg(dir), 60).trim().parse().expect("a number")
}

fn is_too_long(error: &Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NAMETOOLONG)
}

fn check(vault: &Vault) {
    ok(Vault::program().args(["check", "--full"]).arg(&vault.store).arg("--key-file").arg(&vault.key), 120);
}

#[test]
fn names_of_every_length_fit_into_a_store_with_short_names() {
    if !ready(&["encfs", "fusermount3", "getconf"]) {
        return;
    }
    let disk = Encfs::new();
    assert!(fs::write(disk.plain.join("n".repeat(235)), "").is_err_and(|e| is_too_long(&e)));
    let vault = Vault::at(&disk.plain.join("vault"), "aes-256-ctr");
    let left = listed(&vault.store);
    assert!(left.iter().all(|name| !name.starts_with("warpcrypt.tmp.")), "{left:?}");
    assert!(ok(Vault::program().arg("info").arg(&vault.store), 60).contains("names      encrypted-short"));
    let mount = vault.mount();
    assert_eq!(reported_limit(mount.path()), 255);
    let dir = mount.join("d");
    fs::create_dir(&dir).expect("directory");
    fill(&dir, &names());
    let mount = mount.remount();
    compare(&dir, &names());
    mount.unmount();

    let done = vault.rotate(&[]);
    assert!(done.status.success(), "{}", done.stderr);
    check(&vault);
    let mount = vault.mount();
    compare(&dir, &names());
    for name in names() {
        // From a short name to a long one, and the reverse.
        let other = mount.join(format!("{:x<1$}", "r", 258 - name.len()));
        fs::rename(dir.join(&name), &other).expect("rename");
        symlink(&other, dir.join(&name)).expect("link");
        assert_eq!(fs::read_to_string(dir.join(&name)).expect("read"), name);
        fs::remove_file(dir.join(name)).expect("remove");
        fs::remove_file(other).expect("remove");
    }
    let long = mount.join("l".repeat(255));
    fs::rename(&dir, &long).expect("rename");
    fs::remove_dir(long).expect("remove");
    mount.unmount();
    check(&vault);
}

#[test]
fn a_vault_that_was_copied_to_a_store_with_short_names_reports_its_limit() {
    if !ready(&["encfs", "fusermount3", "getconf", "cp"]) {
        return;
    }
    let disk = Encfs::new();
    for (names, limit, refused) in [("encrypted", 112, 113), ("plain", 189, 190)] {
        let vault = Vault::with("aes-256-ctr", &["--names", names]);
        let copy = vault.with_store(&disk.plain.join(names));
        sh("/", "cp -a \"$1\" \"$2\"", &[&vault.store, &copy.store], 60);
        fs::copy(&vault.key, &copy.key).expect("key");
        let mount = copy.mount();
        assert_eq!(reported_limit(mount.path()), limit, "{names}");
        let name = |len| mount.join("n".repeat(len));
        assert!(fs::write(name(refused), "").is_err_and(|e| is_too_long(&e)), "{names}");
        // EncFS itself refuses some of the names that it reports as possible.
        fs::write(name(limit.min(175)), "content").expect("write");
        assert_eq!(listed(mount.path()).len(), 1, "{names}");
        mount.unmount();
        check(&copy);
    }
}

#[test]
fn a_reverse_view_is_copied_to_a_store_with_short_names() {
    if !ready(&["encfs", "fusermount3", "cp"]) {
        return;
    }
    let plain = Vault::new("aes-256-ctr");
    fs::remove_dir_all(&plain.store).expect("the vault");
    fs::create_dir(&plain.store).expect("directory");
    fill(&plain.store, &names());
    let mut init = Vault::program();
    init.args(["init", "--reverse", "--names", "encrypted-short"]).arg(&plain.store);
    ok(init.arg("--key-file").arg(&plain.key), 60);
    let disk = Encfs::new();
    let copy = plain.with_store(&disk.plain.join("copy"));
    let view = plain.mount_with(&["--reverse"]);
    sh("/", "cp -r \"$1\" \"$2\"", &[view.path(), &copy.store], 120);
    // Each name is also looked up without a listing before.
    let view = view.remount();
    for name in listed(&copy.store) {
        fs::symlink_metadata(view.join(name)).expect("a node");
    }
    view.unmount();
    check(&copy);
    let mount = copy.mount();
    compare(mount.path(), &names());
    mount.unmount();
}

#[test]
fn a_store_that_refuses_even_short_names_takes_no_vault_with_encrypted_names() {
    if !ready(&["encfs", "fusermount3"]) {
        return;
    }
    let outer = Encfs::new();
    let disk = Encfs::below(&outer.plain);
    let [store, key] = ["vault", "key"].map(|name| disk.plain.join(name));
    fs::write(&key, [1; 64]).expect("key file");
    let init = |names: &[&str]| {
        run(Vault::program().arg("init").arg(&store).args(names).arg("--key-file").arg(&key), 60)
    };
    for names in [&[][..], &["--names", "encrypted-short"]] {
        let done = init(names);
        assert!(
            !done.status.success() && done.stderr.contains("--names plain"),
            "{names:?}: {}",
            done.stderr
        );
        assert!(!store.exists(), "{names:?}");
    }
    let done = init(&["--names", "plain"]);
    assert!(done.status.success(), "{}", done.stderr);
}

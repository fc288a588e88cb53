//! A plain directory shown in its stored form: a copy of that view is an ordinary vault.

mod excluded;

use crate::support::{
    command::{self, ok},
    mounted::Vault,
    random::Random,
    ready, ready_as_root, store, tree,
    waiting::stop,
};
use rustix::process::{Signal, kill_process};
use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::channel,
    time::Duration,
};

/// A directory of plain files with a configuration, used as the `store` of a mount.
fn plain(fill: impl FnOnce(&Path)) -> Vault {
    let vault = Vault::new("aes-256-ctr");
    fs::remove_dir_all(&vault.store).expect("the vault");
    fs::create_dir(&vault.store).expect("plain directory");
    fill(&vault.store);
    ok(Vault::program().args(["init", "--reverse"]).arg(&vault.store).arg("--key-file").arg(&vault.key), 60);
    vault
}

/// Copies the mounted view with this command and checks the copy.
fn copied(vault: &Vault, copy: &str) -> Vault {
    copied_with(vault, &[], copy)
}

/// Like `copied`, but with additional options for the view.
fn copied_with(vault: &Vault, options: &[&str], copy: &str) -> Vault {
    let other = Vault::new("aes-256-ctr");
    fs::remove_dir_all(&other.store).expect("the vault");
    fs::create_dir(&other.store).expect("copy");
    let view = vault.mount_with(&[&["--reverse"], options].concat());
    command::sh("/", copy, &[view.path(), &other.store], 300);
    view.unmount();
    check(&other);
    other
}

fn check(vault: &Vault) {
    ok(Vault::program().args(["check", "--full"]).arg(&vault.store).arg("--key-file").arg(&vault.key), 120);
}

/// Compares times in nanoseconds, so that a directory created within the same second also gets its time
/// set.
const RSYNC: &str = "rsync -aHX --modify-window=-1 \"$1/\" \"$2/\"";

/// Sets attributes and ACLs on a directory, a file with several names, and a symlink.
fn attributes(dir: &Path) {
    fs::create_dir(dir.join("known")).expect("directory");
    fs::write(dir.join("known/file"), b"content").expect("file");
    fs::hard_link(dir.join("known/file"), dir.join("second name")).expect("link");
    symlink("file", dir.join("known/link")).expect("link");
    command::sh(
        dir,
        "setfattr -n user.mime -v text known/file && setfattr -n trusted.seen -v yes known
         setfattr -h -n trusted.of -v link known/link
         setfacl -m u:1234:r,g:77:rx known/file && setfacl -d -m u:1234:rwx known",
        &[],
        30,
    );
}

#[test]
fn a_copy_is_a_vault_with_the_same_content() {
    if !ready_as_root(&["rsync", "cp", "setfattr", "setfacl"]) {
        return;
    }
    for copy in [RSYNC, "cp -a \"$1/.\" \"$2/\""] {
        let vault = plain(|dir| {
            tree::make(dir, &mut Random::from_seed(1));
            attributes(dir);
            let edges = Random::from_seed(2).bytes((48 + 64 * 129) * 4096 + 1);
            fs::write(dir.join("two node pages"), edges).expect("file");
            fs::write(dir.join("warpcrypt.json"), b"a user's own").expect("file");
            fs::write(dir.join("warpcrypt.dir"), b"a user's own").expect("file");
        });
        let other = copied(&vault, copy);
        let mount = other.mount();
        // The view presents this file as the vault's own configuration.
        fs::remove_file(vault.store.join(".warpcrypt.reverse.json")).expect("configuration");
        // Removing it changed the directory's time, and the lock file of a mount changed that of the
        // vault.
        let time = fs::metadata(mount.path()).and_then(|root| root.modified()).expect("time");
        File::open(&vault.store).and_then(|root| root.set_modified(time)).expect("time");
        tree::assert_same(&vault.store, mount.path());

        let file = File::options().write(true).open(mount.join("sizes/462848")).expect("file");
        file.write_all_at(&[7; 5000], 200_000).expect("overwrite");
        file.write_all_at(&[8; 300_000], 462_000).expect("grow");
        file.sync_all().expect("sync");
        drop(file);
        fs::write(mount.join("new"), b"new").expect("file");
        File::options()
            .write(true)
            .open(mount.join("sizes/720896"))
            .expect("file")
            .set_len(70_001)
            .expect("cut");
        mount.unmount();
        check(&other);
        let mount = other.mount();
        let mut expected = fs::read(vault.store.join("sizes/462848")).expect("file");
        expected[200_000..205_000].fill(7);
        expected.truncate(462_000);
        expected.resize(762_000, 8);
        assert!(fs::read(mount.join("sizes/462848")).expect("file") == expected);
        let cut = &fs::read(vault.store.join("sizes/720896")).expect("file")[..70_001];
        assert!(fs::read(mount.join("sizes/720896")).expect("file") == cut);
        mount.unmount();
    }
}

#[test]
fn a_changed_byte_moves_a_few_pages_and_an_unchanged_tree_moves_none() {
    if !ready_as_root(&["rsync"]) {
        return;
    }
    let content = Random::from_seed(3).bytes(40 << 20);
    let vault = plain(|dir| fs::write(dir.join("large"), &content).expect("file"));
    let other = copied(&vault, RSYNC);
    let before = store::walk(&other.store).into_iter().filter(|p| p.is_file());
    let before: Vec<_> = before.map(|path| (path.clone(), fs::read(path).expect("stored file"))).collect();
    let view = vault.mount_with(&["--reverse"]);
    for (path, stored) in &before {
        let shown = view.join(path.strip_prefix(&other.store).expect("a path in the copy"));
        assert!(fs::read(shown).expect("view") == *stored, "{path:?} differs over two mounts");
    }
    let again = "rsync -aH --inplace --no-whole-file --checksum --stats \"$1/\" \"$2/\"";
    assert_eq!(literal(&command::sh("/", again, &[view.path(), &other.store], 120)), 0);
    let file = File::options().write(true).open(vault.store.join("large")).expect("file");
    file.write_all_at(&[!content[20_000_000]], 20_000_000).expect("a byte");
    std::thread::sleep(Duration::from_secs(2)); // The kernel may cache the view's attributes for a second.
    let moved = literal(&command::sh("/", again, &[view.path(), &other.store], 120));
    assert!((1..1 << 18).contains(&moved), "{moved} bytes moved");
    view.unmount();
    check(&other);
    let mount = other.mount();
    assert!(
        fs::read(mount.join("large")).expect("copy") == fs::read(vault.store.join("large")).expect("plain")
    );
    mount.unmount();
}

/// Number of literal bytes in rsync's statistics.
fn literal(stats: &str) -> u64 {
    let line = stats.lines().find_map(|line| line.strip_prefix("Literal data: ")).expect("statistics");
    line.split_whitespace().next().expect("a number").replace(',', "").parse().expect("a number")
}

#[test]
fn attributes_are_the_same_each_time_and_bound_to_their_place() {
    if !ready_as_root(&["setfattr", "getfattr", "setfacl"]) {
        return;
    }
    let vault = plain(|dir| {
        attributes(dir);
        fs::write(dir.join("other"), b"content").expect("file");
        command::sh(dir, "setfattr -n user.mime -v text other", &[], 30);
    });
    let dump = "cd \"$1\" && find . | sort | xargs -d '\\n' getfattr -h -d -m - -e hex --";
    let shown = || {
        let view = vault.mount_with(&["--reverse"]);
        let shown = command::sh("/", dump, &[view.path()], 30);
        view.unmount();
        shown
    };
    let first = shown();
    assert_eq!(first, shown(), "attributes differ over two mounts");
    let values: Vec<&str> = first.lines().filter_map(|line| line.split_once("=0x")).map(|(_, v)| v).collect();
    assert!(values.len() >= 8, "{first}");
    assert!(!["text", "link", "yes"].iter().any(|plain| {
        let hex: String = plain.bytes().map(|byte| format!("{byte:02x}")).collect();
        first.contains(&hex)
    }));
    // Both names of the linked file show the same stored value; another file with the same attribute
    // does not.
    let mut different = values.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(values.len() - different.len(), 2, "{first}");
}

#[test]
fn a_filesystem_user_id_does_not_get_in() {
    if !ready_as_root(&["python3"]) {
        return;
    }
    let vault = plain(|dir| fs::write(dir.join("file"), b"content").expect("file"));
    let view = vault.mount_with(&["--reverse"]);
    let script = "import ctypes, os, sys, time
def denied(call):
    try:
        call()
    except PermissionError:
        return True
view = sys.argv[1]
config = os.path.join(view, 'warpcrypt.json')
calls = [lambda: os.listdir(view), lambda: open(config).close(), lambda: os.listxattr(view)]
assert not any(denied(call) for call in calls)
ctypes.CDLL(None).setfsuid(61001)
assert all(denied(call) for call in calls)
# The kernel holds names for a second.
time.sleep(2)
assert denied(lambda: os.stat(os.path.join(view, 'warpcrypt.dir')))
";
    ok(Command::new("python3").args(["-c", script]).arg(view.path()), 30);
    view.unmount();
}

#[test]
fn keys_of_a_plain_directory_change_and_all_else_is_refused() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| fs::write(dir.join("file"), b"content").expect("file"));
    let config = vault.store.join(".warpcrypt.reverse.json");
    let before = fs::read(&config).expect("configuration");
    let new = vault.place_path().join("new key");
    fs::write(&new, [7; 32]).expect("key");
    ok(&mut vault.add_key(&new), 60);
    assert!(fs::read(&config).expect("configuration") != before);
    assert_eq!(fs::metadata(&config).expect("configuration").mode() & 0o777, 0o600);
    let list = ok(Vault::program().args(["key", "list"]).arg(&vault.store), 60);
    let slot = list.lines().last().and_then(|line| line.split_whitespace().next()).expect("a slot");
    ok(
        Vault::program()
            .args(["key", "remove"])
            .arg(&vault.store)
            .arg(slot)
            .arg("--key-file")
            .arg(&vault.key),
        60,
    );
    let mut wrong = Vault::program();
    wrong.args(["mount", "--reverse"]).arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&new);
    assert_ne!(command::run(&mut wrong, 60).code(), 0, "a removed key opens the view");
    for name in ["check", "key rotate", "mount"] {
        let mut other = Vault::program();
        other.args(name.split(' ')).arg(&vault.store);
        if name == "mount" {
            other.arg(&vault.mount_point);
        }
        let done = command::run(other.arg("--key-file").arg(&vault.key), 60);
        assert!(
            done.code() != 0 && done.stderr.contains("a directory of plain files"),
            "{name}: {}",
            done.stderr
        );
    }
    let mut left =
        fs::read_dir(&vault.store).expect("plain").flatten().map(|e| e.file_name()).collect::<Vec<_>>();
    left.sort();
    assert_eq!(left, [".warpcrypt.reverse.json", "file"]);
}

#[test]
fn equal_files_share_no_stored_page() {
    if !ready(&[]) {
        return;
    }
    let content = Random::from_seed(4).bytes(100 * 4096);
    let vault = plain(|dir| {
        fs::write(dir.join("one"), &content).expect("file");
        fs::create_dir(dir.join("below")).expect("directory");
        fs::write(dir.join("below/one"), &content).expect("file");
    });
    let view = vault.mount_with(&["--reverse"]);
    let files =
        store::walk(view.path()).into_iter().filter(|p| p.metadata().is_ok_and(|m| m.len() > 100 * 4096));
    let files: Vec<Vec<u8>> = files.map(|path| fs::read(path).expect("view")).collect();
    let [one, other] = &files[..] else { panic!("{} files", files.len()) };
    let pages: Vec<&[u8]> = one.chunks(4096).collect();
    assert!(pages.len() > 100 && other.chunks(4096).all(|page| !pages.contains(&page)));
    view.unmount();
}

/// Something mounted in the plain directory, unmounted on drop.
struct Submount(PathBuf);

impl Submount {
    /// A tmpfs on a new directory.
    fn tmpfs(place: PathBuf) -> Submount {
        fs::create_dir(&place).expect("directory");
        Submount::over(place)
    }

    /// A tmpfs on an existing directory.
    fn over(place: PathBuf) -> Submount {
        ok(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&place), 30);
        Submount(place)
    }

    /// Another name for a file or a directory.
    fn bind(from: &Path, place: PathBuf) -> Submount {
        ok(Command::new("mount").arg("--bind").arg(from).arg(&place), 30);
        Submount(place)
    }
}

impl Drop for Submount {
    fn drop(&mut self) {
        command::run(Command::new("umount").arg("-l").arg(&self.0), 30);
    }
}

/// The two filesystems use the same inode number for different files.
#[test]
fn linked_files_of_two_filesystems_share_no_stored_page() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let content = Random::from_seed(5).bytes(100 * 4096);
    let vault = plain(|_| ());
    let below = ["a", "b"].map(|name| Submount::tmpfs(vault.store.join(name)));
    let numbers = below.each_ref().map(|Submount(dir)| {
        fs::write(dir.join("one"), &content).expect("file");
        fs::hard_link(dir.join("one"), dir.join("two")).expect("link");
        fs::metadata(dir.join("one")).expect("file").ino()
    });
    assert_eq!(numbers[0], numbers[1], "nothing is tried");
    let view = vault.mount_with(&["--reverse"]);
    let files =
        store::walk(view.path()).into_iter().filter(|p| p.metadata().is_ok_and(|m| m.len() > 100 * 4096));
    let mut firsts: Vec<Vec<u8>> =
        files.map(|path| fs::read(path).expect("view")[4096..8192].to_vec()).collect();
    assert_eq!(firsts.len(), 4);
    firsts.sort();
    firsts.dedup();
    assert_eq!(firsts.len(), 4, "two files have one key");
    view.unmount();
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_mixed() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| fs::write(dir.join("file"), vec![1; 8 << 20]).expect("file"));
    let view = vault.mount_with(&["--reverse"]);
    let large = store::walk(view.path()).into_iter().find(|p| p.metadata().is_ok_and(|m| m.len() > 8 << 20));
    let path = large.expect("the file");
    let mut file = File::open(&path).expect("view");
    file.read_exact(&mut [0; 4096]).expect("header");
    fs::write(vault.store.join("file"), vec![2; 8 << 20]).expect("file");
    assert!(file.read_to_end(&mut Vec::new()).is_err(), "two contents in one file");
    assert!(vault.log_text().contains("cannot be read for the view"), "{}", vault.log_text());
    drop(file);
    fs::read(&path).expect("opened again it is readable");
    view.unmount();
}

/// Programs copy exactly as many bytes as the reported size, and the header page matches a file of that
/// size.
#[test]
fn a_file_that_grows_has_the_size_that_was_told() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| fs::write(dir.join("file"), vec![1; 70_000]).expect("file"));
    let view = vault.mount_with(&["--reverse"]);
    let path = store::walk(view.path()).into_iter().find(|p| p.metadata().is_ok_and(|m| m.len() > 70_000));
    let path = path.expect("the file");
    let grow = |more: usize| {
        let mut file = File::options().append(true).open(vault.store.join("file")).expect("plain file");
        file.write_all(&vec![2; more]).expect("grow");
    };
    let mut last = path.metadata().expect("view").len();
    for _ in 0..5 {
        grow(10_000);
        // The kernel still has the old size cached.
        let mut file = File::open(&path).expect("view");
        let told = file.metadata().expect("view").len();
        assert_eq!(told, last + 10_000);
        let mut shown = Vec::new();
        file.read_to_end(&mut shown).expect("view");
        assert_eq!(shown.len() as u64, told);
        last = told;
    }
    let mut file = File::open(&path).expect("view");
    grow(1);
    let error = file.read(&mut [0; 4096]).expect_err("a header that does not go with the size");
    assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    drop(file);
    view.unmount();
}

/// Otherwise a copy would lose the entry or its siblings.
#[test]
fn what_cannot_be_looked_at_is_listed_and_fails_alone() {
    if !ready_as_root(&["rsync"]) {
        return;
    }
    let vault = plain(|dir| {
        fs::create_dir(dir.join("dead")).expect("directory");
        fs::write(dir.join("file"), b"content").expect("file");
    });
    let mut other = Vault::new("aes-256-ctr");
    other.mount_point = vault.store.join("dead");
    let dead = other.mount();
    dead.kill_server();
    let view = vault.mount_with(&["--reverse"]);
    let shown: Vec<_> = fs::read_dir(view.path()).expect("view").map(|e| e.expect("entry").path()).collect();
    // Five entries, three of which are the vault's own files.
    assert_eq!(shown.len(), 5, "{shown:?}");
    let errors: Vec<_> = shown.iter().filter_map(|p| fs::symlink_metadata(p).err()).collect();
    assert!(matches!(&errors[..], [e] if e.raw_os_error() == Some(libc::ENOTCONN)), "{errors:?}");
    view.unmount();
    dead.kill();
}

/// A mount has at most 16 event loops, and the first read of a large file reads the whole file.
#[test]
fn first_reads_of_large_files_keep_nobody_waiting() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = plain(|dir| {
        fs::create_dir(dir.join("slow")).expect("directory");
        fs::write(dir.join("file"), b"content").expect("file");
    });
    let mut other = Vault::new("aes-256-ctr");
    other.mount_point = vault.store.join("slow");
    let filled = other.mount();
    fs::write(filled.join("large"), vec![1; 8 << 20]).expect("file");
    let slow = filled.remount();
    let view = vault.mount_with(&["--reverse"]);
    let is_large = |p: &PathBuf| p.metadata().is_ok_and(|m| m.len() > 8 << 20);
    let large = store::walk(view.path()).into_iter().find(is_large).expect("the large file");
    let handles: Vec<File> = (0..16).map(|_| File::open(&large).expect("view")).collect();
    stop(slow.pid);
    let readers =
        handles.into_iter().map(|mut file| std::thread::spawn(move || file.read_exact(&mut [0; 4096])));
    let readers: Vec<_> = readers.collect();
    // By then all readers are blocked and the kernel's cached attributes have expired.
    std::thread::sleep(Duration::from_secs(2));
    let (to, from) = channel();
    let config = view.join("warpcrypt.json");
    let other_reader = std::thread::spawn(move || to.send(config.metadata().is_ok()));
    let answered = from.recv_timeout(Duration::from_secs(20));
    kill_process(slow.pid, Signal::CONT).expect("go on");
    readers.into_iter().for_each(|reader| reader.join().expect("reader").expect("a first read"));
    let _ = other_reader.join().expect("a thread");
    assert_eq!(answered, Ok(true));
    view.unmount();
    slow.unmount();
}

#[test]
fn a_file_above_16_tib_is_left_out_and_logged() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let vault = plain(|_| ());
    let below = Submount::tmpfs(vault.store.join("memory"));
    for (name, size) in [("largest", 1 << 44), ("larger", (1 << 44) + 1)] {
        File::create(below.0.join(name)).and_then(|file| file.set_len(size)).expect("file");
    }
    let view = vault.mount_with(&["--reverse"]);
    let large =
        store::walk(view.path()).into_iter().filter(|p| p.metadata().is_ok_and(|m| m.len() > 1 << 44));
    assert_eq!(large.count(), 1);
    assert!(vault.log_text().contains("memory/larger: omitted"), "{}", vault.log_text());
    view.unmount();
}

#[test]
fn linked_names_stay_one_file_when_the_kernel_forgets() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = plain(|dir| {
        for i in 0..20 {
            let name = dir.join(format!("{i}"));
            fs::write(&name, vec![1; 5000 + i]).expect("file");
            fs::hard_link(&name, dir.join(format!("{i} too"))).expect("link");
        }
    });
    let view = vault.mount_with(&["--reverse"]);
    let numbers = || {
        let files = store::walk(view.path()).into_iter().filter_map(|p| p.metadata().ok());
        let mut all: Vec<_> = files.filter(|m| m.nlink() == 2).map(|m| (m.len(), m.ino())).collect();
        all.sort_unstable();
        all
    };
    let before = numbers();
    let files = before.iter().filter(|(size, _)| *size > 5000).count();
    assert_eq!(files, 40);
    fs::write("/proc/sys/vm/drop_caches", "2").expect("caches");
    assert_eq!(numbers(), before);
    view.unmount();
}

/// Stored names of a directory's entries, without the vault's own files.
fn stored_names(dir: &Path) -> Vec<PathBuf> {
    let is_own = |path: &PathBuf| {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        name == "warpcrypt.dir" || name.ends_with(".name") || name.starts_with("warpcrypt.json")
    };
    fs::read_dir(dir).expect("view").map(|e| e.expect("entry").path()).filter(|p| !is_own(p)).collect()
}

/// Long names remembered from a listing are only hints.
#[test]
fn a_long_name_is_never_that_of_another_file() {
    if !ready(&[]) {
        return;
    }
    let [first, second] = ["1", "2"].map(|digit| digit.repeat(200));
    let vault = plain(|dir| {
        for below in ["a", "b"] {
            fs::create_dir(dir.join(below)).expect("directory");
            fs::write(dir.join(below).join(&first), below).expect("file");
        }
    });
    let view = vault.mount_with(&["--reverse"]);
    let dirs: Vec<_> = stored_names(view.path()).into_iter().filter(|path| path.is_dir()).collect();
    let [one, other] = &dirs[..] else { panic!("{dirs:?}") };
    let ([at_one], [at_other]) = (&stored_names(one)[..], &stored_names(other)[..]) else { panic!("names") };
    let name = |path: &Path| path.file_name().expect("name").to_owned();
    let sidecar = |path: &Path| {
        let mut sidecar = path.as_os_str().to_owned();
        sidecar.push(".name");
        PathBuf::from(sidecar)
    };
    for moved in [one.join(name(at_other)), other.join(name(at_one))] {
        assert!(!moved.exists() && !sidecar(&moved).exists(), "a name of another directory");
    }
    for below in ["a", "b"] {
        fs::rename(vault.store.join(below).join(&first), vault.store.join(below).join(&second))
            .expect("rename");
    }
    std::thread::sleep(Duration::from_secs(2)); // The kernel may cache the view's names for a second.
    assert!(!at_one.exists() && !sidecar(at_one).exists(), "a name that is gone");
    let [now] = &stored_names(one)[..] else { panic!("names") };
    assert!(now != at_one && sidecar(now).exists());
    view.unmount();
}

/// The next copy would restore the old configuration without rewriting any file.
#[test]
fn a_copy_with_plain_names_gets_no_other_key() {
    if !ready_as_root(&["rsync"]) {
        return;
    }
    let vault = plain(|dir| fs::write(dir.join("file"), b"content").expect("file"));
    fs::remove_file(vault.store.join(".warpcrypt.reverse.json")).expect("configuration");
    let mut init = Vault::program();
    init.args(["init", "--reverse", "--names", "plain"]).arg(&vault.store).arg("--key-file").arg(&vault.key);
    ok(&mut init, 60);
    let copy = copied(&vault, RSYNC);
    let done = copy.rotate(&[]);
    assert!(done.code() == 1 && done.stderr.contains("copy of a reverse view"), "{}", done.stderr);
    check(&copy);
    // Any other vault with plain names can be rotated.
    let done = Vault::with("aes-256-ctr", &["--names", "plain"]).rotate(&[]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
}

#[test]
fn nothing_outside_of_the_plain_directory_shows_and_nothing_is_written() {
    if !ready(&[]) {
        return;
    }
    let outside = tempfile::tempdir().expect("directory");
    fs::write(outside.path().join("secret"), b"outside").expect("file");
    let vault = plain(|dir| {
        fs::create_dir(dir.join("sub")).expect("directory");
        fs::write(dir.join("sub/secret"), b"inside").expect("file");
        symlink(outside.path(), dir.join("out")).expect("link");
    });
    let view = vault.mount_with(&["--reverse"]);
    assert!(fs::write(view.join("new"), b"x").is_err());
    assert!(fs::remove_file(view.join("warpcrypt.json")).is_err());
    let sub =
        fs::read_dir(view.path()).expect("view").flatten().find(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let sub = sub.expect("the directory").path();
    let stored = store::walk(&sub).into_iter().find(|p| p.metadata().is_ok_and(|m| m.len() == 4096 + 6));
    let stored = stored.expect("the file");
    // A symlink replaces the directory while the kernel has it cached.
    fs::rename(vault.store.join("sub"), vault.store.join("aside")).expect("rename");
    symlink(outside.path(), vault.store.join("sub")).expect("link");
    assert!(fs::read(&stored).is_err(), "a link was followed out of the plain directory");
    view.unmount();
}

#[test]
fn a_view_is_shown_with_the_owner_that_is_asked_for() {
    if !ready(&["find"]) {
        return;
    }
    let vault = plain(|dir| {
        fs::create_dir(dir.join("dir")).expect("directory");
        fs::write(dir.join("dir/file"), b"content").expect("file");
    });
    let view = vault.mount_with(&["--reverse", "-o", "uid=61001,gid=61002"]);
    let owners = command::sh(view.path(), "find . -printf '%U:%G\\n' | sort -u", &[], 30);
    assert_eq!(owners, "61001:61002\n");
    view.unmount();
}

//! Parts of the plain directory that a view leaves out.

use super::{RSYNC, Submount, check, copied, copied_with, plain, stored_names};
use crate::support::{
    command::{self, ok, run},
    is_proof,
    mounted::Vault,
    random::Random,
    ready, ready_as_root, store, tree,
    waiting::{stop, wait_for},
};
use rustix::process::{Signal, kill_process};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io::ErrorKind,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt, symlink},
        },
    },
    path::{Path, PathBuf},
    sync::mpsc::channel,
    time::Duration,
};

/// Names that patterns treat differently.
const NAMES: [&[u8]; 24] = [
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"a.b",
    b".a",
    b"a b",
    b"a ",
    b" a",
    b"[a",
    b"{a}",
    b"{a,b}",
    b"a,b",
    b"!a",
    b"#a",
    b"a\\",
    b"a-b",
    b"A",
    "é".as_bytes(),
    "aé".as_bytes(),
    b"\xe9",
    b"a\xff",
    b"*",
    b"a\nb",
];

/// Files with these names, and with long ones, in directories with such names.
fn fill(dir: &Path) {
    fill_level(dir, 1);
    symlink("a", dir.join("ab.link")).expect("link");
    fs::write(dir.join("b".repeat(200)), b"long").expect("file");
    let long = dir.join("a".repeat(200));
    fs::create_dir(&long).expect("directory");
    fs::write(long.join("a".repeat(250)), b"long").expect("file");
}

/// Every `step`-th name is used.
fn fill_level(dir: &Path, step: usize) {
    for (i, name) in NAMES.iter().enumerate().step_by(step) {
        let path = dir.join(OsStr::from_bytes(name));
        if step < 9 && i % 4 != 1 {
            fs::create_dir(&path).expect("directory");
            fill_level(&path, 3 * step);
        } else {
            fs::write(path, name).expect("file");
        }
    }
}

/// The files of the plain directory that Git does not ignore.
fn kept_by_git(vault: &Vault, list: &Path) -> BTreeSet<Vec<u8>> {
    let script = "git init -q --bare \"$1\"
        git --git-dir=\"$1\" --work-tree=. ls-files -z --others --exclude-from=\"$2\" >\"$3\"";
    let [git, kept] = ["git", "kept"].map(|name| vault.place_path().join(name));
    command::sh(&vault.store, script, &[&git, list, &kept], 60);
    let kept = fs::read(kept).expect("list");
    let paths = kept.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.filter(|path| *path != b".warpcrypt.reverse.json").map(<[u8]>::to_vec).collect()
}

/// Paths of all files below a directory.
fn files(dir: &Path) -> BTreeSet<Vec<u8>> {
    let below = |path: PathBuf| path.strip_prefix(dir).expect("below").as_os_str().as_bytes().to_vec();
    store::walk(dir).into_iter().map(below).collect()
}

/// Asserts that a vault restored from the view has exactly the files that Git does not ignore.
fn assert_as_git(vault: &Vault, list: &str) {
    let [file, restored] = ["list", "restored"].map(|name| vault.place_path().join(name));
    fs::write(&file, list).expect("list");
    let view = vault.mount_with(&["--reverse", "--exclude-from", file.to_str().expect("path")]);
    let mut export = Vault::program();
    export.arg("export").arg(view.path()).arg(&restored).arg("--key-file").arg(&vault.key);
    ok(&mut export, 60);
    view.unmount();
    let (shown, kept) = (files(&restored), kept_by_git(vault, &file));
    let differ: Vec<_> = shown.symmetric_difference(&kept).map(|p| String::from_utf8_lossy(p)).collect();
    assert!(differ.is_empty(), "{list:?}: {differ:?}");
    fs::remove_dir_all(restored).expect("remove");
}

/// A pattern that Git reads as its documentation says. (Git takes `x**/` for `x*/**/`.)
fn random_pattern(random: &mut Random) -> String {
    const PARTS: [&str; 26] = [
        "a",
        "b",
        "a",
        "b",
        "ab",
        "*",
        "*",
        "?",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-b]",
        "[{]",
        "[]a]",
        "[[:alpha:]]",
        ".",
        "é",
        "{",
        "}",
        ",",
        "\\*",
        "\\{",
        "a b",
        "-",
        "!",
        "#",
    ];
    let mut one_of = |chances: u64| random.below(chances) == 0;
    let mut pattern = String::new();
    pattern += if one_of(3) { "!" } else { "" };
    pattern += if one_of(3) { "/" } else { "" };
    for level in 0..1 + random.below(3) {
        pattern += if level > 0 { "/" } else { "" };
        if random.below(5) == 0 {
            pattern += "**";
            continue;
        }
        let mut component = String::new();
        for _ in 0..1 + random.below(2) {
            component += PARTS[random.below(PARTS.len() as u64) as usize];
        }
        pattern += &component.replace("**", "*");
    }
    pattern += if random.below(4) == 0 { "/" } else { "" };
    pattern
}

#[test]
fn a_view_leaves_out_what_git_ignores() {
    if !ready(&["git"]) {
        return;
    }
    let vault = plain(fill);
    assert_as_git(&vault, "");
    assert_as_git(&vault, "\u{feff}a\r\n# b\r\n\r\nba   \r\na\\ \r\n\\#a\n\\!a\n");
    assert_as_git(&vault, "*\n!/ab\n!/ab/a*\n!*/\n");
    assert_as_git(&vault, "a?\n[!a]\n");
    let mut random = Random::from_seed(6);
    for _ in 0..if is_proof() { 300 } else { 12 } {
        let lines: Vec<String> = (0..1 + random.below(4)).map(|_| random_pattern(&mut random)).collect();
        assert_as_git(&vault, &lines.join("\n"));
    }
}

/// A tree in which `gone*` excludes nodes of every kind.
fn with_gone(dir: &Path) {
    for below in ["keep", "gone", "keep/gone", "keep/empty"] {
        fs::create_dir(dir.join(below)).expect("directory");
        fs::write(dir.join(below).join("file"), below).expect("file");
        for name in ["kept ", "gone "] {
            fs::write(dir.join(below).join(name.repeat(40)), vec![1; 300_000]).expect("file");
        }
    }
    fs::remove_file(dir.join("keep/empty/file")).expect("remove");
    fs::hard_link(dir.join("keep/file"), dir.join("keep/gone name")).expect("link");
    symlink("keep/file", dir.join("gone link")).expect("link");
    symlink("gone", dir.join("keep/link")).expect("link");
    command::sh(dir, "mkfifo 'gone pipe' pipe", &[], 30);
}

/// Paths of everything below a directory.
fn nodes(dir: &Path) -> BTreeSet<PathBuf> {
    let listed = command::sh(dir, "find . -mindepth 1", &[], 30);
    listed.lines().map(PathBuf::from).collect()
}

#[test]
fn an_excluded_node_exists_nowhere_and_changes_nothing_else() {
    if !ready(&["rsync", "mkfifo"]) {
        return;
    }
    let vault = plain(with_gone);
    let whole = copied(&vault, RSYNC);
    let view = vault.mount_with(&["--reverse", "--exclude", "gone*"]);
    let (all, shown) = (nodes(&whole.store), nodes(view.path()));
    let new: Vec<_> = shown.difference(&all).collect();
    assert!(new.is_empty(), "{new:?}");
    for path in all.difference(&shown) {
        let path = view.join(path);
        let lookup = path.symlink_metadata().expect_err("an excluded name").kind();
        assert_eq!(lookup, ErrorKind::NotFound, "{path:?}");
        assert_eq!(File::open(&path).expect_err("an excluded name").kind(), ErrorKind::NotFound);
    }
    // The link count of a file includes excluded names.
    let linked = store::walk(view.path())
        .into_iter()
        .filter(|path| path.symlink_metadata().expect("status").nlink() == 2);
    assert_eq!(linked.count(), 1);
    // A copy that was made before loses what is excluded now, and nothing else changes.
    let again = "rsync -aHi --delete --checksum \"$1/\" \"$2/\"";
    let changes = command::sh("/", again, &[view.path(), &whole.store], 60);
    // The lock file of the check has changed the time of the root.
    let other: Vec<_> =
        changes.lines().filter(|l| !l.starts_with("*deleting") && *l != ".d..t...... ./").collect();
    assert!(other.is_empty() && changes.contains("*deleting"), "{changes}");
    view.unmount();
    check(&whole);
    let mount = whole.mount();
    let mut expected = nodes(&vault.store);
    expected.retain(|path| {
        !path.components().any(|name| name.as_os_str().as_bytes().starts_with(b"gone"))
            && path != Path::new("./.warpcrypt.reverse.json")
    });
    assert_eq!(nodes(mount.path()), expected);
    mount.unmount();
}

/// No pattern excludes the vault's own files: without them, a copy is not a vault.
#[test]
fn a_view_of_a_single_directory_is_a_vault() {
    if !ready(&["rsync"]) {
        return;
    }
    let vault = plain(|dir| {
        with_gone(dir);
        fs::write(dir.join("warpcrypt.json"), b"a user's own").expect("file");
    });
    let options = ["--exclude", "*", "--exclude", ".*", "--exclude", "!/keep", "--exclude", "!/keep/**"];
    let options = [&options[..], &["--exclude", "/keep/gone/"]].concat();
    let copy = copied_with(&vault, &options, "cp -a \"$1/.\" \"$2/\"");
    let mount = copy.mount();
    fs::remove_dir_all(vault.store.join("keep/gone")).expect("remove");
    assert_eq!(nodes(mount.path()).len(), 1 + nodes(&vault.store.join("keep")).len());
    let difference = "rsync -rlnci --delete \"$1/keep/\" \"$2/keep/\"";
    assert_eq!(command::sh("/", difference, &[&vault.store, mount.path()], 60), "");
    mount.unmount();
}

#[test]
fn changes_of_the_plain_directory_are_followed() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| {
        fs::write(dir.join("cache"), b"a file").expect("file");
        fs::write(dir.join("list"), b"excluded").expect("file");
    });
    let at = |name: &str| vault.store.join(name);
    let view =
        vault.mount_with(&["--reverse", "--exclude", "cache/", "--exclude", "/list", "-o", "exclude=*.tmp"]);
    let [stored] = &stored_names(view.path())[..] else { panic!("{:?}", stored_names(view.path())) };
    let old = File::options().read(true).custom_flags(libc::O_PATH).open(stored).expect("view");
    let through_old = PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd()));
    assert!(File::open(&through_old).is_ok());

    fs::remove_file(at("cache")).expect("remove");
    fs::create_dir(at("cache")).expect("directory");
    fs::write(at("cache/file"), b"excluded").expect("file");
    wait_for("the directory is excluded", || !stored.exists());
    assert!(stored_names(view.path()).is_empty());
    assert!(File::open(&through_old).is_err() && through_old.metadata().is_err());
    drop(old);

    fs::remove_dir_all(at("cache")).expect("remove");
    fs::write(at("cache"), b"a file").expect("file");
    wait_for("the file is back", || stored.exists());
    fs::write(at("new.tmp"), b"new").expect("file");
    assert_eq!(stored_names(view.path()), std::slice::from_ref(stored));
    fs::rename(at("new.tmp"), at("new")).expect("rename");
    assert_eq!(stored_names(view.path()).len(), 2);
    fs::rename(at("cache"), at("cache.tmp")).expect("rename");
    wait_for("the file is excluded", || !stored.exists());
    assert_eq!(stored_names(view.path()).len(), 1);
    view.unmount();
}

#[test]
fn patterns_are_read_once_and_the_command_line_decides() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| {
        for name in ["a.tmp", "b.tmp", "#recycle", "blank ", "c,d", "file"] {
            fs::write(dir.join(name), name).expect("file");
        }
    });
    // A pipe cannot be read a second time.
    let script = "printf '*.tmp\\n\\n# file\\n' | \"$1\" mount --reverse \"$2\" \"$3\" --key-file \"$4\" \
        --exclude-from /dev/stdin --exclude '!b.tmp' --exclude '#recycle' --exclude='blank ' -o 'exclude=c\\,d'";
    let program = crate::support::mounted::program_path();
    command::sh("/", script, &[&program, &vault.store, &vault.mount_point, &vault.key], 60);
    let view = vault.mounted(&[]);
    let mut list = Vault::program();
    list.arg("ls").arg(view.path()).arg("--key-file").arg(&vault.key);
    assert_eq!(ok(&mut list, 60).lines().collect::<Vec<_>>(), ["b.tmp", "file"]);
    view.unmount();
}

#[test]
fn a_malformed_pattern_is_named_before_a_password_is_asked_for() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|_| ());
    let list = vault.place_path().join("list");
    let of_list = |text: &[u8]| {
        fs::write(&list, text).expect("list");
        ["--reverse", "--exclude-from", list.to_str().expect("path")]
    };
    let refused = |options: &[&str], said: &str| {
        let mut mount = Vault::program();
        mount.arg("mount").arg(&vault.store).arg(&vault.mount_point).args(options);
        let done = run(&mut mount, 60);
        assert!(done.stderr.contains(said), "{options:?}: {}", done.stderr);
        assert!(!done.stderr.to_lowercase().contains("password"), "{options:?}: {}", done.stderr);
        done.code()
    };
    for (line, shown) in
        [(&b"[b-a]"[..], "[b-a]"), (b"x[", "x["), (b"x\\", "x\\"), (b"\xe9\r*", "\u{fffd}\u{fffd}*")]
    {
        let text = [b"# comment\n*.o\n", line, b"\n*.tmp\n"].concat();
        let said = format!("list, line 3: the pattern `{shown}`");
        assert_eq!(refused(&of_list(&text), &said), 2);
    }
    assert_eq!(refused(&of_list(&vec![b'a'; (1 << 20) + 1]), "more than 1 MiB"), 2);
    assert_eq!(refused(&["--reverse", "--exclude", "[b-a]"], "--exclude: the pattern `[b-a]`"), 2);
    assert_eq!(refused(&["--reverse", "--exclude", ""], "it is empty"), 2);
    fs::remove_file(&list).expect("remove");
    let missing = ["--reverse", "--exclude-from", list.to_str().expect("path")];
    assert_eq!(refused(&missing, "list: No such file"), 1);
    assert_eq!(refused(&["--exclude", "a"], "`exclude` needs `reverse`"), 2);
    assert_eq!(refused(&["--one-file-system"], "`one-file-system` needs `reverse`"), 2);
}

#[test]
fn other_filesystems_are_shown_as_by_rsync() {
    if !ready_as_root(&["rsync", "mount"]) {
        return;
    }
    let vault = plain(|dir| {
        for name in ["own", "bound", "later", "later/below"] {
            fs::create_dir(dir.join(name)).expect("directory");
        }
        for name in ["own/file", "later/below/file", "bound file"] {
            fs::write(dir.join(name), name).expect("file");
        }
    });
    let at = |name: &str| vault.store.join(name);
    let _memory = Submount::tmpfs(at("memory"));
    for below in ["memory/dir", "memory/own"] {
        fs::create_dir(at(below)).expect("directory");
        fs::write(at(below).join("file"), b"elsewhere").expect("file");
    }
    let _mounts = [
        Submount::bind(&at("own"), at("memory/own")),
        Submount::bind(&at("own"), at("bound")),
        Submount::bind(&at("memory/dir/file"), at("bound file")),
    ];
    let options = ["--reverse", "--one-file-system"];
    let copy = copied_with(&vault, &options[1..], RSYNC);
    let expected = vault.place_path().join("expected");
    let by_rsync = "rsync -aHXx --modify-window=-1 --exclude=/.warpcrypt.reverse.json \"$1/\" \"$2/\"";
    command::sh("/", by_rsync, &[&vault.store, &expected], 60);
    assert!(
        expected.join("bound/file").exists() && fs::read_dir(expected.join("memory")).unwrap().count() == 0
    );
    let mount = copy.mount();
    let time = fs::metadata(mount.path()).and_then(|root| root.modified()).expect("time");
    File::open(&expected).and_then(|root| root.set_modified(time)).expect("time");
    tree::assert_same(&expected, mount.path());
    mount.unmount();

    // A filesystem that is mounted later hides what the view has shown before.
    let view = vault.mount_with(&options);
    let is_below =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.len() == 4096 + "later/below/file".len() as u64);
    let below = store::walk(view.path()).into_iter().find(is_below).expect("the file");
    let old = File::options().read(true).custom_flags(libc::O_PATH).open(&below).expect("view");
    let through_old = PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd()));
    assert!(File::open(&through_old).is_ok());
    let over = Submount::over(at("later"));
    fs::create_dir(at("later/below")).expect("directory");
    fs::write(at("later/below/file"), b"later/below/file").expect("file");
    wait_for("the file is hidden", || !below.exists());
    assert!(File::open(&through_old).is_err());
    drop(old);
    let later = below.ancestors().nth(2).expect("the mount point");
    assert_eq!(fs::read_dir(later).expect("view").count(), 1, "only the directory's id");
    drop(over);
    wait_for("the file is back", || below.exists());
    view.unmount();
}

/// Otherwise a mount that does not answer would block the listing of the directory above it.
#[test]
fn an_excluded_mount_is_not_examined() {
    if !ready(&[]) {
        return;
    }
    let vault = plain(|dir| {
        fs::create_dir(dir.join("slow")).expect("directory");
        fs::write(dir.join("file"), b"content").expect("file");
    });
    let mut other = Vault::new("aes-256-ctr");
    other.mount_point = vault.store.join("slow");
    let slow = other.mount();
    let view = vault.mount_with(&["--reverse", "--exclude", "/slow"]);
    stop(slow.pid);
    std::thread::sleep(Duration::from_secs(2)); // The kernel may have attributes of the mount cached for a second.
    let (to, from) = channel();
    let path = view.path().to_owned();
    let reader = std::thread::spawn(move || to.send(stored_names(&path).len()));
    let listed = from.recv_timeout(Duration::from_secs(20));
    kill_process(slow.pid, Signal::CONT).expect("go on");
    let _ = reader.join().expect("a thread");
    assert_eq!(listed, Ok(1));
    view.unmount();
    slow.unmount();
}

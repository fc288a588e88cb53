//! `ls`, `cat`, `export` and `import`: a tree survives a round trip unchanged, however often the copy is
//! interrupted, and damaged or hostile entries do not affect the rest.

use crate::{
    cli::{codes::Tmpfs, fails},
    support::{
        command::{Running, ok, run, sh},
        mounted::Vault,
        random::Random,
        ready, ready_as_root,
        store::{by_inode, inode, walk},
        tree,
        waiting::wait_for_handlers,
    },
};
use format::layout::{CHUNK, chunk_offset, entries_offset, first_chunk, group_of};
use rustix::{
    fs::{CWD, FileType, Mode, XattrFlags, listxattr, mknodat, setxattr},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const CIPHER: &str = "aes-256-ctr";
/// Number of files in the tree whose copy is interrupted.
const MANY: usize = 200;
/// Number of entries in a vault or a target once copying has started.
const BEGUN: usize = 10;
const EACH: usize = 300_000;

pub fn command(name: &str, vault: &Vault, paths: &[&Path]) -> Command {
    let mut command = Vault::program();
    command.arg(name).arg(&vault.store).args(paths).arg("--key-file").arg(&vault.key);
    command
}

/// Exit code and JSON output of a command.
pub fn json(command: &mut Command) -> (i32, Value) {
    let done = run(command.arg("--json"), 120);
    let value = serde_json::from_slice(&done.stdout);
    (done.code(), value.unwrap_or_else(|e| panic!("{e}: {} {}", done.text(), done.stderr)))
}

/// A path in the vault's temporary directory.
pub fn place(vault: &Vault, name: &str) -> PathBuf {
    vault.place_path().join(name)
}

/// Asserts that two trees are equal: names, types, modes, times, owners, links, contents and attributes.
fn assert_equal(one: &Path, other: &Path) {
    assert_eq!(tree::listing(one), tree::listing(other));
    for path in walk(one) {
        let twin = other.join(path.strip_prefix(one).expect("below"));
        let known = fs::symlink_metadata(&path).expect("stat");
        if known.is_file() && known.len() < 100 << 20 {
            assert!(fs::read(&path).expect("read") == fs::read(&twin).expect("read"), "{path:?} differs");
            assert_eq!(attributes(&path), attributes(&twin), "{path:?}");
        }
    }
}

/// Names of a file's attributes, as the kernel lists them.
fn attributes(path: &Path) -> Vec<u8> {
    let mut names = vec![0; 65536];
    let len = listxattr(path, &mut names[..]).expect("attributes");
    names.truncate(len);
    let mut names: Vec<&[u8]> = names.split(|b| *b == 0).collect();
    names.sort_unstable();
    names.join(&0)
}

/// A tree with every kind of entry; `tree::make` creates most of it.
fn everything(dir: &Path) {
    tree::make(dir, &mut Random::new("transfer"));
    let huge = File::create(dir.join("huge")).expect("file");
    huge.set_len(1 << 30).expect("length");
    for at in [0, 5 << 20, 700 << 20, (1 << 30) - 10] {
        huge.write_all_at(b"not a hole", at).expect("write");
    }
    let shared = dir.join("shared");
    fs::create_dir(&shared).expect("mkdir");
    std::os::unix::fs::chown(&shared, None, Some(4321)).expect("chown");
    fs::set_permissions(&shared, Permissions::from_mode(0o2775)).expect("chmod");
    fs::write(shared.join("of the group"), "x").expect("write");
    setxattr(&shared, "user.of a directory", b"\x00value", XattrFlags::empty()).expect("attribute");
    mknodat(CWD, dir.join("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o620), 0x0103)
        .expect("device");
    fs::set_permissions(dir.join("level-0/level-1"), Permissions::from_mode(0o500)).expect("chmod");
}

/// Numbers of copied files, directories and others, and of entries that already existed.
pub fn counts(value: &Value) -> [u64; 4] {
    ["files", "directories", "others", "present"].map(|key| value[key].as_u64().expect("a number"))
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let (source, out) = (place(&vault, "source"), place(&vault, "out"));
    everything(&source);
    let nodes: u64 =
        sh(&source, "find . -mindepth 1 -printf x | wc -c", &[], 60).trim().parse().expect("a number");
    let none = Value::Array(Vec::new());
    let (code, value) = json(&mut command("import", &vault, &[&source]));
    assert_eq!((code, &value["problems"], &value["not_kept"]), (0, &none, &none));
    assert_eq!(counts(&value)[..3].iter().sum::<u64>(), nodes);

    let mount = vault.mount();
    assert_equal(&source, mount.path());
    assert_eq!(fs::metadata(mount.join("huge")).expect("stat").len(), 1 << 30);
    mount.unmount();
    let stored: u64 =
        walk(&vault.store).iter().map(|p| fs::symlink_metadata(p).expect("stat").blocks()).sum();
    assert!(stored * 512 < 100 << 20, "holes are stored as holes");

    let (code, value) = json(command("export", &vault, &[&out]).arg("--trust-metadata"));
    assert_eq!((code, &value["problems"], &value["not_kept"]), (0, &none, &none));
    assert_equal(&source, &out);
    let huge = fs::metadata(out.join("huge")).expect("stat");
    assert!(huge.blocks() * 512 < 1 << 20, "holes stay holes");
    ok(Command::new("cmp").arg(source.join("huge")).arg(out.join("huge")), 60);

    let directories = counts(&value)[1];
    let mut trusting = command("export", &vault, &[&out]);
    trusting.arg("--trust-metadata");
    for mut again in [trusting, command("import", &vault, &[&source])] {
        let (code, value) = json(&mut again);
        assert_eq!((code, counts(&value)), (0, [0, 0, 0, nodes - directories]), "{again:?}");
    }
    assert_equal(&source, &out);
    let listed = json(command("ls", &vault, &[]).arg("-R")).1["entries"].as_array().expect("a list").len();
    assert_eq!(listed as u64, nodes);
}

/// The entry in the store's root for a path in a mount.
fn stored_at(vault: &Vault, mounted: &Path) -> PathBuf {
    by_inode(&vault.store).remove(&inode(mounted)).expect("stored")
}

/// Asserts that no entry in a tree gained rights or a type from its metadata alone.
fn assert_harmless(tree: &Path) {
    for path in walk(tree) {
        let known = fs::symlink_metadata(&path).expect("stat");
        assert!(known.is_file() || known.is_dir() || known.is_symlink(), "{path:?} is special");
        assert_eq!((known.uid(), known.gid()), (0, 0), "{path:?}");
        assert_eq!(known.mode() & 0o6000, 0, "{path:?}");
        assert!(!attributes(&path).windows(10).any(|name| name == b"capability"), "{path:?}");
    }
}

#[test]
fn what_a_writer_of_the_store_made_of_files_is_not_exported() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let (source, out, trusted) = (place(&vault, "source"), place(&vault, "out"), place(&vault, "trusted"));
    fs::create_dir_all(source.join("folder")).expect("mkdir");
    for name in ["shell", "hidden", "waits", "listens", "program", "whole"] {
        fs::write(source.join(name), name).expect("write");
    }
    // CAP_SETUID, effective and permitted, as `setcap cap_setuid+ep` stores it.
    let capabilities = [1, 0, 0, 2, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(source.join("program"), "security.capability", &capabilities, XattrFlags::empty())
        .expect("attribute");
    ok(&mut command("import", &vault, &[&source]), 60);
    let mount = vault.mount();
    let stored = |name: &str| stored_at(&vault, &mount.join(name));
    let shell = stored("shell");
    let is_dir = |path: &PathBuf| path.is_dir();
    let folder =
        fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").path()).find(is_dir);
    let folder = folder.expect("the only directory");
    let special = ["hidden", "waits", "listens"].map(stored);
    mount.unmount();
    for path in [&shell, &folder] {
        std::os::unix::fs::chown(path, Some(1234), Some(0)).expect("chown");
        fs::set_permissions(path, Permissions::from_mode(0o6755)).expect("chmod");
    }
    std::os::unix::fs::chown(&shell, Some(0), Some(0)).expect("chown");
    fs::set_permissions(&shell, Permissions::from_mode(0o4755)).expect("chmod");
    for (path, kind) in special.iter().zip([FileType::BlockDevice, FileType::Fifo, FileType::Socket]) {
        fs::remove_file(path).expect("remove");
        mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), 0x0700).expect("special file");
    }

    let done = run(&mut command("export", &vault, &[&out]), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert!(done.text().contains("Left out: 3 pipes, sockets and devices"), "{}", done.text());
    for what in ["\"owner\" of 1 ", "\"set-user-id or set-group-id\" of 2 ", "\"security.capability\" of 1 "]
    {
        assert!(done.text().contains(what), "{what}: {}", done.text());
    }
    assert!(done.stderr.contains("\"hidden\": a special file"), "{}", done.stderr);
    assert_harmless(&out);
    for name in ["shell", "program", "whole"] {
        assert_eq!(fs::read(out.join(name)).expect("read"), name.as_bytes());
    }
    let folder = fs::metadata(out.join("folder")).expect("stat");
    assert!((folder.uid(), folder.mode() & 0o6000) == (0, 0) && !out.join("hidden").exists());
    let (code, value) = json(&mut command("export", &vault, &[&out]));
    assert_eq!((code, &value["special_left_out"]), (0, &Value::from(3)));

    ok(command("export", &vault, &[&trusted]).arg("--trust-metadata"), 60);
    assert_eq!(fs::metadata(trusted.join("shell")).expect("stat").mode() & 0o7777, 0o4755);
    assert_eq!(fs::metadata(trusted.join("folder")).expect("stat").uid(), 1234);
    assert!(fs::symlink_metadata(trusted.join("hidden")).expect("stat").mode() & 0o170000 == 0o060000);
    assert!(attributes(&trusted.join("program")).windows(10).any(|name| name == b"capability"));
}

#[test]
fn files_and_folders_alone_go_where_they_are_told() {
    let vault = Vault::new(CIPHER);
    let (source, out) = (place(&vault, "source"), place(&vault, "out"));
    fs::create_dir_all(source.join("folder")).expect("mkdir");
    fs::write(source.join("folder/file"), "content").expect("write");
    let file = source.join("folder/file");
    for (from, to) in [(&source, "a"), (&file, "renamed"), (&file, "a/folder")] {
        ok(&mut command("import", &vault, &[from, Path::new(to)]), 60);
    }
    let listed = run(command("ls", &vault, &[]).arg("-R"), 60).text();
    assert_eq!(listed, "a\nrenamed\na/folder\na/folder/file\n");
    ok(&mut command("export", &vault, &[Path::new("a/folder"), &out]), 60);
    ok(&mut command("export", &vault, &[Path::new("/renamed"), &out]), 60);
    ok(&mut command("export", &vault, &[Path::new("renamed"), &out.join("again")]), 60);
    for name in ["file", "renamed", "again"] {
        assert_eq!(fs::read(out.join(name)).expect("read"), b"content");
    }
    assert_eq!(fs::read_dir(&out).expect("list").count(), 3);
    fails(&mut command("export", &vault, &[Path::new("missing"), &out]), 1, "missing");
    fails(&mut command("export", &vault, &[&out.join("no/target")]), 1, "no/target");
    fails(&mut command("import", &vault, &[&source, Path::new("renamed")]), 1, "renamed");
    fails(&mut command("import", &vault, &[&vault.store]), 2, "inside the vault");
    fails(&mut command("export", &vault, &[&vault.store.join("inside")]), 2, "inside the vault");
    let done = run(&mut command("import", &vault, &[vault.place_path(), Path::new("all")]), 60);
    assert!(
        done.code() == 41 && done.stderr.contains("\"vault\": it is the vault itself"),
        "{}",
        done.stderr
    );
    let listed = run(command("ls", &vault, &[Path::new("all")]).arg("-R"), 60).text();
    assert!(listed.contains("out/renamed") && !listed.contains("vault/"), "{listed}");
}

/// Starts a command and interrupts it once there are `names` entries below `watched`. Returns whether it
/// was interrupted before it finished.
fn interrupt(mut command: Command, watched: &Path, names: usize) -> bool {
    let running = Running::start(&mut command);
    let pid = Pid::from_raw(running.pid() as i32).expect("a process");
    wait_for_handlers(running.pid());
    let ended =
        || fs::read_to_string(format!("/proc/{}/stat", running.pid())).is_ok_and(|s| s.contains(") Z"));
    while !ended() && (!watched.exists() || walk(watched).len() < names) {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(pid, Signal::INT).expect("kill");
    let done = running.finish(Duration::from_secs(60));
    assert!([0, 130].contains(&done.code()), "{}: {}", done.code(), done.stderr);
    done.code() == 130
}

#[test]
fn what_was_interrupted_goes_on_where_it_stopped() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("transfer interrupted");
    let vault = Vault::new(CIPHER);
    let (source, out) = (place(&vault, "source"), place(&vault, "out"));
    for number in 0..MANY {
        let folder = source.join(format!("{}", number % 7));
        fs::create_dir_all(&folder).expect("mkdir");
        fs::write(folder.join(format!("{number}")), random.bytes(EACH)).expect("write");
    }
    let import = || command("import", &vault, &[&source]);
    let export = || command("export", &vault, &[&out]);
    let mut interrupted = 0;
    for quarter in 0..4 {
        let names = BEGUN + MANY / 4 * quarter + random.below(MANY as u64 / 4) as usize;
        interrupted += usize::from(interrupt(import(), &vault.store, names));
        let done = run(Vault::program().arg("check").arg(&vault.store).arg("--key-file").arg(&vault.key), 60);
        assert_eq!(done.code(), 0, "{}", done.text());
        assert!(!run(command("ls", &vault, &[]).arg("-R"), 60).text().contains(".part"), "nothing half");
    }
    ok(&mut import(), 120);
    for quarter in 0..4 {
        let names = BEGUN + MANY / 4 * quarter + random.below(MANY as u64 / 4) as usize;
        interrupted += usize::from(interrupt(export(), &out, names));
        for path in if out.exists() { walk(&out) } else { Vec::new() } {
            let original = source.join(path.strip_prefix(&out).expect("below"));
            assert!(fs::read(&path).expect("read") == fs::read(original).expect("read"), "{path:?}");
        }
    }
    ok(&mut export(), 120);
    assert!(interrupted > 0, "nothing was interrupted");
    assert_equal(&source, &out);
    let mount = vault.mount();
    assert_equal(&source, mount.path());
    mount.unmount();
}

#[test]
fn a_full_disk_keeps_what_is_whole() {
    if !ready_as_root(&[]) {
        return;
    }
    let place = Vault::new(CIPHER);
    let [disk, source] = ["disk", "source"].map(|name| place.place_path().join(name));
    let _tmpfs = Tmpfs::new(&disk, "8m");
    let vault = Vault::at(&disk.join("vault"), CIPHER);
    fs::create_dir(&source).expect("mkdir");
    for number in 0..20 {
        fs::write(source.join(format!("{number}")), vec![number; 1_000_000]).expect("write");
    }
    let room = |size| sh("/", "mount -o remount,size=$2 \"$1\"", &[&disk, Path::new(size)], 30);
    let out = disk.join("out");
    let (import, export) = (|| command("import", &vault, &[&source]), || command("export", &vault, &[&out]));
    for (step, copy) in [&import as &dyn Fn() -> Command, &export].iter().enumerate() {
        let (code, value) = json(&mut copy());
        let [kept, ..] = counts(&value);
        assert!(code == 31 && kept < 20, "{code}: {value}");
        room(["28m", "64m"][step]);
        let (code, value) = json(&mut copy());
        assert!(code == 0 && counts(&value)[0] <= 20, "{code}: {value}");
    }
    assert_equal(&source, &out);
}

#[test]
fn what_a_kill_left_is_removed() {
    let vault = Vault::new(CIPHER);
    let (source, out) = (place(&vault, "source"), place(&vault, "out"));
    let left = ".warpcrypt-0123456789abcdef.part";
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("file"), "content").expect("write");
    fs::create_dir(&out).expect("mkdir");
    fs::write(out.join(left), "half").expect("write");
    fs::write(out.join("mine"), "stays").expect("write");
    ok(&mut command("import", &vault, &[&source]), 60);
    ok(&mut command("export", &vault, &[&out]), 60);
    assert!(!out.join(left).exists() && out.join("mine").exists() && out.join("file").exists());
}

/// A vault with a file of `chunks` chunks among others; returns the vault, that stored file and its
/// content.
fn with_chunks(chunks: u64) -> (Vault, PathBuf, Vec<u8>) {
    let vault = Vault::new(CIPHER);
    let content: Vec<u8> = (0..chunks * CHUNK).map(|at| (at / 5) as u8).collect();
    let mount = vault.mount();
    fs::write(mount.join("file"), &content).expect("write");
    fs::write(mount.join("file.damaged"), "a name of its own").expect("write");
    fs::write(mount.join("other"), "whole").expect("write");
    let number = inode(&mount.join("file"));
    mount.unmount();
    let stored = by_inode(&vault.store)[&number].clone();
    (vault, stored, content)
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("write");
}

#[test]
fn a_damaged_file_is_saved_around_the_damage() {
    if !ready(&[]) {
        return;
    }
    let (vault, stored, mut content) = with_chunks(3000);
    let mount = vault.mount();
    let sparse = File::create(mount.join("sparse")).expect("file");
    sparse.write_all_at(b"behind holes", 900 * CHUNK).expect("write");
    sparse.set_len(1000 * CHUNK).expect("length");
    let number = inode(&mount.join("sparse"));
    drop(sparse);
    mount.unmount();
    let group = |group: u64| (first_chunk(group), first_chunk(group + 1));
    let late = group_of(900);
    flip(&by_inode(&vault.store)[&number], entries_offset(late) + 70);
    for chunk in [7, 8, 2999] {
        flip(&stored, chunk_offset(chunk) + 100);
    }
    flip(&stored, entries_offset(20) + 70);
    for (from, to) in [(7, 9), group(20), (2999, 3000)] {
        content[(from * CHUNK) as usize..(to * CHUNK) as usize].fill(0);
    }
    let out = place(&vault, "out");
    for _ in 0..2 {
        let (code, value) = json(&mut command("export", &vault, &[&out]));
        assert_eq!(code, 41);
        let found = value["problems"].as_array().expect("a list").iter();
        let found = found.map(|p| (p["path"].as_str(), p["first_byte"].as_u64(), p["last_byte"].as_u64()));
        let range = |name, (from, to): (u64, u64)| (Some(name), Some(from * CHUNK), Some(to * CHUNK - 1));
        let in_file = [(7, 9), group(20), (2999, 3000)].map(|chunks| range("file", chunks));
        assert_eq!(found.collect::<Vec<_>>(), [&in_file[..], &[range("sparse", group(late))]].concat());
        assert_eq!(value["problems"][0]["saved_as"], "file.damaged-2");
    }
    assert!(fs::read(out.join("file.damaged-2")).expect("read") == content);
    assert_eq!(fs::read(out.join("file.damaged")).expect("read"), b"a name of its own");
    assert_eq!(fs::read(out.join("other")).expect("read"), b"whole");
    assert_eq!(fs::metadata(out.join("sparse.damaged")).expect("stat").len(), 1000 * CHUNK);
    assert_eq!(fs::read_dir(&out).expect("list").count(), 4);

    let paths = ["other", "file"].map(Path::new);
    let done = command("cat", &vault, &paths).output().expect("started");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(41) && said.contains("byte 28672"), "{said}");
    assert!(done.stdout == [b"whole", &content[..7 * CHUNK as usize]].concat());
}

#[test]
fn a_file_without_a_readable_header_is_named_and_the_rest_copied() {
    if !ready(&[]) {
        return;
    }
    let (vault, stored, _) = with_chunks(3);
    flip(&stored, 100);
    flip(&stored, 612);
    let out = place(&vault, "out");
    let done = run(&mut command("export", &vault, &[&out]), 60);
    assert!(done.code() == 41 && done.stderr.contains("\"file\": "), "{}", done.stderr);
    assert!(!out.join("file").exists() && out.join("other").exists());
    fails(&mut command("cat", &vault, &[Path::new("file")]), 41, "file");
}

#[test]
fn a_hostile_link_in_the_target_is_not_followed() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let (source, out, elsewhere) =
        (place(&vault, "source"), place(&vault, "out"), place(&vault, "elsewhere"));
    for dir in [&source.join("folder"), &out, &elsewhere] {
        fs::create_dir_all(dir).expect("mkdir");
    }
    fs::write(source.join("folder/inner"), "from the vault").expect("write");
    fs::write(source.join("file"), "from the vault").expect("write");
    fs::write(elsewhere.join("victim"), "untouched").expect("write");
    ok(&mut command("import", &vault, &[&source]), 60);
    symlink(&elsewhere, out.join("folder")).expect("symlink");
    symlink(elsewhere.join("victim"), out.join("file")).expect("symlink");
    let done = run(&mut command("export", &vault, &[&out]), 60);
    assert!(done.code() == 41 && done.stderr.contains("\"folder\": "), "{}", done.stderr);
    assert_eq!(fs::read(elsewhere.join("victim")).expect("read"), b"untouched");
    assert_eq!(fs::read_dir(&elsewhere).expect("list").count(), 1);
    assert!(fs::symlink_metadata(out.join("file")).expect("stat").is_file());
    assert_eq!(fs::read(out.join("file")).expect("read"), b"from the vault");

    let mount = vault.mount();
    fs::remove_dir_all(mount.join("folder")).expect("remove");
    symlink("/", mount.join("folder")).expect("symlink");
    mount.unmount();
    let done = run(&mut command("import", &vault, &[&source]), 60);
    assert!(done.code() == 41 && done.stderr.contains("\"folder\": "), "{}", done.stderr);
}

#[test]
fn a_mounted_vault_is_read_and_not_written() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let mount = vault.mount();
    fs::write(mount.join("file"), "synced").expect("write");
    File::open(mount.join("file")).expect("open").sync_all().expect("sync");
    assert_eq!(run(&mut command("ls", &vault, &[]), 60).text(), "file\n");
    assert_eq!(run(&mut command("cat", &vault, &[Path::new("file")]), 60).text(), "synced");
    fails(&mut command("import", &vault, &[&vault.key]), 15, "already mounted");
    // The export would copy its own output.
    for target in [mount.path().to_owned(), mount.join("copy")] {
        fails(&mut command("export", &vault, &[&target]), 1, "a mount of the vault itself");
    }
    assert_eq!(fs::read_dir(mount.path()).expect("list").count(), 1);
    mount.unmount();
}

#[test]
fn ls_shows_everything_and_controls_no_terminal() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let mount = vault.mount();
    fs::write(mount.join("new\nline \x1b[31m ü 'x'"), "1234").expect("write");
    fs::write(mount.join(OsStr::from_bytes(b"\xff")), "").expect("write");
    symlink("somewhere\x1b", mount.join("link")).expect("symlink");
    fs::create_dir(mount.join("folder")).expect("mkdir");
    fs::set_permissions(mount.join("folder"), Permissions::from_mode(0o3750)).expect("chmod");
    mount.unmount();
    let listed = run(&mut command("ls", &vault, &[]), 60).text();
    assert_eq!(listed, "folder\nlink\nnew\\nline \\u{1b}[31m ü 'x'\n\\xff\n");
    let long = run(command("ls", &vault, &[]).arg("-l"), 60).text();
    for part in ["drwxr-s--T ", " folder\n", "lrwxrwxrwx ", " link -> somewhere\\u{1b}\n", " 4 20"] {
        assert!(long.contains(part), "{part} is not in {long}");
    }
    let entries = json(&mut command("ls", &vault, &[])).1["entries"].take();
    assert_eq!(entries[2]["path"], "new\nline \x1b[31m ü 'x'");
    assert_eq!((&entries[3]["path_bytes"], &entries[1]["target"]), (&"ff".into(), &"somewhere\x1b".into()));
    let alone = run(command("ls", &vault, &[Path::new("link")]).arg("-l"), 60).text();
    assert_eq!(alone.lines().count(), 1);
    fails(&mut command("ls", &vault, &[Path::new("missing")]), 1, "missing");
}

#[test]
fn cat_writes_holes_as_zeros_and_a_reader_may_leave() {
    let vault = Vault::new(CIPHER);
    let source = place(&vault, "source");
    fs::create_dir(&source).expect("mkdir");
    let file = File::create(source.join("sparse")).expect("file");
    file.write_all_at(b"middle", 40 << 20).expect("write");
    file.set_len(60 << 20).expect("length");
    ok(&mut command("import", &vault, &[&source]), 60);
    let done = command("cat", &vault, &[Path::new("sparse")]).output().expect("started");
    assert!(done.status.success() && done.stdout == fs::read(source.join("sparse")).expect("read"));
    let line = "set -o pipefail; \"$1\" cat \"$2\" sparse --key-file \"$3\" | head -c 5 | wc -c";
    let mut shell = Command::new("bash");
    let said = ok(
        shell.args(["-c", line, "sh"]).arg(Vault::program().get_program()).arg(&vault.store).arg(&vault.key),
        60,
    );
    assert_eq!(said.trim(), "5");
    fails(&mut command("cat", &vault, &[Path::new("/")]), 1, "directory");
    fails(&mut command("cat", &vault, &[Path::new("sparse"), Path::new("missing")]), 1, "missing");
}

//! File handles, as an NFS server uses them: they stay valid after the kernel has forgotten the file,
//! and in the next mount.

use crate::support::{
    command::{ok, script},
    mounted::{Mount, Vault},
    ready_as_root, say,
    store::inode,
};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread};

/// `make NAME…` prints a handle for each name. `open HANDLE…` prints the target of each handle, or the
/// error. `forge PATH…` prints the handle that a mount would issue for the file at that path in the
/// store.
const PROGRAM: &str = r#"
import ctypes, os, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
def make(name):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, name.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        return os.strerror(ctypes.get_errno())
    return "%d:%s" % (handle.type, bytes(handle.handle[:handle.bytes]).hex())
def show(text):
    kind, data = text.split(":")
    data = bytes.fromhex(data)
    handle = Handle(len(data), int(kind), (ctypes.c_ubyte * 128)(*data))
    fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_PATH | os.O_NOFOLLOW)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    way = "/proc/self/fd/%d" % fd
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        up = os.open("..", os.O_RDONLY, dir_fd=os.open(way, os.O_RDONLY))
        return "directory %s in %s" % (sorted(os.listdir(way)), sorted(os.listdir(up)))
    if stat.S_ISLNK(mode):
        return "link " + os.readlink("", dir_fd=fd)
    with open(way) as file:
        return "file " + file.read()
def forge(path):
    data = bytes.fromhex(make(path).split(":")[1])
    hash = 0xcbf29ce484222325
    for byte in data:
        hash = (hash ^ byte) * 0x100000001b3 % 2**64
    generation = (hash >> 32 ^ hash) & 0x7fffffff
    number = os.lstat(path).st_ino
    return "129:" + struct.pack("=III", number >> 32, number & 0xffffffff, generation).hex()
root = os.open(".", os.O_RDONLY)
for argument in sys.argv[2:]:
    print({"make": make, "open": show, "forge": forge}[sys.argv[1]](argument))
"#;

fn run(mount: &Mount, work: &str, arguments: &[String]) -> Vec<String> {
    let mut command = script(mount.path(), "exec python3 -c \"$@\"");
    command.args([PROGRAM, work]);
    ok(command.args(arguments), 60).lines().map(str::to_owned).collect()
}

fn make(mount: &Mount, names: &[&str]) -> Vec<String> {
    run(mount, "make", &names.iter().map(|name| name.to_string()).collect::<Vec<_>>())
}

fn forget() {
    fs::write("/proc/sys/vm/drop_caches", "2").expect("drop caches");
}

#[test]
fn a_handle_leads_to_its_file_whatever_the_kernel_forgot() {
    if !ready_as_root(&["python3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    fs::create_dir_all(mount.join("a/b")).unwrap();
    fs::write(mount.join("a/b/file"), "content").unwrap();
    symlink("target", mount.join("a/link")).unwrap();
    let handles = make(&mount, &["a/b/file", "a/b", "a/link", "a", "."]);
    let expected = [
        "file content",
        "directory ['file'] in ['b', 'link']",
        "link target",
        "directory ['b', 'link'] in ['a']",
        "directory ['a'] in",
    ];
    let check = |mount: &Mount, when: &str| {
        let seen = run(mount, "open", &handles);
        for (seen, expected) in seen.iter().zip(expected) {
            assert!(seen.starts_with(expected), "{seen}, not {expected}: {when}");
        }
    };
    check(&mount, "at once");
    forget();
    check(&mount, "forgotten");
    mount = mount.remount();
    check(&mount, "mounted again");
    forget();
    check(&mount, "mounted again and forgotten");
    for (number, handle) in handles.iter().enumerate() {
        mount = mount.remount();
        let seen = run(&mount, "open", std::slice::from_ref(handle));
        assert!(seen[0].starts_with(expected[number]), "{seen:?}, not {}: asked alone", expected[number]);
    }
    mount.unmount();
}

#[test]
fn a_handle_follows_its_file_to_other_places() {
    if !ready_as_root(&["python3"]) {
        return;
    }
    let vault = Vault::new("aes-128-ctr");
    let mut mount = vault.mount();
    fs::create_dir_all(mount.join("from/inner")).unwrap();
    fs::create_dir(mount.join("to")).unwrap();
    for name in ["from/moved", "from/inner/file", "from/linked"] {
        fs::write(mount.join(name), name).unwrap();
    }
    let handles = make(&mount, &["from/moved", "from/inner/file", "from/linked", "from/inner"]);
    let check = |mount: &Mount, when: &str| {
        let seen = run(mount, "open", &handles);
        assert_eq!(seen[..3], ["file from/moved", "file from/inner/file", "file from/linked"], "{when}");
        assert_eq!(seen[3], "directory ['file'] in ['inner', 'link', 'moved']", "{when}");
    };
    // The mount has seen the location of every file; then all of them move.
    mount = mount.remount();
    run(&mount, "open", &handles);
    forget();
    fs::rename(mount.join("from/moved"), mount.join("to/moved")).unwrap();
    fs::rename(mount.join("from/inner"), mount.join("to/inner")).unwrap();
    fs::hard_link(mount.join("from/linked"), mount.join("to/link")).unwrap();
    fs::remove_file(mount.join("from/linked")).unwrap();
    fs::rename(mount.join("to"), mount.join("other")).unwrap();
    check(&mount, "known");
    forget();
    check(&mount, "forgotten");
    mount = mount.remount();
    check(&mount, "mounted again");
    mount.unmount();
}

#[test]
fn a_handle_of_what_was_removed_leads_nowhere_whoever_has_the_inode_number_now() {
    if !ready_as_root(&["python3", "mount", "mkfs.ext4", "losetup"]) {
        return;
    }
    // A separate filesystem: on a shared one another file could take the inode number first.
    let place = tempfile::tempdir().unwrap();
    let (image, disk) = (place.path().join("image"), place.path().join("disk"));
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&disk).unwrap();
    ok(Command::new("mkfs.ext4").arg("-q").arg(&image), 60);
    if !Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk).status().unwrap().success() {
        say("SKIPPED: handles of removed files: needs a loop device");
        return;
    }
    let vault = Vault::at(&disk.join("vault"), "aes-256-ctr");
    let mut mount = vault.mount();
    fs::write(mount.join("file"), "content").unwrap();
    let (handle, number) = (make(&mount, &["file"]), inode(&mount.join("file")));
    assert_eq!(run(&mount, "open", &handle), ["file content"]);
    fs::remove_file(mount.join("file")).unwrap();
    forget();
    assert_eq!(run(&mount, "open", &handle), ["Stale file handle"], "removed");
    let again = (0..200).map(|n| mount.join(n.to_string())).find(|path| {
        fs::write(path, "another").unwrap();
        inode(path) == number
    });
    assert!(again.is_some(), "the store has not given the inode number away again");
    assert_eq!(run(&mount, "open", &handle), ["Stale file handle"], "another has its number");
    forget();
    assert_eq!(run(&mount, "open", &handle), ["Stale file handle"], "forgotten");
    mount = mount.remount();
    assert_eq!(run(&mount, "open", &handle), ["Stale file handle"], "mounted again");
    mount.unmount();
    drop(vault);
    ok(Command::new("umount").arg(&disk), 60);
}

#[test]
fn no_handle_leads_to_what_is_not_in_the_vault() {
    if !ready_as_root(&["python3"]) {
        return;
    }
    let vault = Vault::with("aes-256-ctr", &["--names", "plain"]);
    let mut mount = vault.mount();
    fs::write(mount.join("file"), "content").unwrap();
    mount = mount.remount();
    let hidden = ["warpcrypt.json", "warpcrypt.dir", "warpcrypt.lock", "file"];
    let stored: Vec<String> =
        hidden.iter().map(|name| vault.store.join(name).display().to_string()).collect();
    let handles = run(&mount, "forge", &stored);
    let seen = run(&mount, "open", &handles);
    assert_eq!(seen, ["Stale file handle", "Stale file handle", "Stale file handle", "file content"]);
    mount.unmount();
}

#[test]
fn handles_are_found_by_many_at_once_and_by_nobody_without_privilege() {
    if !ready_as_root(&["python3", "setpriv"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    let names: Vec<String> = (0..400).map(|n| format!("d{}/{n}", n % 20)).collect();
    for name in &names {
        fs::create_dir_all(mount.join(name).parent().unwrap()).unwrap();
        fs::write(mount.join(name), name).unwrap();
    }
    let handles = make(&mount, &names.iter().map(String::as_str).collect::<Vec<_>>());
    mount = mount.remount();
    thread::scope(|scope| {
        for part in 0..8 {
            let (mount, names, handles) = (&mount, &names, &handles);
            scope.spawn(move || {
                let mine: Vec<usize> = (0..400).filter(|n| n % 8 == part).collect();
                let seen = run(mount, "open", &mine.iter().map(|n| handles[*n].clone()).collect::<Vec<_>>());
                let expected: Vec<String> = mine.iter().map(|n| format!("file {}", names[*n])).collect();
                assert_eq!(seen, expected);
            });
        }
    });
    let mut command = script(mount.path(), "exec setpriv --bounding-set -dac_read_search python3 -c \"$@\"");
    let seen = ok(command.args([PROGRAM, "open", &handles[0]]), 60);
    assert_eq!(seen.trim(), "Operation not permitted");
    mount.unmount();
}

#[test]
fn very_deep_directories_are_not_searched() {
    if !ready_as_root(&["python3"]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mut mount = vault.mount();
    let at_depth = |mount: &Mount, depth: usize| mount.join(vec!["d"; depth].join("/"));
    fs::create_dir_all(at_depth(&mount, 300)).unwrap();
    let [near, far]: [&Path; 2] = [&at_depth(&mount, 200), &at_depth(&mount, 300)];
    let handles = make(&mount, &[&near.display().to_string(), &far.display().to_string()]);
    mount = mount.remount();
    let seen = run(&mount, "open", &handles);
    assert_eq!(seen, ["directory ['d'] in ['d']", "Stale file handle"]);
    mount.unmount();
}

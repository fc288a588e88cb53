//! Limits: those of a program apply on a mount, those of the shell that mounts do not, and the space
//! reported as free can be used.

use crate::support::{
    command::{ok, script},
    disk::Disk,
    mounted::Vault,
    ready, ready_as_root,
    waiting::wait_for,
};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
};

/// Limits files to 8 blocks of 1 KiB. A shell reports 128 + 25 for a program killed by SIGXFSZ.
const LIMITED: &str = r#"
    try() {
        r=0; bash -c "ulimit -f 8; $*" >/dev/null 2>&1 || r=$?
        echo "$*: $r $(stat -c %s f)"
    }
    for ignored in '' 'trap "" XFSZ;'; do
    while read -r change; do
        head -c 4096 /dev/zero >f
        try "$ignored $change"
    done <<'END'
head -c 8192 /dev/zero >f
head -c 8193 /dev/zero >f
head -c 100000 /dev/zero >>f
truncate -s 8192 f
truncate -s 8193 f
fallocate -l 8192 f
fallocate -l 8193 f
fallocate -n -l 100000 f
dd if=/dev/zero of=f bs=4096 count=3 oflag=direct
dd if=/dev/zero of=f bs=4096 count=1 seek=1 oflag=direct
dd if=/dev/zero of=f bs=4096 count=1 seek=2 conv=notrunc
dd if=/dev/zero of=f bs=1 count=1 seek=8192 conv=notrunc oflag=dsync
END
    done
"#;

#[test]
fn a_programs_limit_of_file_size_holds() {
    if !ready(&["bash", "fallocate", "truncate", "dd"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let plain = vault.place_path().join("plain");
    fs::create_dir(&plain).unwrap();
    let told = |dir: &Path| ok(&mut script(dir, LIMITED), 120);
    let expected = told(&plain);
    assert!(expected.contains(": 153 8192"), "{expected}");
    for cache in ["auto", "direct"] {
        let mount = vault.mount_with(&["--cache", cache]);
        assert_eq!(told(mount.path()), expected, "--cache {cache}");
        mount.unmount();
    }
}

#[test]
fn a_mount_inherits_no_limits() {
    if !ready(&["bash"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let limits = "ulimit -Sf 1000; ulimit -St 100; ulimit -Sv 8000000; ulimit -Sd 8000000; exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", limits, "bash"]).arg(Vault::program().get_program());
    command.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&vault.key);
    ok(command.arg("--log-file").arg(&vault.log), 60);
    let mount = vault.mounted(&[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", mount.pid.as_raw_nonzero())).unwrap();
    for limit in ["Max cpu time", "Max file size", "Max data size", "Max address space"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        let values: Vec<&str> = line[limit.len()..].split_whitespace().collect();
        assert_eq!(values[0], values[1], "{line}");
    }
    fs::write(mount.join("large"), vec![7; 5 << 20]).unwrap();
    let mount = mount.remount();
    assert_eq!(fs::read(mount.join("large")).unwrap(), vec![7; 5 << 20]);
    mount.unmount();
}

/// Like installers and databases, which query the free space first.
#[test]
fn what_is_free_can_be_allocated_and_written() {
    if !ready_as_root(&[]) {
        return;
    }
    let disk = Disk::new("64m");
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount();
    for way in ["allocated", "written"] {
        let free = || {
            let space = statvfs(mount.path()).expect("statvfs");
            space.f_bavail * space.f_frsize
        };
        // The kernel sends the last release later.
        wait_for("what was removed is free", || free() > 60 << 20);
        let free = free() - (512 << 10);
        let file = File::create(mount.join(way)).expect("create");
        match way {
            "allocated" => fallocate(&file, FallocateFlags::empty(), 0, free).expect(way),
            _ => (&file).write_all(&vec![7; free as usize]).expect(way),
        }
        file.sync_all().expect("fsync");
        drop(file);
        fs::remove_file(mount.join(way)).expect("remove");
    }
    mount.unmount();
}

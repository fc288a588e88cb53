//! An autofs mount point: every access blocks until the daemon's process group has mounted something
//! there.

use crate::support::{
    command::sh,
    mounted::{Vault, program_path},
    ready_as_root, skip,
};
use std::fs;

#[test]
fn the_group_of_the_automounter_mounts() {
    if !ready_as_root(&["timeout"]) {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").expect("a list");
    if !known.lines().any(|line| line.ends_with("\tautofs")) && !skip("needs autofs".into()) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    // The shell plays the daemon. A program triggers the mount; the shell's own process group does not
    // block on it.
    let text = "mkfifo pipe; exec 3<>pipe
        mount -i -t autofs -o fd=3,pgrp=$$,minproto=5,maxproto=5,direct auto mnt
        setsid cat mnt/file >/dev/null & asks=$!
        trap 'kill -9 $asks; umount -l mnt' EXIT
        head -c 1 <&3 >/dev/null
        timeout --foreground 30 \"$1\" mount vault mnt --key-file key --log-file log
        echo content >mnt/file; cat mnt/file
        \"$1\" umount mnt";
    let program = program_path();
    assert_eq!(sh(vault.place_path(), text, &[&program], 60), "content\n");
}

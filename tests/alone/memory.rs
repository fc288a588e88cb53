//! The memory of a mount's process stays close to `--memory` while many programs stream through it,
//! however much they read and write.

use crate::support::{
    mounted::{Mount, Vault},
    ready,
};
use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    thread,
};

const MIB: usize = 1 << 20;
/// Number of streams of each kind.
const STREAMS: usize = 16;
/// Length of each stream in MiB.
const LONG: usize = 16;
/// Maximum memory in MiB besides contents: the program itself, request buffers, slot trees.
const REST: u64 = 64;

/// Peak memory of the process in MiB.
fn peak(mount: &Mount) -> u64 {
    let process = format!("/proc/{}/status", mount.pid.as_raw_nonzero());
    let status = fs::read_to_string(process).expect("the process that serves the mount");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("KiB") >> 10
}

fn content(stream: usize, part: usize) -> Vec<u8> {
    let mut bytes = vec![stream as u8 + 1; MIB];
    bytes[..8].copy_from_slice(&(part as u64).to_le_bytes());
    bytes
}

fn write(path: &Path, stream: usize) {
    let mut file = File::create(path).expect("create");
    for part in 0..LONG {
        file.write_all(&content(stream, part)).expect("write");
    }
    file.sync_all().expect("sync");
}

fn read(path: &Path, stream: usize) {
    let (mut file, mut bytes) = (File::open(path).expect("open"), vec![0; MIB]);
    for part in 0..LONG {
        file.read_exact(&mut bytes).expect("read");
        assert!(bytes == content(stream, part), "part {part} of stream {stream}");
    }
}

#[test]
fn sixteen_writers_and_sixteen_readers() {
    if !ready(&[]) {
        return;
    }
    let _alone = crate::alone();
    let vault = Vault::in_memory("aes-256-ctr");
    // With `direct`, reads reach the process instead of the kernel's cache.
    for memory in ["64", "128"] {
        let mount = vault.mount_with(&["--engine", "cpu", "--cache", "direct", "--memory", memory]);
        let path = |kind: &str, stream: usize| mount.join(format!("{kind}-{stream}"));
        let each = |work: &(dyn Fn(usize) + Sync)| {
            thread::scope(|scope| (0..STREAMS).for_each(|stream| _ = scope.spawn(move || work(stream))));
        };
        each(&|stream| write(&path("read", stream), stream));
        thread::scope(|scope| {
            scope.spawn(|| each(&|stream| write(&path("written", stream), stream)));
            each(&|stream| read(&path("read", stream), stream));
        });
        let (peak, bound) = (peak(&mount), memory.parse::<u64>().expect("MiB"));
        assert!(peak <= bound + REST, "{peak} MiB with {bound} for contents");
        mount.unmount();
    }
}

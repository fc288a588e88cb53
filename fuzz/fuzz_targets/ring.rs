//! Ring requests: any bytes are refused or decoded, and every slice borrowed from them is in bounds.
#![no_main]

use fuse::ring::{ARGUMENTS, HEADER, Operation as Op, header, operation};
use libfuzzer_sys::fuzz_target;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

fuzz_target!(|parts: ([u8; HEADER], [u8; ARGUMENTS], &[u8])| {
    let (first, arguments, payload) = parts;
    // Most opcodes are below 64; all others are treated alike.
    let opcode = header(&first).opcode;
    for opcode in [opcode, opcode % 64] {
        let Ok(operation) = operation(opcode, &arguments, payload) else { continue };
        match operation {
            Op::Symlink { name, target: other } | Op::Rename { name, new_name: other, .. } => {
                is_name(name);
                is_name(other);
                assert!(name.len() + other.len() + 2 <= payload.len());
            }
            Op::Setxattr { name, value, .. } => {
                is_name(name);
                assert!(name.len() + 1 + value.len() <= payload.len());
            }
            Op::Write { offset, data, .. } => {
                assert!(data.len() <= payload.len() && i64::try_from(offset).is_ok());
            }
            Op::Lookup { name }
            | Op::Mknod { name, .. }
            | Op::Mkdir { name, .. }
            | Op::Unlink { name }
            | Op::Rmdir { name }
            | Op::Link { name, .. }
            | Op::Getxattr { name, .. }
            | Op::Removexattr { name }
            | Op::Create { name, .. } => is_name(name),
            Op::Getattr { .. }
            | Op::Setattr { .. }
            | Op::Readlink
            | Op::Open { .. }
            | Op::Read { .. }
            | Op::Statfs
            | Op::Release { .. }
            | Op::Fsync { .. }
            | Op::Listxattr { .. }
            | Op::Flush { .. }
            | Op::Opendir
            | Op::Readdir { .. }
            | Op::Readdirplus { .. }
            | Op::Releasedir { .. }
            | Op::Fsyncdir { .. }
            | Op::Access { .. }
            | Op::Destroy
            | Op::Fallocate { .. }
            | Op::Lseek { .. }
            | Op::Copy { .. }
            | Op::Tmpfile { .. } => {}
        }
    }
});

fn is_name(name: &OsStr) {
    assert!(!name.is_empty() && !name.as_bytes().contains(&0));
}

//! `bench` runs the `warpcrypt-bench` program next to it, or says where to get it.

use crate::support::{
    command::{copy_program, run},
    mounted::program_path,
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

#[test]
fn bench_becomes_the_laboratory_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("warpcrypt");
    copy_program(&program_path(), &program);
    let bench = |arguments: &[&str]| run(Command::new(&program).arg("bench").args(arguments), 60);

    let alone = bench(&["mount", "/dev/shm"]);
    assert_eq!(alone.code(), 2, "{}", alone.stderr);
    assert!(
        alone.stderr.contains("warpcrypt-bench") && alone.stderr.contains("cargo build"),
        "{}",
        alone.stderr
    );

    let laboratory = folder.path().join("warpcrypt-bench");
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").expect("a script");
    copy_program(&script, &laboratory);
    fs::set_permissions(&laboratory, Permissions::from_mode(0o600)).expect("its mode");
    let barred = bench(&["mount"]);
    assert_eq!(barred.code(), 1, "{}", barred.stderr);

    fs::set_permissions(&laboratory, Permissions::from_mode(0o700)).expect("its mode");
    for arguments in [&["crypto", "--seconds=2", "-x", "--", "a b"][..], &["--help"], &["help", "aes"], &[]] {
        let done = bench(arguments);
        let expected: String = arguments.iter().map(|word| format!("<{word}>")).collect();
        let expected = if arguments.is_empty() { "<>".to_owned() } else { expected };
        assert_eq!((done.code(), done.text()), (7, expected), "{}", done.stderr);
    }
}

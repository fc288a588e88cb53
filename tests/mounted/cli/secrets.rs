//! Secrets stay out of sight.

use crate::support::{
    command::{ok, run},
    mounted::{Vault, program_path},
    ready, ready_as_root,
};
use std::fs;

const WORD: &str = "sesame-4711-open";

/// Adds the password to a vault, and returns the path of a file that contains it.
fn add_password(vault: &Vault) -> String {
    let word = crate::cli::file(vault.place_path(), "word", WORD.as_bytes());
    let mut add = Vault::program();
    add.args(["key", "add"]).arg(&vault.store).arg("--key-file").arg(&vault.key);
    ok(add.args(["--new-password-file", &word]), 60);
    word
}

#[test]
fn no_secret_in_arguments_environment_or_log() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let word = add_password(&vault);
    fs::remove_file(&vault.key).expect("remove");
    fs::copy(&word, &vault.key).expect("copy");
    let mut mount = Vault::program();
    mount.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--log-file").arg(&vault.log);
    ok(mount.args(["--password-file", &word]), 60);
    let served = server(&vault);
    for part in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{served}/{part}")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains(WORD), "{part}");
    }
    let limits = fs::read_to_string(format!("/proc/{served}/limits")).expect("limits");
    let core = limits.lines().find(|l| l.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    let links = ["cwd", "fd/0", "fd/1", "fd/2"].map(|l| fs::read_link(format!("/proc/{served}/{l}")));
    if let [Ok(cwd), Ok(input), Ok(output), Ok(error)] = links {
        assert_eq!(cwd.as_os_str(), "/");
        assert!([input, output, error].iter().all(|l| l.as_os_str() == "/dev/null"));
    }
    fs::write(vault.mount_point.join("a"), "b").expect("write");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    assert!(!vault.log_text().contains(WORD));
}

/// The configuration is not yet authenticated at this point, so it must not make the machine run out of
/// memory.
#[test]
fn a_password_that_takes_half_of_the_memory_is_not_tried() {
    if !ready_as_root(&["unshare"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let word = add_password(&vault);
    // Deriving the key from this password takes 256 MiB.
    let small = crate::cli::file(vault.place_path(), "meminfo", b"MemTotal:         409600 kB\n");
    let script = "mount --bind \"$1\" /proc/meminfo; shift; exec \"$@\"";
    let on_small = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script, "sh", &small]).arg(program_path()).args(arguments);
        run(&mut command, 60)
    };
    let [store, mount] = [&vault.store, &vault.mount_point].map(|path| crate::cli::text(path));
    for arguments in [vec!["ls", store], vec!["mount", store, mount], vec!["key", "recovery", store]] {
        let done = on_small(&[&arguments[..], &["--password-file", &word]].concat());
        assert!(done.code() == 17 && done.stderr.contains("256 MiB"), "{arguments:?}: {}", done.stderr);
    }
    let done = on_small(&["--any-kdf-memory", "ls", store, "--password-file", &word]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let script = "mount --bind \"$1\" /proc/meminfo; shift; program=$1; shift
        \"$program\" mount \"$1\" \"$2\" $4 --password-file \"$3\"; \"$program\" umount \"$2\"";
    for allowed in ["--any-kdf-memory", "-oany-kdf-memory"] {
        let mut both = std::process::Command::new("unshare");
        both.args(["--mount", "sh", "-ec", script, "sh", &small]).arg(program_path());
        ok(both.args([store, mount, &word, allowed]), 60);
    }
}

/// Process id of the server of the vault.
fn server(vault: &Vault) -> u32 {
    let pids = fs::read_dir("/proc").expect("proc").flatten();
    let number = |name: std::ffi::OsString| name.to_str().and_then(|n| n.parse().ok());
    let serves = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("\0serve\0") && line.contains(crate::cli::text(&vault.mount_point))
    };
    pids.filter_map(|p| number(p.file_name())).find(serves).expect("a process that serves the mount")
}

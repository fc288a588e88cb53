//! Log destinations of a mount, and log contents.

use crate::{
    cli::{in_namespace, mount_command},
    support::{
        command::{Running, ok, run},
        mounted::{Vault, program_path},
        ready, ready_as_root,
        waiting::wait_for,
    },
};
use std::{fs, time::Duration};

fn umount(vault: &Vault) {
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

#[test]
fn a_log_that_cannot_be_had_is_no_reason_not_to_mount() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    // In a private mount namespace, where neither the system log nor root's log file is available.
    let script = "
        \"$1\" mount \"$2\" mnt --key-file key --log-file /no/such/log
        \"$1\" umount mnt
        mount -t tmpfs -o ro tmpfs /var/log
        if [ -e /dev/log ]; then mount --bind /dev/null /dev/log; fi
        \"$1\" mount \"$2\" mnt --key-file key
        echo content >mnt/file
        \"$1\" umount mnt";
    let mut command = in_namespace(script);
    command.arg(program_path()).arg(&vault.store);
    let done = run(command.current_dir(vault.place_path()), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    for part in ["log file /no/such/log: ", "is used instead", "the mount has no log: log file /var/log/"] {
        assert!(done.stderr.contains(part), "{}", done.stderr);
    }
}

#[test]
fn a_mount_in_the_foreground_logs_what_one_in_the_background_does() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut to_terminal = Vault::program();
    to_terminal.arg("mount").arg(&vault.store).arg(&vault.mount_point).arg("--key-file").arg(&vault.key);
    let mut to_file = mount_command(&vault);
    for (command, to_file) in [(&mut to_terminal, false), (&mut to_file, true)] {
        let running = Running::start(command.arg("-f"));
        let what = format!("mounted {} on {}", vault.store.display(), vault.mount_point.display());
        wait_for("it says that it is mounted", || running.said().contains(&what));
        umount(&vault);
        let done = running.finish(Duration::from_secs(30));
        assert!(done.stderr.contains(&format!("warpcrypt: {what}\n")), "{}", done.stderr);
        let log = if to_file { fs::read_to_string(&vault.log).expect("the log") } else { done.stderr };
        assert!(log.contains(&what) && log.contains(&format!("un{what}; all of it is stored")), "{log}");
    }
}

//! Prompts, each on a new terminal.

use crate::{
    cli::{
        file,
        terminal::{program, typed, typed_to},
        text,
    },
    support::{
        command::ok,
        command::run,
        mounted::{Vault, program_path},
        ready,
    },
};
use std::process::Command;

#[test]
fn a_new_password_is_asked_for_twice_and_not_shown() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let new = vault.place_path().join("new");
    let (code, said) = typed(&["geheim", "geheim"], &["init", text(&new)]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("New password:") && said.contains("again"), "{said}");
    assert!(said.contains("key recovery"), "{said}");
    assert!(!said.contains("geheim"), "{said}");
    let (code, said) = typed(&["geheim"], &["mount", text(&new), text(&vault.mount_point)]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("Password:") && !said.contains("geheim"), "{said}");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

#[test]
fn a_terminal_that_is_only_standard_input_will_do() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let new = vault.place_path().join("new");
    // A new session has no /dev/tty.
    let line = format!("setsid -w {}", program(&["init", text(&new)]));
    let (code, said) = typed_to(&["geheim", "geheim"], &line);
    assert!(code == 0 && said.contains("New password:") && !said.contains("geheim"), "{said}");
}

#[test]
fn the_terminal_shows_what_is_typed_again_after_control_c() {
    let vault = Vault::new("aes-256-ctr");
    let new = vault.place_path().join("new");
    let line = format!("stty -a; {}; echo code $?; stty -a", program(&["init", text(&new)]));
    let (_, said) = typed_to(&["geh\u{3}"], &line);
    let (before, after) = said.split_once("New password:").expect("a prompt");
    let modes = |shown: &str| shown[shown.find("isig").expect("modes")..].trim().to_owned();
    assert!(after.contains("code 130") && !said.contains("geh"), "{said}");
    assert_eq!(modes(before), modes(after));
}

#[test]
fn what_needs_no_password_is_checked_before_it_is_asked_for() {
    let vault = Vault::new("aes-256-ctr");
    let place = text(vault.place_path());
    let missing = format!("{place}/missing/new");
    for (target, code) in [(text(&vault.store), 16), (place, 16), (text(&vault.key), 16), (&missing, 1)] {
        let mut command = Command::new("setsid");
        command.arg("-w").arg(program_path()).args(["init", target]);
        assert_eq!(run(&mut command, 60).code(), code, "{target}");
    }
}

#[test]
fn a_recovery_key_opens_what_a_lost_password_does_not() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut command = Vault::program();
    let key = ok(command.args(["key", "recovery", text(&vault.store), "--key-file", text(&vault.key)]), 60);
    let key = key.trim();
    assert_eq!(key.split('-').count(), 13, "{key}");
    let word = file(vault.place_path(), "word", b"new word");
    let lower = key.to_lowercase();
    let args = ["passwd", text(&vault.store), "--recovery-key", "--new-password-file", &word];
    let (code, said) = typed(&[&lower], &args);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("Recovery key:") && !said.contains(&lower[..20]), "{said}");
    let wrong = key.replacen(&key[..1], if key.starts_with('7') { "8" } else { "7" }, 1);
    let (code, said) = typed(&[&wrong], &args);
    assert_eq!(code, 10, "{said}");
    assert!(said.contains("group 1"), "{said}");
}

#[test]
fn the_master_secret_opens_a_vault_that_lost_its_configuration() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::with("kuznyechik-ctr", &["--integrity", "turboshake128x4", "--names", "plain"]);
    let mount = vault.mount();
    std::fs::write(mount.join("file"), "content").expect("write");
    mount.unmount();
    let mut command = Vault::program();
    let secret = ok(command.args(["key", "master", text(&vault.store), "--key-file", text(&vault.key)]), 60);
    let secret = secret.trim();
    assert_eq!(secret.split('-').count(), 22, "{secret}");
    for name in ["warpcrypt.json", "warpcrypt.json.copy"] {
        std::fs::remove_file(vault.store.join(name)).expect("remove");
    }
    std::fs::write(&vault.key, [9; 40]).expect("a new key");
    let args = ["key", "restore", "--master", text(&vault.store), "--new-key-file", text(&vault.key)];
    let (code, said) = typed(&["7"], &args);
    assert_eq!(code, 10, "{said}");
    let (code, said) = typed(&[secret], &args);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(&secret[..20]), "{said}");
    let mount = vault.mount();
    assert_eq!(std::fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();
}

/// A damaged file keeps a rotation from finishing.
#[test]
fn the_master_secret_keeps_a_rotation_under_way() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::with("aes-256-ctr", &["--names", "plain"]);
    let mount = vault.mount();
    std::fs::write(mount.join("damaged"), "content").expect("write");
    mount.unmount();
    let damaged = vault.store.join("damaged");
    let mut bytes = std::fs::read(&damaged).expect("read");
    bytes[4096] ^= 1;
    std::fs::write(&damaged, bytes).expect("write");
    let with_key = |args: &[&str]| {
        let mut command = Vault::program();
        command.args(args).args([text(&vault.store), "--key-file", text(&vault.key)]);
        command
    };
    let done = vault.rotate(&[]);
    assert_eq!(done.code(), 41, "{}", done.stderr);
    let done = run(&mut with_key(&["key", "master"]), 60);
    assert!(done.stderr.contains("key backup"), "{}", done.stderr);
    let secret = done.text();
    let args = ["key", "restore", "--master", text(&vault.store), "--new-key-file", text(&vault.key)];
    let (code, said) = typed(&[secret.trim()], &args);
    assert_eq!(code, 0, "{said}");
    let info = ok(Vault::program().args(["info", text(&vault.store), "--json"]), 60);
    assert!(info.contains("\"key_rotation\": true"), "{info}");
    std::fs::remove_file(&damaged).expect("remove");
    ok(&mut with_key(&["key", "rotate"]), 60);
    let done = run(&mut with_key(&["key", "master"]), 60);
    assert!(!done.stderr.contains("key backup"), "{}", done.stderr);
}

#[test]
fn without_a_terminal_the_sources_are_named() {
    let vault = Vault::new("aes-256-ctr");
    let mut command = Command::new("setsid");
    command.arg("-w").arg(program_path()).arg("init").arg(vault.place_path().join("new"));
    let done = run(&mut command, 60);
    assert_eq!(done.code(), 2, "{}", done.stderr);
    assert!(done.stderr.contains("--password-file"), "{}", done.stderr);
    assert!(!vault.place_path().join("new").exists());
}

//! Everyday use: file locations, first lines of output, and the order of prompts.

use crate::{
    cli::{
        fails, file,
        terminal::{program, typed},
        text, warpcrypt,
    },
    support::{
        command::ok,
        mounted::{Vault, program_path},
        ready,
    },
};
use std::process::Command;

/// A vault that can also be opened with the password `word`.
fn with_password() -> Vault {
    let vault = Vault::new("aes-256-ctr");
    let word = file(vault.place_path(), "word", b"word\n");
    let args =
        ["key", "add", text(&vault.store), "--key-file", text(&vault.key), "--new-password-file", &word];
    ok(Vault::program().args(args), 60);
    vault
}

#[test]
fn every_command_takes_the_vault_or_the_mount_point() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let (store, point, key) = (text(&vault.store), text(&vault.mount_point), text(&vault.key));
    for place in [store, point] {
        let _mount = vault.mount();
        assert!(warpcrypt(["stat", place]).text().starts_with("All is well."), "{place}");
        assert!(warpcrypt(["info", place]).text().contains(&format!("mounted    {point}\n")), "{place}");
        for command in [&["freeze", place][..], &["thaw", place], &["lock", place]] {
            assert_eq!(warpcrypt(command).code(), 0, "{command:?}");
        }
        assert!(
            warpcrypt(["info", place]).text().contains(&format!("mounted    {point}, locked\n")),
            "{place}"
        );
        ok(Vault::program().args(["unlock", place, "--key-file", key]), 60);
        ok(Vault::program().args(["unmount", place]), 60);
        assert!(warpcrypt(["info", store]).text().contains("mounted    not mounted\n"));
        fails(Vault::program().args(["umount", place]), 24, "mounted there");
    }
}

#[test]
fn of_a_vault_with_several_mounts_the_one_to_unmount_is_named() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let second = vault.elsewhere();
    let [_first, second] = [&vault, &second].map(|vault| vault.mount_with(&["--read-only"]));
    fails(Vault::program().args(["umount", text(&vault.store)]), 2, "Name the mount point");
    second.unmount();
    ok(Vault::program().args(["umount", text(&vault.store)]), 60);
}

#[test]
fn on_a_terminal_a_mount_says_where_it_is() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = ["mount", text(&vault.store), text(&vault.mount_point), "--key-file", text(&vault.key)];
    let (code, said) = typed(&[], &mount);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("Mounted at {}.", text(&vault.mount_point))), "{said}");
    ok(Vault::program().args(["umount", text(&vault.mount_point)]), 60);
    assert_eq!(ok(Command::new("sh").args(["-c", &program(&mount)]), 60), "", "a script hears nothing");
    ok(Vault::program().args(["umount", text(&vault.mount_point)]), 60);
}

#[test]
fn a_mistake_is_told_before_a_password_is_asked_for() {
    let vault = with_password();
    // Without a terminal, a prompt would make it exit with code 2.
    let asked = |args: &[&str]| {
        let mut command = Command::new("setsid");
        command.arg("-w").arg(program_path()).args(args);
        command
    };
    fails(&mut asked(&["key", "remove", text(&vault.store), "9"]), 11, "9");
    fails(
        &mut asked(&["passwd", text(&vault.store), "--new-password-file", "/nonexistent"]),
        1,
        "nonexistent",
    );
    fails(&mut asked(&["passwd", text(&vault.store)]), 2, "terminal");
}

#[test]
fn a_new_password_is_asked_for_once_the_old_one_is_known_to_be_right() {
    if !ready(&["setsid"]) {
        return;
    }
    let vault = with_password();
    let store = text(&vault.store);
    for command in [&["passwd", store][..], &["key", "add", store]] {
        let (code, said) = typed(&["wrong"], command);
        assert!(code == 10 && !said.contains("New password"), "{said}");
    }
    let (code, said) = typed(&["word", "next", "next"], &["passwd", store]);
    assert!(code == 0 && said.contains("Changed the password"), "{said}");
}

#[test]
fn a_password_is_the_same_from_every_keyboard() {
    let vault = Vault::new("aes-256-ctr");
    let composed = file(vault.place_path(), "composed", "M\u{fc}ller\n".as_bytes());
    let decomposed = file(vault.place_path(), "decomposed", "\u{feff}Mu\u{308}ller\r\n".as_bytes());
    let new = vault.place_path().join("new");
    ok(Vault::program().args(["init", text(&new), "--password-file", &composed]), 60);
    ok(Vault::program().args(["ls", text(&new), "--password-file", &decomposed]), 60);
}

//! Key slots: adding, changing and removing them, and which secret opens which slot.

use crate::{
    cli::{fails, file, text, warpcrypt},
    support::{
        command::ok,
        mounted::{Vault, program_path},
        ready,
    },
};
use std::{fs, process::Command};

fn vault_command(args: &[&str], vault: &Vault, more: &[&str]) -> Command {
    let mut command = Vault::program();
    command.args(args).arg(&vault.store).args(more);
    command
}

/// A vault with a file.
fn with_file() -> Vault {
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    mount.unmount();
    vault
}

/// Whether the vault opens with these arguments. If so, it is mounted and unmounted again.
fn opens(vault: &Vault, with: &[&str]) -> bool {
    let mut command = Vault::program();
    let done = crate::support::command::run(
        command
            .arg("mount")
            .arg(&vault.store)
            .arg(&vault.mount_point)
            .args(with)
            .arg("--log-file")
            .arg(&vault.log),
        60,
    );
    if done.code() == 0 {
        ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    }
    assert!([0, 10, 11].contains(&done.code()), "{}", done.stderr);
    done.code() == 0
}

fn kinds(vault: &Vault) -> Vec<String> {
    let done = warpcrypt(["key", "list", text(&vault.store), "--json"]);
    let slots: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    let kind = |s: &serde_json::Value| format!("{} {}", s["id"], s["kind"].as_str().unwrap_or_default());
    slots["slots"].as_array().expect("an array").iter().map(kind).collect()
}

#[test]
fn slots_come_and_go() {
    if !ready(&[]) {
        return;
    }
    let vault = with_file();
    let first = ["--key-file", text(&vault.key)];
    let second = file(vault.place_path(), "second", &[2; 100]);
    let second = ["--key-file", &second];

    let done = ok(
        &mut vault_command(
            &["key", "add"],
            &vault,
            &[&first[..], &["--new-key-file", second[1], "--label", "spare"]].concat(),
        ),
        60,
    );
    assert!(done.contains("key slot 2"), "{done}");
    assert_eq!(kinds(&vault), ["1 key file", "2 key file"]);
    assert!(opens(&vault, &first) && opens(&vault, &second));

    ok(vault_command(&["key", "remove"], &vault, &["1"]).args(second), 60);
    assert!(!opens(&vault, &first) && opens(&vault, &second));
    fails(vault_command(&["key", "remove"], &vault, &["2"]).args(second), 2, "last key slot");
    let list = warpcrypt(["key", "list", text(&vault.store)]).text();
    assert!(list.contains("spare"), "{list}");
    let long = "x".repeat(65);
    let add = ["--new-key-file", text(&vault.key), "--label", &long];
    fails(vault_command(&["key", "add"], &vault, &add).args(second), 2, "label");
}

#[test]
fn passwords_change() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-128-ctr");
    let [one, two] = ["one", "two"].map(|w| file(vault.place_path(), w, format!("{w}\n").as_bytes()));
    let key = ["--key-file", text(&vault.key)];
    // There is no password yet, so the first one is added.
    let said = ok(vault_command(&["passwd"], &vault, &["--new-password-file", &one]).args(key), 60);
    assert!(said.starts_with("Added key slot 2.") && said.contains("old secret still opens"), "{said}");
    assert_eq!(kinds(&vault), ["1 key file", "2 password"]);
    assert!(opens(&vault, &["--password-file", &one]) && opens(&vault, &key));
    // The password that opens the vault is replaced. Standard input supplies the old one, then the new
    // one.
    let mut change = Command::new("sh");
    let line = "printf 'one\\ntwo\\n' | \"$1\" passwd \"$2\" --password-stdin --new-password-stdin";
    let said = ok(change.args(["-c", line, "sh"]).arg(program_path()).arg(&vault.store), 60);
    assert!(said.starts_with("Changed the password."), "{said}");
    assert_eq!(kinds(&vault), ["1 key file", "2 password"]);
    assert!(opens(&vault, &["--password-file", &two]) && !opens(&vault, &["--password-file", &one]));
    // A command can supply the password too.
    assert!(opens(&vault, &["--password-command", &format!("cat {two}")]));
    // The key file authorises replacing the only password. With several passwords, the program does not
    // guess which one.
    ok(vault_command(&["passwd"], &vault, &["--new-password-file", &one]).args(key), 60);
    assert_eq!(kinds(&vault), ["1 key file", "2 password"]);
    ok(vault_command(&["key", "add"], &vault, &["--new-password-file", &two]).args(key), 60);
    fails(
        vault_command(&["passwd"], &vault, &["--new-password-file", &two]).args(key),
        2,
        "several passwords",
    );
}

#[test]
fn a_new_password_keeps_the_label_and_costs_what_was_asked() {
    let vault = Vault::new("aes-128-ctr");
    let [one, two] = ["one", "two"].map(|w| file(vault.place_path(), w, format!("{w}\n").as_bytes()));
    let key = ["--key-file", text(&vault.key)];
    let add = ["--new-password-file", &one, "--label", "of Anna", "--kdf-memory", "9"];
    ok(vault_command(&["key", "add"], &vault, &add).args(key), 60);
    let change = ["--password-file", &one, "--new-password-file", &two, "--kdf-memory", "8"];
    ok(&mut vault_command(&["passwd"], &vault, &change), 60);
    let slots = warpcrypt(["key", "list", text(&vault.store), "--json"]).text();
    let slots: serde_json::Value = serde_json::from_str(&slots).expect("JSON");
    let slot = &slots["slots"][1];
    assert_eq!((&slot["id"], &slot["label"]), (&2.into(), &"of Anna".into()));
    assert_eq!(slot["argon2id"]["memory_kib"], 8 << 10);
}

#[test]
fn a_password_and_a_key_file_open_only_together() {
    if !ready(&[]) {
        return;
    }
    let mut vault = Vault::new("aes-128-ctr");
    let [one, two] = ["one", "two"].map(|w| file(vault.place_path(), w, format!("{w}\n").as_bytes()));
    let content = file(vault.place_path(), "content", &[2; 100]);
    let new = vault.place_path().join("new");
    let init = ["init", text(&new), "--key-file", &content, "--password-file", &one, "--kdf-memory", "8"];
    ok(Vault::program().args(init), 60);
    vault.store = new;
    assert_eq!(kinds(&vault), ["1 password and key file"]);
    let both = ["--key-file", &content, "--password-file", &one];
    assert!(opens(&vault, &both));
    let list = format!("key-file={content},password-file={one}");
    assert!(opens(&vault, &["-o", &list]));
    assert!(!opens(&vault, &["--password-file", &one]));
    assert!(!opens(&vault, &["--key-file", &content, "--password-file", &two]));
    assert!(!opens(&vault, &["--key-file", text(&vault.key), "--password-file", &one]));
    // With the key file alone, the program prompts for the password.
    let mut alone = Command::new("setsid");
    alone.arg("-w").arg(program_path()).args(["key", "master", text(&vault.store), "--key-file", &content]);
    fails(&mut alone, 2, "no terminal");
    // The password changes; the key file remains.
    ok(
        vault_command(&["passwd"], &vault, &["--new-password-file", &two, "--kdf-memory", "8"]).args(both),
        60,
    );
    assert_eq!(kinds(&vault), ["1 password and key file"]);
    assert!(opens(&vault, &["--key-file", &content, "--password-file", &two]) && !opens(&vault, &both));
}

#[test]
fn a_lost_configuration_comes_back_from_a_backup() {
    if !ready(&[]) {
        return;
    }
    let vault = with_file();
    let backup = vault.place_path().join("backup");
    ok(&mut vault_command(&["key", "backup"], &vault, &[text(&backup)]), 60);
    fails(&mut vault_command(&["key", "backup"], &vault, &[text(&backup)]), 1, "exists already");
    let copies = ["warpcrypt.json", "warpcrypt.json.copy"].map(|name| vault.store.join(name));
    copies.iter().for_each(|copy| fs::remove_file(copy).expect("remove"));

    let done = vault.try_mount(&[]);
    assert_eq!(done.code(), 14, "{}", done.stderr);
    assert!(done.stderr.contains("key restore") && !done.stderr.contains("init"), "{}", done.stderr);
    let restore = [text(&backup), "--key-file", text(&vault.key)];
    ok(&mut vault_command(&["key", "restore"], &vault, &restore), 60);
    let mount = vault.mount();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content");
    mount.unmount();

    // After a slot was added, the vault's configuration is newer than the backup.
    let second = file(vault.place_path(), "second", &[2; 100]);
    let key = ["--key-file", text(&vault.key)];
    ok(vault_command(&["key", "add"], &vault, &["--new-key-file", &second]).args(key), 60);
    fails(&mut vault_command(&["key", "restore"], &vault, &restore), 1, "newer");
    ok(vault_command(&["key", "restore"], &vault, &restore).arg("--older"), 60);
    assert!(opens(&vault, &key) && !opens(&vault, &["--key-file", &second]));

    // A backup of another vault, and a file that is not a backup.
    let other = Vault::new("aes-256-ctr");
    fails(&mut vault_command(&["key", "restore"], &other, &restore), 1, "not that of the vault");
    fails(&mut vault_command(&["key", "restore"], &vault, &[&second]), 14, "not a backup");
}

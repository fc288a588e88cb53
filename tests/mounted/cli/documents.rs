//! Statements about the program that occur in several places agree with each other.

use crate::{
    cli::{text, warpcrypt},
    support::{
        mounted::{Vault, program_path},
        source,
    },
};
use std::fs;

/// The rows of the table in `docs/exit-codes.md`: number and meaning.
fn documented() -> Vec<(String, String)> {
    let page = fs::read_to_string(source("docs/exit-codes.md")).expect("the page");
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| code"));
    rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        (cells.next().expect("a number").to_owned(), cells.next().expect("a meaning").to_owned())
    })
    .collect()
}

#[test]
fn the_program_alone_shows_a_dozen_lines_and_the_short_help_two_examples() {
    let alone = warpcrypt(None::<&str>);
    assert_eq!(alone.code(), 2);
    let shown = alone.stderr.lines();
    assert!(shown.clone().count() <= 12 && shown.clone().all(|line| line.len() <= 80), "{}", alone.stderr);
    for command in ["init", "mount", "umount", "info", "check", "passwd"] {
        assert!(alone.stderr.contains(&format!("warpcrypt {command} ")), "{command} in\n{}", alone.stderr);
    }
    let help = warpcrypt(["-h"]).text();
    let examples = help.split("Examples:\n").nth(1).expect("examples");
    assert_eq!(examples.lines().filter(|line| line.contains("warpcrypt")).count(), 2, "{help}");
    assert!(!help.contains("Exit codes"), "{help}");
    let mount = warpcrypt(["mount", "-h"]).text();
    for heading in ["Access:", "Speed:", "Safety:", "Secret:"] {
        assert!(mount.contains(heading), "{heading} in\n{mount}");
    }
}

#[test]
fn man_pages_cover_every_command_and_the_exit_codes() {
    let vault = Vault::new("aes-256-ctr");
    let done = warpcrypt(["man", text(vault.place_path())]);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let page = |name: &str| fs::read_to_string(vault.place_path().join(name)).expect(name);
    let main = page("warpcrypt.1").replace("\\-", "-").replace("\\*(Aq", "'").replace("\\'", "'");
    let documented = documented();
    assert!(documented.len() > 15);
    for (_, meaning) in documented {
        assert!(main.contains(&meaning), "{meaning} is not in the man page");
    }
    let names = [
        "init",
        "mount",
        "umount",
        "lock",
        "unlock",
        "freeze",
        "thaw",
        "info",
        "passwd",
        "try",
        "check",
        "ls",
        "cat",
        "export",
        "import",
        "doctor",
        "hash",
        "match",
        "key-add",
        "key-list",
        "key-remove",
    ];
    for name in names {
        assert!(page(&format!("warpcrypt-{name}.1")).contains(".SH"), "{name}");
    }
    assert!(!vault.place_path().join("warpcrypt-serve.1").exists());
}

#[test]
fn every_shell_has_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = warpcrypt(["completions", shell]);
        assert!(done.code() == 0 && done.text().contains("password-file"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let line = format!("{} completions bash | head -n 1", program_path().display());
    let said = crate::support::command::sh("/", &format!("{line} 2>&1"), &[], 30);
    assert!(said.contains("_warpcrypt"), "{said}");
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let vault = Vault::new("aes-256-ctr");
    let place = text(vault.place_path()).to_owned();
    let store = text(&vault.store);
    let commands: [&[&str]; 7] = [
        &["info", store],
        &["key", "list", store, "--json"],
        &["key", "recovery", store, "--key-file", text(&vault.key)],
        &["devices"],
        &["completions", "bash"],
        &["hash", "-l", &place],
        &["match", "--json", &place],
    ];
    for args in commands {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let done = Vault::program().args(args).stdout(full).output().expect("started");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("No space left"), "{args:?}: {done:?}");
    }
}

#[test]
fn info_and_key_list_speak_json() {
    let vault = Vault::with("kuznyechik-ctr", &["--integrity", "turboshake128x4", "--names", "plain"]);
    let parse =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&warpcrypt(args).text()).expect("JSON") };
    let info = parse(&["info", text(&vault.store), "--json"]);
    assert_eq!(info["format"], 2);
    assert_eq!(info["cipher"], "kuznyechik-ctr");
    assert_eq!(info["integrity"], "turboshake128x4");
    assert_eq!(info["names"], "plain");
    assert_eq!(info["vault_id"].as_str().map(str::len), Some(32));
    assert_eq!(info["slots"][0]["kind"], "key file");
    assert_eq!(parse(&["key", "list", text(&vault.store), "--json"])["slots"], info["slots"]);
    let human = warpcrypt(["info", text(&vault.store)]).text();
    assert!(human.contains("kuznyechik-ctr") && human.contains("key file"), "{human}");
}

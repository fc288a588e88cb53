//! Reports a failed test so that it can be repeated: prints the command with its seed and settings, and
//! keeps the log of the test's mounts.

use super::{mounted::Vault, say, test_name};
use std::{cell::Cell, fs, path::PathBuf};

/// Number of log lines to print.
const LINES: usize = 60;

/// Environment variables that affect a test.
const SETTINGS: [&str; 4] =
    ["WARPCRYPT_TEST_ENGINE", "WARPCRYPT_TEST_CACHE", "WARPCRYPT_TEST_IO_URING", "WARPCRYPT_TEST_PROGRAM"];

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Remembers the first seed that the running test used.
pub fn note_seed(seed: u64) {
    SEED.set(SEED.get().or(Some(seed)));
}

/// Prints how to run the failed test again and the end of its mounts' log, and keeps the whole log.
pub fn report(vault: &Vault) {
    let mut again = String::new();
    if let Some(seed) = SEED.get() {
        again += &format!("SEED={seed} ");
    }
    for name in SETTINGS {
        if let Ok(value) = std::env::var(name) {
            again += &format!("{name}={value} ");
        }
    }
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = program.split('-').next().unwrap_or_default();
    let name = test_name();
    say(format_args!(
        "{name} failed. To repeat: {again}cargo test --release --test {program} -- --exact {name}"
    ));
    let log = vault.log_text();
    let lines: Vec<&str> = log.lines().collect();
    let end = lines[lines.len().saturating_sub(LINES)..].join("\n  ");
    say(format_args!("  log of {}, {} lines in all:\n  {end}", vault.store.display(), lines.len()));
    let kept = kept_at(&name);
    if fs::create_dir_all(kept.parent().expect("a folder")).and_then(|()| fs::write(&kept, log)).is_ok() {
        say(format_args!("  the whole log: {}", kept.display()));
    }
}

fn kept_at(name: &str) -> PathBuf {
    let file = format!("{}-{}.log", name.replace("::", "-"), std::process::id());
    std::env::temp_dir().join("warpcrypt-failed").join(file)
}

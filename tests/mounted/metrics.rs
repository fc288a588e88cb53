//! `stat` shows a mount's activity, only to its owner and root.

use crate::support::{
    command::{ok, run},
    mounted::{Vault, program_path},
    ready, ready_as_root,
    waiting::wait_for,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

fn stat(mount: &std::path::Path, options: &[&str]) -> Command {
    let mut command = Vault::program();
    command.arg("stat").arg(mount).args(options);
    command
}

fn numbers(mount: &std::path::Path) -> Value {
    serde_json::from_str(&ok(&mut stat(mount, &["--json"]), 60)).expect("JSON")
}

#[test]
fn what_was_written_and_read_is_counted() {
    if !ready(&[]) {
        return;
    }
    const LEN: u64 = 5 << 20;
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let before = numbers(mount.path());
    fs::write(mount.join("f"), vec![7; LEN as usize]).expect("write");
    File::open(mount.join("f")).and_then(|f| f.sync_all()).expect("fsync");
    let file = File::open(mount.join("f")).expect("open");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    assert_eq!(fs::read(mount.join("f")).expect("read").len() as u64, LEN);
    drop(file);
    assert!(fs::metadata(mount.join("absent")).is_err());
    // A program may have a reply before the reply is counted.
    let replied = |all: &Value| all["fuse"]["reply"]["bytes"].as_u64().expect("bytes");
    wait_for("every reply is counted", || replied(&numbers(mount.path())) - replied(&before) >= LEN);
    let after = numbers(mount.path());
    let grown = |path: [&str; 3]| {
        let at = |all: &Value| {
            all[path[0]][path[1]][path[2]].as_f64().unwrap_or_else(|| panic!("{path:?} in {all}"))
        };
        at(&after) - at(&before)
    };
    for kind in ["read", "write"] {
        assert_eq!(grown(["requests", kind, "bytes"]), LEN as f64, "{kind}");
        assert!(grown(["requests", kind, "count"]) >= 1.0 && grown(["requests", kind, "seconds"]) > 0.0);
        assert!(grown(["store", kind, "bytes"]) >= LEN as f64, "{kind}");
    }
    assert_eq!(grown(["fuse", "reply", "bytes"]), LEN as f64);
    let crypto = grown(["crypto", "batch", "bytes"]) + grown(["crypto", "single", "bytes"]);
    assert!(crypto >= 2.0 * LEN as f64, "{crypto}");
    assert!(grown(["store", "sync", "count"]) >= 1.0 && grown(["requests", "fsync", "count"]) == 1.0);
    assert_eq!(grown(["requests", "lookup", "failures"]), 0.0, "a name that is not there is no failure");
    let memory = |what: &str| after["memory"][what].as_u64().expect("bytes");
    assert!(memory("peak") >= memory("in_use") && memory("bound") >= memory("peak") && memory("peak") > 0);
    let cpu = |all: &Value, what: &str| {
        all["engines"][0][what].as_u64().unwrap_or_else(|| panic!("{what} in {all}"))
    };
    assert_eq!(after["engines"][0]["name"], "cpu");
    let of_engines = |what: &str| {
        let sum = |all: &Value| {
            all["engines"]
                .as_array()
                .expect("engines")
                .iter()
                .map(|e| e[what].as_u64().expect(what))
                .sum::<u64>()
        };
        (sum(&after) - sum(&before)) as f64
    };
    assert_eq!(of_engines("bytes"), grown(["crypto", "batch", "bytes"]));
    assert_eq!(of_engines("batches"), grown(["crypto", "batch", "count"]));
    assert!(of_engines("chunks") >= (2 * LEN / 4096) as f64 - grown(["crypto", "single", "count"]));
    assert!(cpu(&after, "failed") == 0 && after["engines"][0]["in_service"] == true);
    assert!(after["uptime_seconds"].as_f64() > before["uptime_seconds"].as_f64());

    let shown = ok(&mut stat(mount.path(), &["--all"]), 60);
    assert!(
        shown.contains("requests read") && shown.contains("crypto batch") && shown.contains("engine cpu ("),
        "{shown}"
    );
    let page = vault.place_path().join("metrics.prom");
    ok(stat(mount.path(), &["--prometheus"]).arg(&page), 60);
    let page = fs::read_to_string(page).expect("a file");
    assert!(
        page.contains("warpcrypt_activity_bytes_total{mount=") && page.contains("activity=\"read\""),
        "{page}"
    );
    mount.unmount();
}

#[test]
fn damage_is_counted_as_a_failure() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::with("aes-256-ctr", &["--names", "plain"]);
    let mount = vault.mount();
    fs::write(mount.join("f"), vec![7; 10_000]).expect("write");
    mount.unmount();
    let stored = vault.store.join("f");
    let mut bytes = fs::read(&stored).expect("stored");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&stored, bytes).expect("damage");
    let mount = vault.mount();
    assert!(fs::read(mount.join("f")).is_err());
    assert!(numbers(mount.path())["requests"]["read"]["failures"].as_u64() >= Some(1));
    mount.unmount();
}

#[test]
fn the_attribute_is_hidden_and_cannot_be_written() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let mut room = [0; 1 << 16];
    let listed = rustix::fs::listxattr(mount.path(), &mut room[..]).expect("a list");
    assert!(!String::from_utf8_lossy(&room[..listed]).contains("warpcrypt"));
    let flags = rustix::fs::XattrFlags::empty();
    assert!(rustix::fs::setxattr(mount.path(), "warpcrypt.metrics", b"x", flags).is_err());
    fs::create_dir(mount.join("d")).expect("a directory");
    assert!(rustix::fs::getxattr(mount.join("d"), "warpcrypt.metrics", &mut room[..]).is_err());
    mount.unmount();
}

#[test]
fn others_are_told_nothing() {
    if !ready_as_root(&["setpriv"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program_path());
    let done = run(other.arg("stat").arg(mount.path()), 60);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("does not say"), "{}", done.stderr);
    mount.unmount();
}

#[test]
fn a_watch_goes_on_until_it_is_ended() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let mut watch =
        stat(mount.path(), &["--watch=1", "--json"]).stdout(Stdio::piped()).spawn().expect("a watch");
    let lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    for line in lines.take(2) {
        let all: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        assert!(all["uptime_seconds"].as_f64() > Some(0.0));
    }
    let process = rustix::process::Pid::from_raw(watch.id() as i32).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("a signal");
    assert_eq!(watch.wait().expect("an end").code(), Some(130));
    mount.unmount();
}

#[test]
fn a_place_without_a_vault_is_named() {
    let done = run(&mut stat(std::path::Path::new("/"), &[]), 60);
    assert_eq!(done.code(), 24);
    assert!(done.stderr.contains("no vault is mounted there"), "{}", done.stderr);
}

#[test]
fn a_vault_on_a_fuse_filesystem_syncs_its_files_one_by_one() {
    if !ready(&[]) {
        return;
    }
    const FILES: usize = 40;
    // More than the limit of recorded names, beyond which the whole store is synced at once.
    const DIRS: usize = 600;
    let outer = Vault::new("aes-256-ctr");
    let below = outer.mount();
    let synced = || {
        let all = numbers(below.path());
        all["requests"]["fsync"]["count"].as_f64().unwrap_or_else(|| panic!("fsync in {all}"))
    };
    let inner = Vault::at(&below.join("store"), "aes-256-ctr");
    let mount = inner.mount();
    let start = synced();
    for n in 0..DIRS {
        fs::create_dir(mount.join(format!("d{n}"))).expect("mkdir");
    }
    fs::write(mount.join("confirmed"), b"x").expect("write");
    File::open(mount.join("confirmed")).and_then(|f| f.sync_all()).expect("fsync");
    let names = synced() - start;
    assert!(names > DIRS as f64, "{names} syncs for {DIRS} id files");
    for n in 0..FILES {
        fs::write(mount.join(format!("f{n}")), b"content").expect("write");
    }
    let before = synced();
    mount.unmount();
    let files = synced() - before;
    assert!(files >= FILES as f64, "{files} syncs of {FILES} files");
    below.unmount();
}

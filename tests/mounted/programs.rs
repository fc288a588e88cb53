//! Real programs at work in a mounted vault.

use crate::support::{
    command::{Running, ok, run, script, sh},
    mounted::Vault,
    random::Random,
    ready, ready_as_root, tree,
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// A generated tree, and a few thousand files that every system has.
fn real_tree(dir: &Path) {
    tree::make(&dir.join("made"), &mut Random::new("tree"));
    fs::create_dir(dir.join("system")).expect("directory");
    let copy = "cd /usr/share; find . -xdev -type d -name 'man*' -prune -o -print0 | head -z -n 3000 |
        tar --no-recursion --null -T - -cf - | tar -xpf - -C \"$1\"";
    sh("/", copy, &[&dir.join("system")], 120);
}

#[test]
fn a_tree_comes_back_as_it_went_in() {
    if !ready(&["cp", "rsync", "tar", "find"]) {
        return;
    }
    let source = tempfile::tempdir().expect("directory");
    real_tree(source.path());
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let [a, b, c] = ["cp", "rsync", "tar"].map(|n| mount.join(n));
    sh("/", "cp -a \"$1\" \"$2\"", &[source.path(), &a], 300);
    sh("/", "rsync -aHAX \"$1/\" \"$2/\"", &[source.path(), &b], 300);
    let pack = "mkdir \"$2\"; touch -r \"$1\" \"$2\"; tar -C \"$1\" -S -cf - . | tar -C \"$2\" -xpf -";
    // tar skips sockets and stores whole seconds, so it gets a tree without sockets and is compared
    // separately.
    sh("/", pack, &[&source.path().join("system"), &c], 300);
    let mount = mount.remount();
    tree::assert_same(source.path(), &a);
    tree::assert_same(source.path(), &b);
    sh("/", "tar -C \"$2\" -cf - . | tar -C \"$1\" -df -", &[&source.path().join("system"), &c], 300);
    // A second run repairs an incomplete and modified copy.
    sh(&b, "rm -rf made/sizes; echo changed >>made/plain; rm made/special/linked", &[], 60);
    sh("/", "rsync -aHAX --delete --inplace \"$1/\" \"$2/\"", &[source.path(), &b], 300);
    let mount = mount.remount();
    tree::assert_same(source.path(), &b);
    sh("/", "rm -rf \"$1\"", &[&a], 120);
    assert!(!a.exists());
    mount.unmount();
}

/// Files of equal size swap places, with their attributes, within a second: judged by whole seconds and
/// size, nothing changed. At least one clock tick separates any two writes, so the timestamps tell them
/// apart.
#[test]
fn a_copy_of_a_store_that_rsync_brings_up_to_date_is_whole() {
    if !ready(&["rsync", "setfattr", "getfattr"]) {
        return;
    }
    let mut random = Random::new("rsync of a store");
    let vault = Vault::new("aes-256-ctr");
    let copy = vault.place_path().join("copy");
    for round in 0..4 {
        let mount = vault.mount();
        let change = |step| {
            let [a, b] = [(); 2].map(|()| random.below(12));
            match random.below(3) {
                0 => format!("sleep 0.02; printf %08d {step} >{a}; setfattr -n user.is -v {step} {a}\n"),
                1 => format!(
                    "sleep 0.02; printf %08d {step} >new; setfattr -n user.is -v {step} new; mv new {a}\n"
                ),
                _ => format!("mv {a} other && if mv {b} {a}; then mv other {b}; else mv other {a}; fi\n"),
            }
        };
        let changes: String = (0..60).map(change).collect();
        sh(mount.path(), &format!("{{ {changes} true; }} 2>/dev/null"), &[], 60);
        let shown = "for f in *; do echo \"$f $(cat $f) $(getfattr --only-values -n user.is $f 2>&1)\"; done";
        let expected = sh(mount.path(), shown, &[], 60);
        mount.unmount();
        sh("/", "rsync -aHX --delete --modify-window=-1 \"$1/\" \"$2/\"", &[&vault.store, &copy], 60);
        let check =
            Vault::program().arg("check").arg("--full").arg(&copy).arg("--key-file").arg(&vault.key).output();
        let check = check.expect("check");
        assert!(check.status.success(), "{round}: {}", String::from_utf8_lossy(&check.stdout));
        ok(
            Vault::program()
                .arg("mount")
                .arg(&copy)
                .arg(&vault.mount_point)
                .arg("--key-file")
                .arg(&vault.key),
            60,
        );
        let found = sh(&vault.mount_point, shown, &[], 60);
        ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
        assert_eq!(found, expected, "{round}");
    }
}

#[test]
fn a_stored_tree_shows_no_plaintext() {
    if !ready(&["grep"]) {
        return;
    }
    let vault = Vault::new("aes-128-ctr");
    let mount = vault.mount();
    fs::create_dir(mount.join("name-of-a-directory")).expect("directory");
    fs::write(mount.join("name-of-a-directory/name-of-a-file"), "words of the content ".repeat(500))
        .expect("file");
    std::os::unix::fs::symlink("words-of-a-target", mount.join("name-of-a-link")).expect("link");
    let file = mount.join("name-of-a-directory/name-of-a-file");
    rustix::fs::setxattr(&file, "user.name-of-it", b"words of a value", rustix::fs::XattrFlags::empty())
        .expect("attribute");
    mount.unmount();
    let look = "grep -rlaE 'words.of|name-of' . && exit 1; find . | grep name-of && exit 1
        find . -type l -printf '%l\\n' | grep words && exit 1
        find . -exec getfattr -d -m - {} + 2>/dev/null | grep -E 'words|name-of' && exit 1; true";
    sh(&vault.store, look, &[], 60);
}

#[test]
fn git_works() {
    if !ready(&["git"]) {
        return;
    }
    let vault = Vault::new("aes-192-ctr");
    let mount = vault.mount();
    let history = "git init -q a; cd a; for i in $(seq 60); do
            seq $((i * 50)) >file$((i % 7)); mkdir -p d$((i % 5)); echo $i >d$((i % 5))/f$i; ln -sf file1 l$i
            git add -A; git commit -qm \"change $i\"; done
        git branch other HEAD~20; git checkout -q other; echo other >only; git add -A; git commit -qm other
        git checkout -q -; git merge -q other -m merged; git gc -q --aggressive --prune=now; git fsck --full --strict";
    sh_git(mount.path(), history);
    sh_git(
        mount.path(),
        "git clone -q a b; git clone -q --no-local --bare a c.git; git -C c.git fsck --full",
    );
    let mount = mount.remount();
    let after = "for r in a b c.git; do git -C $r fsck --full --strict; done
        test -z \"$(git -C a status --porcelain)\"; test -z \"$(git -C b status --porcelain)\"
        test $(git -C b rev-list --count HEAD) = 62; git -C b log -p | sha256sum >1; git -C a log -p | sha256sum >2
        cmp 1 2; cd b; git checkout -q HEAD~30; git checkout -q -; test -z \"$(git status --porcelain)\"";
    sh_git(mount.path(), after);
    mount.unmount();
}

fn sh_git(dir: &Path, text: &str) {
    let mut command = script(dir, text);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "N").env(format!("GIT_{who}_EMAIL"), "n@example.org");
    }
    ok(&mut command, 200);
}

#[test]
fn sqlite_shares_a_database_between_processes() {
    if !ready(&["sqlite3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    for mode in ["wal", "delete"] {
        let make = format!("PRAGMA journal_mode={mode}; CREATE TABLE t(w INT, i INT, v TEXT);");
        assert_eq!(sqlite(mount.path(), mode, &make).trim(), mode, "the journal mode is not to be had");
        let writers: Vec<Running> = (0..4)
            .map(|w| {
                let insert = format!("INSERT INTO t VALUES({w},1,hex(randomblob(300)));");
                let update = "UPDATE t SET v=hex(randomblob(200)) WHERE rowid%7=1;";
                let all = format!("BEGIN IMMEDIATE; {insert} {update} COMMIT;").repeat(40);
                Running::start(&mut sqlite_command(mount.path(), mode, &all))
            })
            .collect();
        for writer in writers {
            let done = writer.finish(std::time::Duration::from_secs(150));
            assert!(done.status.success(), "writer: {}", done.stderr);
        }
    }
    let mount = mount.remount();
    for mode in ["wal", "delete"] {
        let check =
            sqlite(mount.path(), mode, "PRAGMA integrity_check; SELECT count(*), count(DISTINCT w) FROM t;");
        assert_eq!(check.trim(), "ok\n160|4", "{mode}");
    }
    mount.unmount();
}

fn sqlite_command(dir: &Path, name: &str, statements: &str) -> Command {
    let mut command = Command::new("sqlite3");
    command.current_dir(dir).args(["-bail", "-cmd", ".timeout 100000"]);
    command.arg(format!("{name}.db")).arg(statements);
    command
}

fn sqlite(dir: &Path, name: &str, statements: &str) -> String {
    ok(&mut sqlite_command(dir, name, statements), 60)
}

#[test]
fn cargo_builds_a_project() {
    if !ready(&["cargo"]) {
        return;
    }
    let vault = Vault::new("aes-128-ctr");
    let mount = vault.mount();
    let build = r#"mkdir -p p/src p/lib/src; cd p
        printf '[package]\nname="p"\nversion="0.1.0"\nedition="2021"\n[dependencies]\nl={path="lib"}\n' >Cargo.toml
        printf '[package]\nname="l"\nversion="0.1.0"\nedition="2021"\n' >lib/Cargo.toml
        echo 'pub fn f() -> u32 { 41 }' >lib/src/lib.rs
        printf 'fn main() { println!("{}", l::f() + 1); }\n#[test] fn t() { assert_eq!(l::f(), 41); }\n' >src/main.rs
        cargo test -q --offline >/dev/null; cargo run -q --offline"#;
    let mut command = script(mount.path(), build);
    for name in ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    assert_eq!(ok(&mut command, 200).trim(), "42");
    let mount = mount.remount();
    assert_eq!(ok(&mut script(mount.join("p"), "target/debug/p"), 60).trim(), "42");
    mount.unmount();
}

#[test]
fn fio_reads_what_it_wrote() {
    if !ready(&["fio"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount();
    let kinds = [
        ("buffered", "--ioengine=psync --bsrange=512-70k --blockalign=512 --fsync=200"),
        ("direct", "--ioengine=psync --direct=1 --bsrange=4k-256k --blockalign=4k"),
        ("mmap", "--ioengine=mmap --bsrange=4k-64k --blockalign=4k"),
        ("threads", "--ioengine=psync --bs=4k --numjobs=4"),
    ];
    // The fake GPU is slow for this many small requests.
    let size: u64 = if std::env::var_os("WARPCRYPT_TEST_ENGINE").is_some() { 1 << 20 } else { 8 << 20 };
    let fio = |name: &str, options: &str, more: &str| {
        let job = format!(
            "fio --name={name} --rw=randwrite --size={size} --verify=crc32c --verify_fatal=1
            --randrepeat=1 --verify_state_save=0 --output={name}.out {options} {more}"
        );
        script(&vault.mount_point, &job.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    for (name, options) in kinds {
        ok(&mut fio(name, options, "--do_verify=1"), 300);
    }
    mount = mount.remount();
    for (name, options) in kinds {
        ok(&mut fio(name, options, "--verify_only=1"), 300);
    }
    // Make sure that the check itself can fail.
    let broken = fs::OpenOptions::new().write(true).open(mount.join("threads.1.0")).expect("fio's file");
    std::os::unix::fs::FileExt::write_all_at(&broken, &[0x77; 100], size / 2).expect("write");
    drop(broken);
    let done = run(&mut fio(kinds[3].0, kinds[3].1, "--verify_only=1"), 300);
    assert!(!done.status.success(), "fio does not see a changed file");
    mount.unmount();
}

#[test]
fn postgresql_survives_a_restart() {
    if !ready_as_root(&["pgbench", "setpriv", "pg_config"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(&["--allow-other"]);
    // Only the owner may enter a vault's root by default.
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let data = mount.join("data");
    fs::create_dir(&data).expect("directory");
    std::os::unix::fs::chown(&data, Some(65534), Some(65534)).expect("owner");
    let outside = tempfile::tempdir().expect("directory");
    std::os::unix::fs::chown(outside.path(), Some(65534), Some(65534)).expect("owner");
    postgres(&data, outside.path(), "initdb -D \"$1\" -k -U u -A trust >/dev/null");
    postgres(
        &data,
        outside.path(),
        &format!(
            "{START} pgbench -q -i -s 2 -U u postgres 2>/dev/null
        pgbench -c 4 -j 2 -T 5 -U u postgres >/dev/null; {STOP}"
        ),
    );
    let mount = mount.remount();
    postgres(&data, outside.path(), "pg_checksums --check -D \"$1\" >/dev/null");
    postgres(&data, outside.path(), &format!("{START} pgbench -n -c 4 -j 2 -T 2 -U u postgres >/dev/null
        balance='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
            AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)'
        test \"$(psql -qAt -U u -c \"$balance\" postgres)\" = t; {STOP}"));
    mount.unmount();
}

const START: &str =
    "pg_ctl -s -w -D \"$1\" -l \"$2/log\" -o \"-c listen_addresses='' -k $2\" start; export PGHOST=\"$2\"
        trap 'pg_ctl -s -m immediate -D \"$1\" stop' EXIT;";
const STOP: &str = "trap - EXIT; pg_ctl -s -w -m fast -D \"$1\" stop";

/// Runs a script as an ordinary user. `$1` is the database, `$2` a directory outside the mount.
fn postgres(data: &Path, outside: &Path, text: &str) {
    let whole = format!("PATH=\"$(pg_config --bindir):$PATH\"; cd \"$2\"; {text}");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-euc", &whole, "sh"]);
    ok(command.arg(data).arg(outside).env("LC_ALL", "C"), 200);
}

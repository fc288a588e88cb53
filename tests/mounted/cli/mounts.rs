//! The life of a mount: every way to start and to end it.

use crate::{
    cli::{fails, mount_command, text},
    support::{
        command::{Running, ok, run, script, sh},
        mounted::{Vault, is_mounted, program_path},
        ready, ready_as_root,
        waiting::{stop, wait_for},
    },
};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::Duration,
};

#[test]
fn what_was_written_is_there_after_umount_and_the_vault_may_be_moved_at_once() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    for round in 0..3 {
        let mount = vault.mount();
        for earlier in 0..round {
            assert!(fs::read(mount.join(format!("file{earlier}"))).expect("read") == content);
        }
        fs::write(mount.join(format!("file{round}")), &content).expect("write");
        ok(Vault::program().arg("umount").arg(mount.path()), 60);
        let moved = vault.place_path().join("moved");
        fs::rename(&vault.store, &moved).expect("move the vault");
        fs::rename(&moved, &vault.store).expect("move it back");
    }
    let mount = vault.mount();
    mount.unmount();
    fs::remove_dir_all(&vault.store).expect("remove the vault");
}

#[test]
fn a_deleted_lock_file_lets_nobody_in_and_umount_waits_all_the_same() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let content = vec![7; 8 << 20];
    fs::write(mount.join("file"), &content).expect("write");
    let lock = vault.store.join("warpcrypt.lock");
    fs::remove_file(&lock).expect("delete the lock file");
    let second = vault.place_path().join("second");
    fs::create_dir(&second).expect("mkdir");
    let again = |store: &Path| {
        let mut command = Vault::program();
        command.arg("mount").arg(store).arg(&second).arg("--key-file").arg(&vault.key);
        command
    };
    fails(&mut again(&vault.store), 15, "already mounted");
    let bound = vault.place_path().join("bound");
    fs::create_dir(&bound).expect("mkdir");
    let bind = Command::new("mount").arg("--bind").arg(&vault.store).arg(&bound).output();
    if bind.is_ok_and(|done| done.status.success()) {
        let _ = fs::remove_file(bound.join("warpcrypt.lock"));
        fails(&mut again(&bound), 15, "already mounted");
        ok(Command::new("umount").arg(&bound), 60);
    }
    // Key slots can change while the vault is mounted.
    let new = vault.place_path().join("new key");
    fs::write(&new, [5; 64]).expect("write");
    ok(&mut vault.add_key(&new), 60);
    let _ = fs::remove_file(&lock);
    ok(Vault::program().arg("umount").arg(mount.path()), 60);
    // Everything was stored when `umount` returned, and no process holds the vault.
    let mount = vault.mount();
    assert!(fs::read(mount.join("file")).expect("read") == content);
    mount.unmount();
}

#[test]
fn umount_says_so_where_it_cannot_see_whether_all_is_stored() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let lock = vault.store.join("warpcrypt.lock");
    fs::rename(&lock, vault.place_path().join("lock")).expect("take the lock file away");
    // Simulates a failing disk: the lock file exists, but cannot be read.
    std::os::unix::fs::symlink("warpcrypt.lock", &lock).expect("a link to itself");
    fails(Vault::program().arg("umount").arg(mount.path()), 1, "unmounted, but the vault in");
    assert!(!is_mounted(&vault.mount_point));
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    let moved = vault.place_path().join("moved");
    fs::rename(&vault.store, &moved).expect("move the vault");
    fails(Vault::program().arg("umount").arg(mount.path()), 1, "unmounted, but the vault in");
    fs::rename(&moved, &vault.store).expect("move it back");
    wait_for("the vault can be mounted again", || vault.try_mount(&[]).status.success());
    assert_eq!(fs::read(vault.mount_point.join("file")).expect("read"), b"content");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

#[test]
fn a_mount_waits_for_the_one_before_it() {
    if !ready_as_root(&["flock"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), "content").expect("write");
    // A stopped process stores nothing, however long the next mount waits.
    stop(mount.pid);
    ok(Command::new("umount").arg("-l").arg(mount.path()), 60);
    let said = vault.place_path().join("said");
    let line = "exec \"$1\" mount \"$2\" mnt --key-file key --log-file log 2>said";
    let program = program_path();
    let mut next = script(vault.place_path(), line);
    let next = Running::start(next.arg(&program).arg(&vault.store));
    let waits =
        || fs::read_to_string(&said).is_ok_and(|said| said.contains("waiting for the previous mount of"));
    wait_for("it says that it waits", waits);
    kill_process(mount.pid, Signal::CONT).expect("go on");
    assert_eq!(next.finish(Duration::from_secs(60)).code(), 0);
    assert_eq!(fs::read_to_string(vault.mount_point.join("file")).expect("read"), "content");
    drop(mount);
    wait_for("the vault is free", || {
        run(Command::new("flock").arg("-n").arg(vault.store.join("warpcrypt.lock")).arg("true"), 30).code()
            == 0
    });
}

/// Limits as set by `ulimit` in a shell.
#[test]
fn limits_of_a_process_do_not_end_a_mount() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = |limit: &str| {
        let line = "\"$1\" mount \"$2\" \"$3\" --key-file \"$4\" --log-file \"$5\"";
        let paths = [&program_path(), &vault.store, &vault.mount_point, &vault.key, &vault.log];
        sh("/", &format!("ulimit {limit}; {line}"), &paths.map(|path| path.as_path()), 60);
    };
    let inside = |script: &str| sh(&vault.mount_point, script, &[], 120);
    let unmount = || ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    mount("-n 300");
    inside("for n in $(seq 400); do mkdir -p $n/sub; echo $n >$n/sub/file; done");
    inside("test $(cat */sub/file | wc -l) = 400; rm -r *");
    unmount();
    mount("-S -f 200");
    inside("head -c 3000000 /dev/zero >large; test $(wc -c <large) = 3000000; rm large");
    unmount();
    mount("-f 200");
    inside("! head -c 3000000 /dev/zero >large 2>&1 || exit 1");
    inside("rm large; echo small >small; test $(cat small) = small");
    unmount();
}

#[test]
fn plain_umount_ends_in_a_clean_vault_too() {
    if !ready_as_root(&["fusermount3"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for way in ["umount \"$1\"", "fusermount3 -u \"$1\"", "umount -l \"$1\""] {
        let mount = vault.mount();
        fs::write(mount.join("file"), way).expect("write");
        sh("/", way, &[mount.path()], 30);
        wait_for("the process is gone", || !mount.alive());
        let mount = vault.mount();
        assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), way);
        mount.unmount();
    }
}

#[test]
fn signals_end_a_mount_cleanly() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for signal in [Signal::TERM, Signal::INT] {
        let mount = vault.mount();
        fs::write(mount.join("file"), format!("{signal:?}")).expect("write");
        kill_process(mount.pid, signal).expect("kill");
        wait_for("the process is gone", || !mount.alive());
        assert!(!is_mounted(&vault.mount_point));
        let mount = vault.mount();
        assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), format!("{signal:?}"));
        mount.unmount();
    }
}

#[test]
fn a_signal_does_not_wait_for_ever_for_those_who_use_the_mount() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let open = fs::File::create(mount.join("file")).expect("create");
    kill_process(mount.pid, Signal::TERM).expect("kill");
    wait_for("the mount is out of sight", || !is_mounted(&vault.mount_point));
    drop(open);
    wait_for("the process is gone", || !mount.alive());
}

#[test]
fn in_the_foreground() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    for signal in [Signal::INT, Signal::HUP] {
        let running = Running::start(mount_command(&vault).arg("--foreground"));
        wait_for("the mount answers", || is_mounted(&vault.mount_point));
        fs::write(vault.mount_point.join("file"), "content").expect("write");
        kill_process(Pid::from_raw(running.pid() as i32).expect("a pid"), signal).expect("kill");
        let done = running.finish(Duration::from_secs(30));
        assert_eq!(done.code(), 0, "{}", done.stderr);
        assert!(!is_mounted(&vault.mount_point));
    }
    let running = Running::start(mount_command(&vault).arg("--foreground"));
    wait_for("the mount answers", || is_mounted(&vault.mount_point));
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    assert_eq!(running.finish(Duration::from_secs(30)).code(), 0);
}

#[test]
fn a_dead_mount_is_named_and_can_be_taken_away() {
    if !ready(&[]) {
        return;
    }
    // With rings, the kernel closes the dead process's connection slightly later, and returns other
    // errors until then.
    for rings in ["off", "auto"] {
        a_dead_mount(&["--io-uring", rings]);
    }
}

fn a_dead_mount(options: &[&str]) {
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount_with(options);
    fs::metadata(mount.path()).expect("attributes, which the kernel keeps");
    mount.kill_server();
    fails(&mut mount_command(&vault), 23, "is dead: Transport endpoint");
    fails(Vault::program().arg("stat").arg(mount.path()), 1, "the mount is dead");
    let mut below = Vault::program();
    below.arg("mount").arg(&vault.store).arg(mount.join("below")).arg("--key-file").arg(&vault.key);
    fails(&mut below, 23, &format!("`warpcrypt umount {}`", text(mount.path())));
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
    let mount = vault.mount();
    mount.unmount();
}

#[test]
fn the_process_has_the_name_of_the_program() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let name = fs::read_to_string(format!("/proc/{}/comm", mount.pid.as_raw_nonzero())).expect("its name");
    assert_eq!(name, "warpcrypt\n");
}

#[test]
fn a_mount_holds_nothing_of_the_shell_that_made_it() {
    if !ready(&["flock"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let line = "exec 9>lock; flock -n 9; \"$1\" mount \"$2\" mnt --key-file key --log-file log; exec 9>&-
        flock -n lock echo free";
    let program = program_path();
    assert_eq!(sh(vault.place_path(), line, &[&program, &vault.store], 60), "free\n");
    ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
}

#[test]
fn odd_paths() {
    if !ready(&[]) {
        return;
    }
    let place = Vault::new("aes-256-ctr");
    let odd = place.place_path().join("a b,c\\d\u{e9}\n");
    fs::create_dir(&odd).expect("mkdir");
    let (store, mount) = (odd.join("vault"), odd.join("mount"));
    fs::create_dir(&mount).expect("mkdir");
    let program = |args: &[&str]| {
        let mut command = Vault::program();
        command.args(args);
        command
    };
    ok(program(&["init"]).arg(&store).arg("--key-file").arg(&place.key), 60);
    ok(
        program(&["mount"])
            .arg(&store)
            .arg(&mount)
            .arg("--key-file")
            .arg(&place.key)
            .arg("--log-file")
            .arg(&place.log),
        60,
    );
    fs::write(mount.join("x"), "y").expect("write");
    ok(program(&["umount"]).arg(&mount), 60);
    assert!(fs::read_dir(&mount).expect("list").next().is_none());
}

#[test]
fn a_mount_inside_a_mount_has_to_go_first() {
    if !ready(&[]) {
        return;
    }
    let (outer, inner) = (Vault::new("aes-256-ctr"), Vault::new("aes-256-ctr"));
    // fusermount3 accesses the inner mount point as root.
    let mount = outer.mount_with(if geteuid().is_root() { &[] } else { &["--allow-other"] });
    let below = mount.join("a place's name");
    fs::create_dir(&below).expect("mkdir");
    let mut command = Vault::program();
    command.arg("mount").arg(&inner.store).arg(&below).arg("--key-file").arg(&inner.key);
    let done = run(command.arg("--log-file").arg(&inner.log), 60);
    let said = format!("is inside the mount of {}", text(&outer.store));
    assert!(done.code() == 0 && done.stderr.contains(&said), "{}", done.stderr);
    let mut command = Vault::program();
    let quoted = format!("`umount '{}'`", text(&below).replace('\'', "'\\''"));
    fails(command.arg("umount").arg(mount.path()), 23, &quoted);
    ok(Vault::program().arg("umount").arg(&below), 60);
    mount.unmount();
}

#[test]
fn a_lock_of_a_process_that_has_ended_is_waited_for() {
    if !ready(&["flock"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    // flock(1), which took the lock, has exited. The shell, which is about to exit, still holds the
    // descriptor.
    let hold = "exec 9>>\"$1\"; flock -x 9; touch \"$2\"; sleep 0.5";
    let (lock, held) = (vault.store.join("warpcrypt.lock"), vault.place_path().join("held"));
    let ending = Running::start(script("/", hold).arg(&lock).arg(&held));
    wait_for("the lock is held", || held.exists());
    vault.mount().unmount();
    assert_eq!(ending.finish(Duration::from_secs(20)).code(), 0);
}

#[test]
fn the_trial_run_leaves_nothing_behind() {
    if !ready(&[]) {
        return;
    }
    let place = Vault::new("aes-256-ctr");
    let (source, temp) = (place.place_path().join("source"), place.place_path().join("temp"));
    fs::create_dir_all(source.join("folder with a name")).expect("mkdir");
    fs::create_dir(&temp).expect("mkdir");
    let words: String = (0..20_000).map(|n| format!("{n} bottles\n")).collect();
    for n in 0..300 {
        fs::write(source.join(format!("folder with a name/file number {n}")), &words[n..]).expect("write");
    }
    std::os::unix::fs::symlink("../elsewhere", source.join("link")).expect("symlink");
    let trial = |more: &[&str]| {
        let mut command = Vault::program();
        command.args(["try", "--from", text(&source)]).args(more).env("TMPDIR", &temp);
        command
    };
    let said = ok(&mut trial(&[]), 120);
    for part in ["300 files", "no difference", "All is well", "None of"] {
        assert!(said.contains(part), "{said}");
    }
    let result: serde_json::Value = serde_json::from_str(&ok(&mut trial(&["--json"]), 120)).expect("JSON");
    assert_eq!(result["files"], 300);
    assert_eq!(result["differences"], 0);
    assert!(fs::read_dir(&temp).expect("list").next().is_none());

    // Interrupt it halfway with Ctrl-C.
    let running = Running::start(&mut trial(&[]));
    wait_for("it is mounted", || {
        fs::read_to_string("/proc/self/mounts").is_ok_and(|table| table.contains(text(&temp)))
    });
    kill_process(Pid::from_raw(running.pid() as i32).expect("a pid"), Signal::INT).expect("kill");
    let done = running.finish(Duration::from_secs(60));
    assert_eq!(done.code(), 130, "{}{}", done.text(), done.stderr);
    assert!(fs::read_dir(&temp).expect("list").next().is_none());

    // Kill it halfway: a separate process serves the mount, so the killed one exits immediately.
    let running = Running::start(&mut trial(&[]));
    let trial_mount = || {
        let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
        table
            .split_whitespace()
            .find(|part| part.starts_with(text(&temp)) && part.ends_with("/mount"))
            .map(str::to_owned)
    };
    // Wait until the mount contains copied files: before that point the mount ends along with the trial.
    let begun = |mount: String| fs::read_dir(mount).is_ok_and(|mut entries| entries.next().is_some());
    wait_for("it copies", || trial_mount().is_some_and(begun));
    kill_process(Pid::from_raw(running.pid() as i32).expect("a pid"), Signal::KILL).expect("kill");
    running.finish(Duration::from_secs(60));
    ok(Vault::program().arg("umount").arg(trial_mount().expect("a mount that still answers")), 60);
    fs::remove_dir_all(&temp).expect("remove");
    fs::create_dir(&temp).expect("mkdir");

    let empty = run(Vault::program().args(["try", "--from", text(&temp)]).env("TMPDIR", &temp), 60);
    assert_eq!(empty.code(), 1, "{}", empty.stderr);
    assert!(empty.stderr.contains("--from"), "{}", empty.stderr);
}

/// For example, while an `import` is running.
#[test]
fn a_mount_for_reading_rewrites_nothing_under_another_key() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    vault.mount().unmount();
    let writer = File::open(vault.store.join("warpcrypt.lock")).expect("lock file");
    writer.lock().expect("lock");
    let mount = vault.mount_with(&["--read-only"]);
    let config = || fs::read(vault.store.join("warpcrypt.json")).expect("configuration");
    let before = config();
    fails(&mut vault.rotate_to(&vault.key), 15, "another process writes");
    assert!(config() == before);
    mount.unmount();
}

/// SIGTERM ends the vault's own mount, and later signals still take effect.
#[test]
fn what_is_mounted_over_a_vault_stays_when_that_is_told_to_end() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), b"content").expect("write");
    let over = "mount -t tmpfs none \"$1\" && kill -TERM $2 && sleep 7 && findmnt -n -o FSTYPE \"$1\"";
    let process = mount.pid.as_raw_nonzero().to_string();
    let shown = sh("/", over, &[mount.path(), Path::new(&process)], 60);
    assert!(shown.contains("tmpfs"), "{shown}");
    sh("/", "umount \"$1\" && kill -TERM $2", &[mount.path(), Path::new(&process)], 60);
    wait_for("the mount has ended", || !is_mounted(&vault.mount_point));
    drop(mount);
    let mount = vault.mount();
    assert_eq!(fs::read(mount.join("file")).expect("read"), b"content");
    mount.unmount();
}

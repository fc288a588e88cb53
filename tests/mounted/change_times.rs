//! Change times survive a remount, so programs that rely on them do not read unchanged files again.

use crate::support::{
    command::{ok, script, sh},
    disk::Disk,
    mounted::{Mount, Vault, release},
    ordinary::is_ordinary_user,
    ready, ready_as_root,
    waiting::wait_for,
};
use rustix::process::{Signal, kill_process};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

const PROGRAMS: [&str; 2] = ["setfattr", "cp"];
/// With `write-back` the kernel keeps its own times.
const CACHE: [&str; 2] = ["--cache", "auto"];

/// Every kind of node, each changed in every way.
const TREE: &str = r#"
    mkdir -p d/e empty s; for i in 1 2 3; do echo $i >d/f$i; head -c $((i * 200000)) /dev/urandom >d/e/g$i; done
    : >nothing; echo x >x; ln -s d/f1 link; ln -s "$(printf 'x/%.0s' $(seq 1700))" long; mkfifo pipe
    echo l >"$(printf 'L%.0s' $(seq 200))"; ln d/f1 hard; mv d/f3 d/moved
    setfattr -n user.x -v 1 d/f2; setfattr -n user.x -v 1 d/e; chmod 600 d/moved; chmod 700 d; chmod 444 d/e/g1
    touch -d 2001-01-01 d/e/g2 d/e; echo y >>d/e/g3; truncate -s 5000 x; cp -a d s/; cp -a s s2; cp /bin/true t; chmod 2755 t
    echo m >s/m; cp s/m s/n; cat d/f1 d/e/g1 >s/all; rm s/n; sync s/all
"#;

/// The change time and inode number of everything below the root. The root itself changes when the vault
/// creates its own directories.
fn look(dir: &Path) -> BTreeMap<String, String> {
    let lines = sh(dir, r"find . -mindepth 1 -printf '%p\t%C@ %i\n'", &[], 60);
    let seen: BTreeMap<_, _> =
        lines.lines().filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.into(), b.into())).collect();
    assert!(seen.len() > 30, "{lines}");
    seen
}

fn differing(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    assert!(one.keys().eq(other.keys()));
    one.iter().filter(|(path, seen)| other[*path] != **seen).map(|(path, _)| path.clone()).collect()
}

fn stay() {
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount_with(&CACHE);
    fs::create_dir(mount.join("tree")).unwrap();
    let tree = mount.join("tree");
    let same = |mount: &Mount, before: &_, when: &str| {
        assert_eq!(differing(before, &look(mount.path())), [""; 0], "{when}");
    };
    sh(&tree, TREE, &[], 60);
    let before = look(mount.path());
    mount = mount.remount();
    same(&mount, &before, "what the unmount stored");
    mount = mount.remount();
    same(&mount, &before, "another mount");
    sh(&tree, "cat d/f1 d/e/g1 >/dev/null; ls -R >/dev/null; readlink link", &[], 60);
    mount = mount.remount();
    same(&mount, &before, "what was read");

    sh(
        &tree,
        "echo more >>d/f2; chmod 640 x; setfattr -n user.x -v 2 s/m; echo new >new; touch s/all; mv t u",
        &[],
        60,
    );
    let changed = look(mount.path());
    let named = ["d/f2", "x", "s/m", "s/all"].map(|path| format!("./tree/{path}"));
    assert!(named.iter().all(|path| changed[path] != before[path]));
    sh(
        "/",
        "\"$1\" freeze \"$2\"; \"$1\" thaw \"$2\"",
        &[Vault::program().get_program().as_ref(), mount.path()],
        60,
    );
    same(&mount, &changed, "what a freeze stored");
    mount = mount.remount();
    same(&mount, &changed, "what a freeze stored, and another mount");

    let now = look(mount.path());
    mount.kill();
    mount = vault.mount_with(&CACHE);
    same(&mount, &now, "a kill of a mount that changed nothing");
    mount.unmount();
    // A damaged list makes files look changed, and has no other effect.
    let times = vault.store.join("warpcrypt.times");
    let mut stored = fs::read(&times).unwrap();
    stored[20] ^= 1;
    fs::write(&times, stored).unwrap();
    mount = vault.mount_with(&CACHE);
    let jumped = differing(&now, &look(mount.path()));
    assert!(jumped.contains(&"./tree/new".into()), "{jumped:?}");
    mount.unmount();
}

#[test]
fn they_stay() {
    if ready(&PROGRAMS) {
        stay();
    }
}

#[test]
fn they_stay_for_an_ordinary_user() {
    if is_ordinary_user(&PROGRAMS, 300) {
        stay();
    }
}

/// Runs a script in the mount, with a separate home and settings.
fn run_in(mount: &Mount, text: &str) -> String {
    let place = mount.vault.place_path();
    let mut command = script(mount.path(), text);
    command.env("HOME", place).env("REPOSITORIES", place).env("BORG_BASE_DIR", place.join("borg-home"));
    command.env("RESTIC_CACHE_DIR", place.join("restic-cache")).env("RESTIC_PASSWORD", "password");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "N").env(format!("GIT_{who}_EMAIL"), "n@example.org");
    }
    ok(&mut command, 120)
}

/// A program that recognises the files in `r` by their times.
struct Knows {
    program: &'static str,
    /// Records the files.
    learn: &'static str,
    /// Prints the names of the files that it considers changed, without reading their content.
    changed: &'static str,
}

const KNOW: [Knows; 3] = [
    // `diff-files` considers a file changed if its times differ from those in the index.
    Knows {
        program: "git",
        learn: "cd r; git init -q; git add .; git commit -qm one; git status; second; git diff-files",
        changed: "cd r; git diff-files --name-only",
    },
    Knows {
        program: "restic",
        learn: r#"restic -q -r "$REPOSITORIES/restic" init; restic -q -r "$REPOSITORIES/restic" backup r --exclude .git"#,
        changed: r#"restic -r "$REPOSITORIES/restic" backup -vv r --exclude .git | sed -n 's|^modified *.*/r/\(f[0-9]*\),.*|\1|p'"#,
    },
    Knows {
        program: "borg",
        learn: r#"borg init -e none "$REPOSITORIES/borg"; borg create -e r/.git "$REPOSITORIES/borg::one" r"#,
        // Borg does not trust the times of the most recently changed file.
        changed: r#"borg create -e r/.git --list --filter AM "$REPOSITORIES/borg::$(date +%s%N)" r 2>&1 |
            sed -n 's|^[AM] r/\(f[0-9]*\)$|\1|p'"#,
    },
];

fn read_nothing_again() {
    let vault = Vault::new("aes-256-ctr");
    let mut mount = vault.mount_with(&CACHE);
    // Git compares whole seconds, and always rereads files modified in the same second as the index.
    let second = "second() { s=$(date +%s); while test $(date +%s) = $s; do sleep 0.05; done; }";
    run_in(
        &mount,
        &format!(
            "{second}
            mkdir r; for i in $(seq 200); do echo $i >r/f$i; done; ln -s f1 r/l; touch -d 2020-01-01 r/f*; second; echo >r/last"
        ),
    );
    for knows in &KNOW {
        run_in(&mount, &format!("{second}\n{}", knows.learn));
    }
    for _ in 0..2 {
        mount = mount.remount();
        for Knows { program, changed, .. } in &KNOW {
            assert_eq!(run_in(&mount, changed), "", "{program} reads them again");
        }
    }
    run_in(&mount, "echo other >r/f7; touch -d 2020-01-01 r/f7");
    mount = mount.remount();
    for Knows { program, changed, .. } in &KNOW {
        assert_eq!(run_in(&mount, changed).trim(), "f7", "{program}");
    }
    mount.unmount();
}

#[test]
fn backups_and_git_read_nothing_again() {
    if ready(&KNOW.map(|knows| knows.program)) {
        read_nothing_again();
    }
}

#[test]
fn backups_and_git_of_an_ordinary_user_read_nothing_again() {
    if is_ordinary_user(&KNOW.map(|knows| knows.program), 300) {
        read_nothing_again();
    }
}

/// Brings a mount into a state.
type Reach = fn(&Mount);

const STATES: [(&str, Reach); 6] = [
    ("in use", |_| {}),
    ("locked", |mount| tell(mount, "lock")),
    ("unlocked", |mount| {
        tell(mount, "lock");
        let mut unlock = Vault::program();
        ok(unlock.arg("unlock").arg(mount.path()).arg("--key-file").arg(&mount.vault.key), 60);
    }),
    ("frozen", |mount| tell(mount, "freeze")),
    ("thawed", |mount| {
        tell(mount, "freeze");
        tell(mount, "thaw");
    }),
    ("without the file", |mount| fs::remove_file(mount.vault.store.join("warpcrypt.times")).expect("remove")),
];

/// Ends a mount.
type End = fn(Mount);

const ENDS: [(&str, End); 4] = [
    ("umount", |mount| mount.unmount()),
    ("SIGTERM", |mount| {
        kill_process(mount.pid, Signal::TERM).expect("signal");
        wait_for("its end", || !mount.alive());
    }),
    ("lock --end", |mount| {
        ok(Vault::program().args(["lock", "--end"]).arg(mount.path()), 60);
        wait_for("its end", || !mount.alive());
    }),
    ("detached", |mount| {
        release(mount.path());
        wait_for("its end", || !mount.alive());
    }),
];

fn tell(mount: &Mount, what: &str) {
    ok(Vault::program().arg(what).arg(mount.path()), 60);
}

fn every_end_from_every_state() {
    let vault = Vault::in_memory("aes-256-ctr");
    let names = |state: &str, end: &str| format!("{state}, {end}");
    let mut before = BTreeMap::new();
    for (state, reach) in STATES {
        for (end, finish) in ENDS {
            let mount = vault.mount_with(&CACHE);
            assert_eq!(times_of(mount.path(), &before), before, "before {}", names(state, end));
            fs::write(mount.join(names(state, end)), names(state, end)).expect("write");
            before.insert(names(state, end), String::new());
            before = times_of(mount.path(), &before);
            reach(&mount);
            finish(mount);
        }
    }
    let mount = vault.mount_with(&CACHE);
    assert_eq!(times_of(mount.path(), &before), before);
    for name in before.keys() {
        assert_eq!(&fs::read_to_string(mount.join(name)).expect("read"), name);
    }
    mount.unmount();
}

/// The change time of each named file.
fn times_of(dir: &Path, names: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let time = |name: &String| {
        let stat = fs::metadata(dir.join(name)).expect("stat");
        format!("{}.{:09}", stat.ctime(), stat.ctime_nsec())
    };
    names.keys().map(|name| (name.clone(), time(name))).collect()
}

#[test]
fn they_stay_whatever_state_a_mount_ends_in() {
    if ready(&[]) {
        every_end_from_every_state();
    }
}

#[test]
fn they_stay_whatever_state_an_ordinary_user_s_mount_ends_in() {
    if is_ordinary_user(&[], 300) {
        every_end_from_every_state();
    }
}

/// If the list does not fit, only the times are lost.
#[test]
fn a_full_disk_keeps_nobody_from_unmounting() {
    if !ready_as_root(&["mount"]) {
        return;
    }
    let disk = Disk::new("16m");
    let vault = Vault::at(&disk.0.path().join("vault"), "aes-256-ctr");
    let mount = vault.mount_with(&CACHE);
    for n in 0..300 {
        fs::write(mount.join(format!("f{n}")), "content").expect("write");
    }
    tell(&mount, "freeze");
    tell(&mount, "thaw");
    fs::remove_file(vault.store.join("warpcrypt.times")).expect("remove");
    let ballast = disk.0.path().join("ballast");
    let _ = fs::write(&ballast, vec![1; 16 << 20]);
    mount.unmount();
    fs::remove_file(ballast).expect("remove");
    let mount = vault.mount_with(&CACHE);
    for n in 0..300 {
        assert_eq!(fs::read(mount.join(format!("f{n}"))).expect("read"), b"content");
    }
    mount.unmount();
}

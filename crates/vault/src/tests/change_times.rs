//! Change times from one session to the next: every way to end a session, from every state that a vault
//! can be in.

use super::{anchor::open_anchored, rotate::begin_at, *};
use crate::{SetAttr, Target, open_file::OpenFile};
use content::Time;
use crypto::secret::Secret;
use format::change_times::ChangeTimesKey;
use std::{os::unix::fs::MetadataExt, time::Duration};

const TIMES: &str = "warpcrypt.times";

/// An event in the life of an open vault. A locked or frozen vault serves no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Sync,
    Chmod,
    Lock,
    Unlock,
    /// Unlocks with the configuration of a rotation that began while the vault was locked.
    UnlockRotating,
    Freeze,
    Thaw,
    LoseFile,
}

const STEPS: [Step; 9] = [
    Step::Write,
    Step::Sync,
    Step::Chmod,
    Step::Lock,
    Step::Unlock,
    Step::UnlockRotating,
    Step::Freeze,
    Step::Thaw,
    Step::LoseFile,
];

/// A way to open the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    Anchored,
    Shared,
    ReadOnly,
}

impl Way {
    fn open(self, path: &Path, anchor: &Path) -> Arc<Vault> {
        if self == Way::Anchored {
            return open_anchored(path, anchor);
        }
        let options = OpenOptions {
            read_only: self == Way::ReadOnly,
            sharing: (self == Way::Shared).then_some(Duration::from_secs(1)),
            ..OpenOptions::default()
        };
        Vault::open(path, &unlock(), options).unwrap()
    }
}

/// Whether a vault opened this way allows the last step after the others.
fn may_follow(way: Way, steps: &[Step]) -> bool {
    let Some((&last, before)) = steps.split_last() else { return true };
    let held = before.iter().rfind(|step| {
        matches!(step, Step::Lock | Step::Unlock | Step::UnlockRotating | Step::Freeze | Step::Thaw)
    });
    let is_open = !matches!(held, Some(Step::Lock | Step::Freeze));
    match last {
        Step::Write | Step::Sync | Step::Chmod => is_open && way != Way::ReadOnly,
        Step::Lock => is_open,
        Step::Freeze => is_open && way != Way::Shared,
        Step::Unlock => held == Some(&Step::Lock),
        // A sequence rotates the key at most once.
        Step::UnlockRotating => {
            held == Some(&Step::Lock) && way == Way::Alone && !before.contains(&Step::UnlockRotating)
        }
        Step::Thaw => held == Some(&Step::Freeze),
        Step::LoseFile => !before.contains(&Step::LoseFile),
    }
}

/// Every possible sequence of at most `most` steps.
fn sequences(way: Way, most: usize) -> Vec<Vec<Step>> {
    let mut all = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..most {
        let longer = longest.iter().flat_map(|steps| {
            STEPS
                .map(|step| [&steps[..], &[step]].concat())
                .into_iter()
                .filter(|steps| may_follow(way, steps))
        });
        longest = longer.collect();
        all.extend_from_slice(&longest);
    }
    all
}

fn change_time(vault: &Vault, stored: &StoredName) -> Time {
    vault.stat(Target::Entry(&vault.root(), stored)).unwrap().ctime
}

/// The change time in the store.
fn raw_change_time(vault: &Vault, stored: &StoredName) -> Time {
    let raw = std::fs::metadata(vault.root().path_in_store(&stored.0)).unwrap();
    Time::from_store(raw.ctime(), raw.ctime_nsec() as u64)
}

/// Runs the steps on a new vault with one file, which stays open throughout, and shuts the vault down.
/// The next session must show the change time that this one showed last.
fn run(way: Way, steps: &[Step]) {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let anchor = anchors.path().join("anchor");
    let path = dir.path();
    Vault::init(path, settings(NameMode::Encrypted), &slot()).unwrap();
    let first = if way == Way::ReadOnly { Way::Alone } else { way };
    let vault = first.open(path, &anchor);
    let (stored, _, open) = vault.create(&vault.root(), OsStr::new("file"), node(0o644)).unwrap();
    open.file.write(0, b"before").unwrap();
    vault.sync_file(&open).unwrap();
    drop(open);
    vault.shut_down().unwrap();
    drop(vault);

    let vault = way.open(path, &anchor);
    let open = vault.open_file(&vault.root(), &stored, way != Way::ReadOnly).unwrap();
    let mut master = Vault::unlock_config(path, &unlock()).unwrap().2;
    let mut seen = vault.stat(Target::File(&open)).unwrap().ctime;
    let mut is_locked = false;
    for step in steps {
        take(&vault, &open, *step, path, &mut master);
        is_locked = match step {
            Step::Lock => true,
            Step::Unlock | Step::UnlockRotating => false,
            _ => is_locked,
        };
        if is_locked {
            continue;
        }
        let now = vault.stat(Target::File(&open)).unwrap().ctime;
        assert!(
            now == seen || matches!(step, Step::Write | Step::Chmod | Step::UnlockRotating),
            "{way:?}: {steps:?}: {step:?}"
        );
        seen = now;
    }
    let is_rotating = steps.contains(&Step::UnlockRotating);
    // Neither a locked nor a read-only vault can write a lost list again.
    let is_lost = matches!(steps, [.., Step::Lock, Step::LoseFile])
        || way == Way::ReadOnly && steps.contains(&Step::LoseFile);
    let case = format!("{way:?}: {steps:?}");
    vault.shut_down().unwrap_or_else(|e| panic!("{case}: {e}"));
    drop(open);
    drop(vault);

    let vault = first.open(path, &anchor);
    // A rotation changes all stored names and change times.
    if !is_rotating {
        let now = change_time(&vault, &stored);
        let raw = raw_change_time(&vault, &stored);
        let is_kept = way != Way::Shared && !is_lost;
        assert!(
            now == seen || !is_kept && now == raw,
            "{case}: {seen:?} became {now:?}, {raw:?} in the store"
        );
    }
    let (stored, _) = vault.lookup(&vault.root(), OsStr::new("file")).unwrap();
    let open = vault.open_file(&vault.root(), &stored, false).unwrap();
    let mut content = [0; 6];
    open.file.read(0, &mut content).unwrap();
    assert_eq!(&content, if steps.contains(&Step::Write) { b"behind" } else { b"before" }, "{case}");
    drop(open);
    vault.shut_down().unwrap();
}

fn take(vault: &Vault, open: &OpenFile, step: Step, path: &Path, master: &mut Secret<32>) {
    match step {
        Step::Write => open.file.write(0, b"behind").unwrap(),
        Step::Sync => vault.sync_file(open).unwrap(),
        Step::Chmod => {
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            vault.set_attr(Target::File(open), &mode).unwrap();
        }
        Step::Lock => vault.put_away().unwrap(),
        Step::Unlock => vault.bring_back(master.expose()).unwrap(),
        Step::UnlockRotating => {
            *master = begin_at(path).1;
            vault.bring_back(master.expose()).unwrap();
        }
        Step::Freeze => vault.rest().unwrap(),
        Step::Thaw => vault.resume(),
        Step::LoseFile => drop(std::fs::remove_file(path.join(TIMES))),
    }
}

fn every_end_from_every_state(way: Way) {
    let all = sequences(way, crate::cases(2, 3) as usize);
    assert!(all.len() > 5, "{way:?}");
    all.iter().for_each(|steps| run(way, steps));
}

#[test]
fn every_end_from_every_state_alone() {
    every_end_from_every_state(Way::Alone);
}

#[test]
fn every_end_from_every_state_with_an_anchor() {
    every_end_from_every_state(Way::Anchored);
}

#[test]
fn every_end_from_every_state_of_a_shared_vault() {
    every_end_from_every_state(Way::Shared);
}

#[test]
fn every_end_from_every_state_that_is_only_read() {
    every_end_from_every_state(Way::ReadOnly);
}

/// Anything else with the list's name is ignored and replaced, unless it is a directory.
#[test]
fn what_is_no_list_of_this_vault_s_is_ignored() {
    let another = Fixture::new();
    let foreign = std::fs::read(another.close().path().join(TIMES)).unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(outside.path(), "kept").unwrap();
    type Plant<'a> = &'a dyn Fn(&Path);
    let plants: [(&str, Plant); 7] = [
        ("empty", &|at| std::fs::write(at, "").unwrap()),
        ("damaged", &|at| std::fs::write(at, [7; 100]).unwrap()),
        ("foreign", &|at| std::fs::write(at, &foreign).unwrap()),
        ("too long", &|at| std::fs::File::create(at).unwrap().set_len(1 << 40).unwrap()),
        ("link", &|at| std::os::unix::fs::symlink(outside.path(), at).unwrap()),
        ("second name", &|at| {
            let name = at.with_file_name("elsewhere");
            std::fs::write(&name, "kept").unwrap();
            std::fs::hard_link(name, at).unwrap();
        }),
        ("directory", &|at| std::fs::create_dir(at).unwrap()),
    ];
    for (what, plant) in plants {
        let f = Fixture::new();
        let (stored, _, file) = f.vault.create(&f.root(), OsStr::new("file"), node(0o644)).unwrap();
        file.file.write(0, b"content").unwrap();
        f.vault.sync_file(&file).unwrap();
        drop(file);
        let dir = f.close();
        let times = dir.path().join(TIMES);
        std::fs::remove_file(&times).unwrap();
        plant(&times);
        let vault = open(dir.path(), false);
        let file = vault.open_file(&vault.root(), &stored, true).unwrap();
        file.file.write(0, b"another").unwrap();
        vault.files().flush_at_close(&file).unwrap();
        let seen = change_time(&vault, &stored);
        drop(file);
        vault.shut_down().unwrap();
        drop(vault);
        let kept = (what == "directory").then(|| times.is_dir());
        assert_ne!(kept, Some(false), "{what}");
        if kept.is_none() {
            let now = std::fs::symlink_metadata(&times).unwrap();
            assert!(now.is_file() && now.nlink() == 1 && now.len() < 200, "{what}: {now:?}");
            assert_eq!(change_time(&open(dir.path(), false), &stored), seen, "{what}");
        }
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"kept");
        assert!(what != "second name" || std::fs::read(dir.path().join("elsewhere")).unwrap() == b"kept");
    }
}

/// Writes a file; returns its stored name and the change time shown for it, which differs from the
/// store's.
fn written(f: &Fixture) -> (StoredName, Time) {
    let (stored, _, file) = f.vault.create(&f.root(), OsStr::new("file"), node(0o644)).unwrap();
    // Retry until the store's clock ticks between the write and the clean record.
    loop {
        file.file.write(0, b"content").unwrap();
        f.vault.files().flush_at_close(&file).unwrap();
        f.vault.rest().unwrap();
        f.vault.resume();
        let seen = change_time(&f.vault, &stored);
        if seen != raw_change_time(&f.vault, &stored) {
            f.vault.files().release(file);
            return (stored, seen);
        }
    }
}

/// Others may know the former key.
#[test]
fn a_list_under_a_former_key_says_nothing() {
    let f = Fixture::new();
    let (stored, seen) = written(&f);
    let dir = f.close();
    let times = dir.path().join(TIMES);
    let shown = || {
        let vault = open(dir.path(), true);
        (change_time(&vault, &stored), raw_change_time(&vault, &stored))
    };
    assert_eq!(shown().0, seen);
    begin_at(dir.path());
    let (now, raw) = shown();
    assert_eq!(now, raw);
    assert_ne!(std::fs::read(&times).unwrap(), b"", "nothing may be written");
    let vault = open(dir.path(), false);
    assert_eq!(std::fs::read(&times).unwrap(), b"");
    vault.shut_down().unwrap();
}

/// Holds even if the mount that took up the new key is killed right after the rotation.
#[test]
fn a_rotation_leaves_no_list_under_the_former_key() {
    let f = Fixture::new();
    let path = f.dir.path();
    written(&f);
    let list = |master: &Secret<32>| {
        let sealed = std::fs::read(path.join(TIMES)).unwrap();
        ChangeTimesKey::derive(master, settings(NameMode::Encrypted).cipher).open(&sealed)
    };
    let former = Vault::unlock_config(path, &unlock()).unwrap().2;
    f.vault.put_away().unwrap();
    assert!(list(&former).is_ok_and(|times| times.len() == 1));
    let (_, present) = begin_at(path);
    f.vault.bring_back(present.expose()).unwrap();
    f.vault.rotate_behind();
    while Vault::read_config(path).is_ok_and(|config| config.is_rotating()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(list(&former).is_err());
    assert!(list(&present).is_ok_and(|times| !times.is_empty()));
}

/// Inode numbers that one machine recorded are meaningless on another.
#[test]
fn who_shares_a_vault_leaves_the_list_alone() {
    let f = Fixture::new();
    let (stored, _) = written(&f);
    let dir = f.close();
    let list = || std::fs::read(dir.path().join(TIMES)).unwrap();
    let before = list();
    assert!(before.len() > 32, "one entry");
    let [one, other] = [(); 2].map(|()| Way::Shared.open(dir.path(), Path::new("")));
    for (vault, byte) in [(&one, b"1"), (&other, b"2")] {
        let file = vault.open_file(&vault.root(), &stored, true).unwrap();
        file.file.write(0, byte).unwrap();
        vault.sync_file(&file).unwrap();
        vault.files().flush_at_close(&file).unwrap();
        vault.files().release(file);
        vault.put_away().unwrap();
    }
    for vault in [one, other] {
        vault.shut_down().unwrap();
    }
    assert_eq!(list(), before);
    let vault = open(dir.path(), false);
    assert_eq!(change_time(&vault, &stored), raw_change_time(&vault, &stored), "an old entry");
}

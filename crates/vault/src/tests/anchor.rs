//! Random changes of names, an anchor, and kills: the anchor refuses nothing that is correct.

use super::*;
use crate::{AnchorError, AnchorUse, OpenError, SetAttr, Target};
use rustix::fs::statvfs;

const NAMES: u64 = 9;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn name(&mut self) -> OsString {
        let n = self.below(NAMES) as usize;
        // One of the names is long.
        if n == 0 { "l".repeat(200).into() } else { format!("{n}").into() }
    }
}

pub(super) fn open_anchored(dir: &Path, anchor: &Path) -> Arc<Vault> {
    let anchor = Some(AnchorUse { file: anchor.to_owned(), accept: false });
    let options = OpenOptions { anchor, ..OpenOptions::default() };
    let vault = loop {
        match Vault::open(dir, &unlock(), options.clone()) {
            // A thread of the killed predecessor may still be ending.
            Err(OpenError::Anchor(AnchorError::InUse(_))) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    if vault.lacks_anchor() {
        vault.take_into_anchor(&mut || true).unwrap();
    }
    vault
}

/// Collects everything at and below a directory that is refused or cannot be read.
fn refused(vault: &Vault, dir: &Arc<Dir>, all: &mut Vec<String>) {
    all.extend(vault.lost_names(dir).unwrap().into_iter().map(|(name, _, e)| format!("{name:?}: {e}")));
    for entry in vault.inspect_dir(dir).unwrap().entries {
        let result = vault.lookup(dir, &entry.name).and_then(|_| match entry.kind {
            Kind::Dir => vault.open_dir(dir, &entry.stored).map(|inner| refused(vault, &inner, all)),
            Kind::File => vault.open_file(dir, &entry.stored, false).map(|open| vault.files().release(open)),
            Kind::Symlink => vault.readlink(dir, &entry.stored).map(drop),
            _ => Ok(()),
        });
        if let Err(e) = result {
            all.push(format!("{:?}: {e}", entry.name));
        }
    }
}

fn all_refused(vault: &Vault) -> Vec<String> {
    let mut all = Vec::new();
    refused(vault, &vault.root(), &mut all);
    all
}

/// Makes a random change. It fails only if the existing names do not allow it.
fn change(vault: &Vault, dirs: &mut Vec<Arc<Dir>>, rng: &mut Rng) -> Result<()> {
    let dir = dirs[rng.below(dirs.len() as u64) as usize].clone();
    let to = dirs[rng.below(dirs.len() as u64) as usize].clone();
    let (name, other) = (rng.name(), rng.name());
    match rng.below(14) {
        0..3 => {
            let (_, _, open) = vault.create(&dir, &name, node(0o644))?;
            if rng.below(2) == 0 {
                open.file.write(0, &[1; 5000])?;
                vault.files().flush_at_close(&open)?;
            }
            vault.files().release(open);
        }
        3 | 4 => {
            let open = vault.open_file(&dir, &vault.lookup(&dir, &name)?.0, rng.below(2) == 0)?;
            let target = Target::File(&open);
            if rng.below(2) == 0 {
                vault.set_attr(target, &SetAttr { size: Some(rng.below(9000)), ..Default::default() })?;
            }
            vault.sync_file(&open)?;
            vault.files().release(open);
        }
        5 => drop(vault.unlink_name(&dir, &name)?),
        6 => {
            let mode =
                [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace][rng.below(3) as usize];
            vault.rename_name((&dir, &name), (&to, &other), mode)?;
        }
        7 => drop(vault.link(Target::Entry(&dir, &vault.lookup(&dir, &name)?.0), &to, &other)?),
        8 => {
            let (stored, _) = vault.mkdir(&dir, &name, node(0o755))?;
            dirs.push(vault.open_dir(&dir, &stored)?);
        }
        9 => {
            vault.rmdir_name(&dir, &name)?;
            dirs.truncate(1);
        }
        10 => drop(vault.symlink(&dir, &name, OsStr::new("elsewhere"), node(0o777))?),
        11 => drop(vault.mknod(&dir, &name, node(0o600), Kind::Fifo, 0)?),
        12 => vault.sync_dir(&dir)?,
        _ => vault.anchor_names(None)?,
    }
    Ok(())
}

#[test]
fn nothing_that_is_right_is_refused() {
    // Use memory if there is room: every round syncs everything.
    let has_room = statvfs("/dev/shm").is_ok_and(|shm| shm.f_bavail * shm.f_frsize > 64 << 20);
    let temporary = || if has_room { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() }.unwrap();
    let anchors = temporary();
    for seed in 0..crate::cases(4, 12) {
        let dir = temporary();
        Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
        let anchor = anchors.path().join(format!("{seed}"));
        let mut rng = Rng(seed);
        for round in 0..6 {
            let vault = open_anchored(dir.path(), &anchor);
            assert_eq!(all_refused(&vault), [""; 0], "seed {seed}, round {round}");
            let mut dirs = vec![vault.root()];
            for step in 0..60 {
                if let Err(Error::Refused(e)) = change(&vault, &mut dirs, &mut rng) {
                    panic!("seed {seed}, round {round}, step {step}: {e}");
                }
            }
            if rng.below(2) == 0 {
                vault.shut_down().unwrap();
            } // otherwise it is killed
        }
    }
}

#[test]
fn an_empty_file_with_two_names_gets_one_identity() {
    let f = Fixture::new();
    for name in ["a", "b"] {
        f.touch(&f.root(), name).unwrap();
    }
    let link = |vault: &Vault, old: &str, new: &str| {
        let stored = vault.lookup(&vault.root(), OsStr::new(old)).unwrap().0;
        vault.link(Target::Entry(&vault.root(), &stored), &vault.root(), OsStr::new(new)).map(drop).unwrap();
    };
    link(&f.vault, "a", "of before");
    let dir = f.close();
    let anchors = tempfile::tempdir().unwrap();
    let anchor = anchors.path().join("anchor");
    for _ in 0..2 {
        let vault = open_anchored(dir.path(), &anchor);
        if vault.lookup(&vault.root(), OsStr::new("later")).is_err() {
            link(&vault, "b", "later");
        }
        for name in ["of before", "later"] {
            let open = vault
                .open_file(&vault.root(), &vault.lookup(&vault.root(), OsStr::new(name)).unwrap().0, true)
                .unwrap();
            open.file.write(0, b"content").unwrap();
            vault.sync_file(&open).unwrap();
            vault.files().release(open);
        }
        vault.shut_down().unwrap();
        assert_eq!(all_refused(&vault), [""; 0]);
    }
    assert_eq!(all_refused(&open_anchored(dir.path(), &anchor)), [""; 0]);
}

#[test]
fn what_goes_leaves_the_anchor() {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let vault = open_anchored(dir.path(), &anchors.path().join("anchor"));
    let root = vault.root();
    let mut salts = Vec::new();
    for _ in 0..5 {
        let (_, _, open) = vault.create(&root, OsStr::new("temporary"), node(0o644)).unwrap();
        open.file.write(0, b"content").unwrap();
        vault.sync_file(&open).unwrap();
        salts.push(open.file.salt(false).unwrap().unwrap());
        vault.files().release(open);
        vault.anchor_names(None).unwrap();
        vault.unlink_name(&root, OsStr::new("temporary")).unwrap();
    }
    vault.anchor_names(None).unwrap();
    assert_eq!(vault.anchor.as_ref().unwrap().number_of_bounds(&salts), 0);
    vault.shut_down().unwrap();
}

#[test]
fn a_directory_that_was_moved_and_removed_is_not_being_changed() {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let vault = open_anchored(dir.path(), &anchors.path().join("anchor"));
    let root = vault.root();
    let mkdir = |parent: &Dir, name: &str| {
        let (stored, _) = vault.mkdir(parent, OsStr::new(name), node(0o755)).unwrap();
        vault.open_dir(parent, &stored).unwrap()
    };
    let (a, b) = (mkdir(&root, "a"), mkdir(&root, "b"));
    let [moved, file] = ["moved", "file"].map(OsStr::new);
    let inner = mkdir(&a, "moved");
    vault.files().release(vault.create(&inner, file, node(0o644)).unwrap().2);
    vault.anchor_names(None).unwrap();
    let left = || vault.anchor.as_ref().unwrap().left_changing().unwrap();
    assert_eq!(left(), 0);
    vault.rename_name((&a, moved), (&b, moved), RenameMode::Replace).unwrap();
    vault.unlink_name(&inner, file).unwrap();
    vault.rmdir_name(&b, moved).unwrap();
    assert_ne!(left(), 0);
    vault.shut_down().unwrap();
    assert_eq!(left(), 0);
    assert_eq!(all_refused(&vault), [""; 0]);
}

#[test]
fn a_root_that_was_being_changed_at_a_kill_is_confirmed_again() {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let open = || open_anchored(dir.path(), &anchors.path().join("anchor"));
    let make = |vault: &Vault, name: &str| {
        let (stored, _, open) = vault.create(&vault.root(), OsStr::new(name), node(0o644)).unwrap();
        vault.files().release(open);
        vault.root().path_in_store(&stored.0)
    };
    let vault = open();
    let f = make(&vault, "f");
    vault.shut_down().unwrap();
    drop(vault);
    let vault = open();
    make(&vault, "g");
    drop(vault); // killed
    let vault = open();
    vault.shut_down().unwrap();
    drop(vault);
    std::fs::remove_file(f).unwrap();
    let refused = all_refused(&open());
    assert!(refused.len() == 1 && refused[0].starts_with("\"f\""), "{refused:?}");
}

#[test]
fn an_old_configuration_that_was_put_back_while_locked_is_refused() {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let (old, _, master) = Vault::unlock_config(dir.path(), &unlock()).unwrap();
    let mut new = old.clone();
    new.outdate(&master, 7).unwrap();
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &new).unwrap();
    let anchor = anchors.path().join("anchor");
    let vault = open_anchored(dir.path(), &anchor);
    vault.put_away().unwrap();
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &old).unwrap();
    // Twice: the first attempt must not have lowered the confirmed number.
    for _ in 0..2 {
        match vault.bring_back(master.expose()) {
            Err(OpenError::Anchor(AnchorError::OldConfiguration { found, confirmed, .. })) => {
                assert_eq!((found, confirmed), (old.generation(), new.generation()));
            }
            other => panic!("{other:?}"),
        }
    }
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &new).unwrap();
    vault.bring_back(master.expose()).unwrap();
    assert_eq!(all_refused(&vault), [""; 0]);
    vault.shut_down().unwrap();
}

/// The old configuration opens with its own key, which is no longer the vault's.
#[test]
fn a_configuration_from_before_a_rotation_is_refused_as_old() {
    let (dir, anchors) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let (old, _, former) = Vault::unlock_config(dir.path(), &unlock()).unwrap();
    let anchor = anchors.path().join("anchor");
    let vault = open_anchored(dir.path(), &anchor);
    vault.put_away().unwrap();
    let (new, master) = rotate::list_at(dir.path());
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &new).unwrap();
    vault.bring_back(master.expose()).unwrap();
    vault.rotate(&mut |_| true).unwrap();
    vault.put_away().unwrap();
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &old).unwrap();
    let is_old = |error: &Option<OpenError>| {
        matches!(error, Some(OpenError::Anchor(AnchorError::OldConfiguration { .. })))
    };
    assert!(is_old(&vault.bring_back(former.expose()).err()));
    drop(vault);
    let anchor = Some(AnchorUse { file: anchor, accept: false });
    let options = OpenOptions { anchor, ..OpenOptions::default() };
    let again = loop {
        match Vault::open(dir.path(), &unlock(), options.clone()).err() {
            // A thread of the previous vault may still be ending.
            Some(OpenError::Anchor(AnchorError::InUse(_))) => std::thread::yield_now(),
            error => break error,
        }
    };
    assert!(is_old(&again), "{again:?}");
}

#[test]
fn what_was_synced_without_a_name_is_confirmed_with_it() {
    let (dir, anchor) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let vault = open_anchored(dir.path(), &anchor.path().join("anchor"));
    let (_, open) = vault.create_nameless(&vault.root(), node(0o644)).unwrap();
    open.file.write(0, b"content").unwrap();
    vault.sync_file(&open).unwrap();
    let salt = open.file.salt(false).unwrap().unwrap();
    let bounds = || vault.anchor.as_ref().unwrap().number_of_bounds(&[salt]);
    assert_eq!(bounds(), 0, "nobody could ask for it");
    vault.link(Target::File(&open), &vault.root(), OsStr::new("file")).unwrap();
    vault.sync_dir(&vault.root()).unwrap();
    assert_eq!(bounds(), 1);
    drop(open);
    vault.shut_down().unwrap();
    drop(vault);
    let vault = open_anchored(dir.path(), &anchor.path().join("anchor"));
    assert_eq!(all_refused(&vault), Vec::<String>::new());
}

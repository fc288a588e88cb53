//! The store revokes the lock of an exclusive holder, another process holds the vault exclusively, and
//! the first one comes back. Nothing that the other confirmed is lost, nor anything that the first
//! confirmed before.

use super::{
    super::{super::sharing::SharingRule, errno, node},
    Draw, alone, check, fails_without, new_vault,
};
use crate::{OpenFile, RenameMode, StoredName, Vault};
use content::Result;
use rustix::io::Errno;
use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc};

type Contents = BTreeMap<OsString, Vec<u8>>;

struct User {
    vault: Arc<Vault>,
    open: Vec<Arc<OpenFile>>,
    /// The vault's content as this process knows it.
    now: Contents,
    /// The part of it that is certainly stored.
    stored: Contents,
}

fn some_name(draw: &mut Draw) -> OsString {
    [OsString::from("a"), "b".into(), "c".into(), "l".repeat(200).into()][draw.below(4)].clone()
}

impl User {
    fn new(path: &Path) -> Self {
        let vault = alone(path);
        vault.files().end_flusher();
        let now = contents(&vault);
        User { vault, open: Vec::new(), stored: now.clone(), now }
    }

    /// Runs a random operation.
    fn step(&mut self, draw: &mut Draw) -> Result<()> {
        let (root, name) = (self.vault.root(), some_name(draw));
        match draw.below(9) {
            0..=3 => {
                let open = match self.vault.lookup(&root, &name) {
                    Ok((stored, _)) => self.vault.open_file(&root, &stored, true)?,
                    Err(_) => self.vault.create(&root, &name, node(0o644))?.2,
                };
                self.open.push(open.clone());
                let data = vec![1 + draw.below(255) as u8; draw.below(40_000)];
                self.stored.remove(&name);
                open.file.truncate(data.len() as u64)?;
                open.file.write(0, &data)?;
                self.now.insert(name, data);
            }
            // Flush a file that is already open.
            4 => draw.one_of(&self.open).map_or(Ok(()), |open| open.file.flush())?,
            5 => {
                self.vault.unlink_name(&root, &name)?;
                self.now.remove(&name);
                self.stored.remove(&name);
            }
            6 => {
                let new = some_name(draw);
                self.vault.rename_name((&root, &name), (&root, &new), RenameMode::Replace)?;
                if name != new {
                    let moved = self.now.remove(&name).unwrap();
                    self.now.insert(new.clone(), moved);
                    self.stored.remove(&name);
                    self.stored.remove(&new);
                }
            }
            7 => self.sync()?,
            // Does what the flusher does.
            _ => {
                let failed = self.vault.files().clean(self.vault.files().all());
                failed.map_or(Ok(()), |(_, e)| Err(e))?;
            }
        }
        Ok(())
    }

    fn steps(&mut self, number: usize, draw: &mut Draw) {
        for _ in 0..number {
            let done = self.step(draw);
            assert!(done.is_ok() || errno(done) == Some(Errno::NOENT));
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.vault.make_names_durable()?;
        self.open.iter().try_for_each(|open| self.vault.sync_file(open))?;
        self.stored = self.now.clone();
        Ok(())
    }

    /// Makes the store revoke its lock.
    fn lose(&self) {
        self.vault.lock.as_ref().unwrap().lose();
    }
}

fn contents(vault: &Vault) -> Contents {
    let root = vault.root();
    let content = |stored: &StoredName| {
        let open = vault.open_file(&root, stored, false).unwrap();
        let mut all = vec![0; 50_000];
        let len = open.file.read(0, &mut all).unwrap();
        all.truncate(len);
        vault.files().release(open);
        all
    };
    vault.list(&root).unwrap().into_iter().map(|entry| (entry.name, content(&entry.stored))).collect()
}

fn sequence(seed: u64) {
    let (dir, mut draw) = (new_vault(), Draw::new(seed));
    let mut first = User::new(dir.path());
    first.steps(8, &mut draw);
    first.sync().unwrap();
    first.steps(draw.below(6), &mut draw);
    first.lose();
    let after = if draw.below(5) == 0 {
        // Nobody else took the vault.
        first.steps(8, &mut draw);
        first.vault.shut_down().unwrap();
        first.now.clone()
    } else {
        let mut second = User::new(dir.path());
        for (name, content) in &first.stored {
            assert!(second.now.get(name) == Some(content), "what the first confirmed");
        }
        for _ in 0..8 {
            second.steps(1, &mut draw);
            if draw.below(4) == 0 {
                let _ = first.step(&mut draw);
            }
        }
        match draw.below(2) {
            0 => second.vault.shut_down().unwrap(),
            _ => second.sync().unwrap(), // killed afterwards
        }
        let after = second.now.clone();
        drop(second);
        (0..8).for_each(|_| drop(first.step(&mut draw)));
        assert_eq!(errno(first.sync()), Some(Errno::IO));
        assert_eq!(errno(first.vault.shut_down()), Some(Errno::IO));
        after
    };
    drop(first);
    let vault = alone(dir.path());
    assert!(contents(&vault) == after, "what was confirmed last");
    check(&vault, &vault.root());
    vault.shut_down().unwrap();
}

#[test]
fn who_lost_a_vault_writes_nothing_to_it() {
    (0..crate::cases(50, 200)).for_each(sequence);
    for rule in [SharingRule::KnowOwnMark, SharingRule::AskBeforeWriting] {
        assert!(fails_without(rule, || (0..200).for_each(sequence)), "{rule:?}");
    }
}

//! Three processes that share a vault, and a model of its expected state.

use super::{
    super::{Vault, node, raw_names},
    Draw, alone, check,
    history::{Content, LONGEST, put, some_data},
    loss::{Owns, has_lost},
    new_vault, share,
};
use crate::{Dir, Kind, OpenFile, RenameMode, StoredName, Target};
use content::{Error, Result};
use rustix::io::Errno;
use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    sync::Arc,
    time::Duration,
};
use store::{is_kept, sweep};
use tempfile::TempDir;

const CLIENTS: usize = 3;
const ROOT: usize = 0;

pub(super) struct Client {
    pub(super) vault: Arc<Vault>,
    dirs: HashMap<usize, Arc<Dir>>,
}

pub(super) struct Handle {
    pub(super) client: usize,
    pub(super) file: usize,
    pub(super) open: Arc<OpenFile>,
    /// The file's version when it was opened.
    pub(super) since: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    File(usize),
    Dir(usize),
}

/// Whether and how the store revokes locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Losses {
    None,
    /// A descriptor that has lost its lock never works again.
    ForGood,
    UntilUnlocked,
}

type Names = BTreeMap<OsString, There>;

pub(super) struct World {
    dir: TempDir,
    clients: Vec<Client>,
    pub(super) handles: Vec<Handle>,
    pub(super) files: Vec<Content>,
    pub(super) owns: Owns,
    /// Clients that have lost a lease.
    pub(super) losers: HashSet<usize>,
    /// The file on which a call failed while its client was losing its locks.
    pub(super) failed: Cell<Option<usize>>,
    losses: Losses,
    /// The names in each directory; `None` for a directory that was removed.
    dirs: Vec<Option<Names>>,
}

pub(super) fn is_again(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.raw_os_error() == Some(Errno::AGAIN.raw_os_error()))
}

/// Picks one of two short names and a long one.
fn some_name(draw: &mut Draw) -> OsString {
    [OsString::from("a"), "b".into(), "l".repeat(200).into()][draw.below(3)].clone()
}

impl World {
    pub(super) fn new(losses: Losses) -> Self {
        let dir = new_vault();
        let clients = (0..CLIENTS).map(|_| World::client(&dir, losses)).collect();
        World {
            dir,
            clients,
            handles: Vec::new(),
            files: Vec::new(),
            owns: Owns::new(),
            losers: HashSet::new(),
            failed: Cell::new(None),
            losses,
            dirs: vec![Some(Names::new())],
        }
    }

    /// Clients have no patience, because no other one acts in the meantime. Flushers are ended, because
    /// their work is one of the steps.
    fn client(dir: &TempDir, losses: Losses) -> Client {
        let vault = share(dir.path(), Duration::ZERO);
        vault.files().end_flusher();
        if losses == Losses::UntilUnlocked {
            vault.files().life.locks.work_again_once_unlocked();
        }
        Client { vault, dirs: HashMap::new() }
    }

    /// Runs a random operation of a random client.
    pub(super) fn step(&mut self, draw: &mut Draw) {
        let client = draw.below(CLIENTS);
        match draw.below(if self.losses == Losses::None { 20 } else { 23 }) {
            0 | 1 => self.create(client, draw),
            2..=4 => self.open(client, draw, false),
            5..=12 => self.on_handle(client, draw, false),
            13 => self.make_dir(client, draw),
            14 => self.remove(client, draw),
            15 => self.rename(client, draw),
            16 => self.link(client, draw),
            17 => self.list(client, draw),
            18 => self.look(client, draw),
            19 => self.kill(client, draw),
            _ => self.lose(client, draw),
        }
    }

    pub(super) fn vault(&self, client: usize) -> &Arc<Vault> {
        &self.clients[client].vault
    }

    /// A directory that a client has open, possibly since before its removal.
    fn some_dir(&mut self, client: usize, draw: &mut Draw) -> (usize, Arc<Dir>) {
        let number = draw.below(self.dirs.len());
        let known = self.clients[client].dirs.get(&number).cloned();
        if let Some(dir) = known {
            return (number, dir);
        }
        let root = self.vault(client).root();
        let names = self.dirs[ROOT].as_ref().unwrap();
        let Some((name, _)) = names.iter().find(|(_, there)| **there == There::Dir(number)) else {
            return (ROOT, root);
        };
        let dir = self.open_dir(client, &root, name);
        self.clients[client].dirs.insert(number, dir.clone());
        (number, dir)
    }

    fn open_dir(&self, client: usize, root: &Arc<Dir>, name: &OsStr) -> Arc<Dir> {
        let (stored, _) = self.vault(client).lookup(root, name).unwrap();
        self.vault(client).open_dir(root, &stored).unwrap()
    }

    fn names(&self, dir: usize) -> Option<&Names> {
        self.dirs[dir].as_ref()
    }

    /// Checks that an operation succeeded if it `works`, and otherwise failed with a usual error.
    fn expect<T>(result: Result<T>, works: bool, what: &str) -> Option<T> {
        match result {
            Ok(value) if works => Some(value),
            Ok(_) => panic!("{what} should have failed"),
            Err(e) if works => panic!("{what}: {e}"),
            Err(Error::Store(e)) => {
                let gone = [Errno::NOENT, Errno::STALE];
                let usual =
                    [Errno::EXIST, Errno::NOTEMPTY, Errno::NOTDIR, Errno::ISDIR].into_iter().chain(gone);
                assert!(usual.map(Some).any(|usual| usual == Errno::from_io_error(&e)), "{what}: {e}");
                None
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }

    fn create(&mut self, client: usize, draw: &mut Draw) {
        let ((number, dir), name) = (self.some_dir(client, draw), some_name(draw));
        let works = self.names(number).is_some_and(|names| !names.contains_key(&name));
        let made = self.vault(client).create(&dir, &name, node(0o644));
        if let Some((_, _, open)) = World::expect(made, works, "create") {
            let file = self.files.len();
            self.files.push(Content::new());
            self.dirs[number].as_mut().unwrap().insert(name, There::File(file));
            self.handles.push(Handle { client, file, open, since: 0 });
        }
    }

    /// Opens a file. With `losing`, the client loses its locks meanwhile.
    pub(super) fn open(&mut self, client: usize, draw: &mut Draw, losing: bool) {
        let ((number, dir), name) = (self.some_dir(client, draw), some_name(draw));
        let Some(There::File(file)) = self.names(number).and_then(|names| names.get(&name)).copied() else {
            return;
        };
        let (stored, stat) = self.vault(client).lookup(&dir, &name).unwrap();
        let content = &self.files[file];
        // The client may not have learned yet that its own size is no longer the file's.
        let may_know = !self.handles.iter().any(|known| known.file == file && self.is_of_lost(known));
        if may_know && content.holder.is_none() && content.left.is_none() && !content.may_be_blank {
            assert_eq!(stat.size, content.last().len() as u64, "size of a closed file");
        }
        match self.vault(client).open_file(&dir, &stored, draw.below(2) == 0) {
            // Its locks, for this file or for another handle of it, may be lost already or with the next
            // call.
            Ok(open) if losing => self.vault(client).files().release(open),
            Ok(open) => {
                assert!(!has_lost(self.vault(client), &open), "what is opened anew does not work");
                self.settle(file, &open);
                let content = &self.files[file];
                let handle = Handle { client, file, open, since: content.versions.len() - 1 };
                self.read(&handle);
                self.handles.push(handle);
            }
            Err(e) => {
                assert!(losing || is_again(&e) && self.files[file].is_held_by_another(client), "open: {e}");
            }
        }
    }

    /// The next process to open a file recovers what a killed client left.
    fn settle(&mut self, file: usize, open: &OpenFile) {
        if self.files[file].left.is_some() {
            open.file.lease().refresh().unwrap();
            self.files[file].recovered(all_of(open).unwrap());
        }
    }

    fn read(&self, handle: &Handle) {
        if self.is_of_lost(handle) {
            return self.read_lost(handle);
        }
        let content = &self.files[handle.file];
        match all_of(&handle.open) {
            Ok(read) if content.is_held_by(handle.client) => {
                assert!(read == content.holder.as_ref().unwrap().now, "what it wrote itself");
            }
            Ok(read) => content.may_read(handle.since, &[], &read),
            Err(e) => assert!(is_again(&e) && content.is_held_by_another(handle.client), "read: {e}"),
        }
    }

    /// Runs a random operation on an open file. With `dying`, the process is being killed or losing its
    /// locks.
    pub(super) fn on_handle(&mut self, client: usize, draw: &mut Draw, dying: bool) {
        let own: Vec<usize> =
            (0..self.handles.len()).filter(|at| self.handles[*at].client == client).collect();
        let Some(&at) = draw.one_of(&own) else { return };
        let (file, open) = (self.handles[at].file, self.handles[at].open.clone());
        if self.is_of_lost(&self.handles[at]) {
            if !dying {
                self.on_lost_handle(at, draw);
            }
            return;
        }
        if dying && self.files[file].left.is_some() {
            return; // the content that it recovers is not known yet
        }
        if !dying && !self.files[file].is_held_by_another(client) {
            self.settle(file, &open);
        }
        let busy = self.files[file].is_held_by_another(client);
        let failed = &self.failed;
        let judge = |done: Result<()>| match done {
            Ok(()) => true,
            Err(e) => {
                assert!(dying || busy && is_again(&e), "{e}");
                failed.set(Some(file));
                false
            }
        };
        let vault = self.vault(client).clone();
        let held = self.files[file].is_held_by(client);
        let content = &mut self.files[file];
        match draw.below(9) {
            0..=3 => {
                let (offset, data) = some_data(draw);
                let done = judge(open.file.write(offset as u64, &data));
                assert!(!(done && busy), "two write at once");
                if !busy && (done || held || dying) {
                    content.change(client, |now| put(now, offset, &data));
                }
            }
            4 => {
                let size = draw.below(LONGEST);
                let done = judge(open.file.truncate(size as u64));
                assert!(!(done && busy), "two write at once");
                if !busy && (done || dying) {
                    content.change(client, |now| now.resize(size, 0));
                }
            }
            5 => {
                if judge(open.file.flush()) && held {
                    content.stored();
                }
            }
            6 => {
                if judge(vault.sync_file(&open)) && held {
                    content.stored();
                }
            }
            7 if !dying => self.read(&self.handles[at]),
            _ => {
                if judge(vault.files().flush_at_close(&open)) && held {
                    content.given_back();
                }
                drop(open);
                self.release(at);
            }
        }
    }

    fn make_dir(&mut self, client: usize, draw: &mut Draw) {
        let (root, name) = (self.vault(client).root(), some_name(draw));
        let works = !self.names(ROOT).unwrap().contains_key(&name);
        if World::expect(self.vault(client).mkdir(&root, &name, node(0o755)), works, "mkdir").is_some() {
            let number = self.dirs.len();
            self.dirs.push(Some(Names::new()));
            self.dirs[ROOT].as_mut().unwrap().insert(name, There::Dir(number));
        }
    }

    fn remove(&mut self, client: usize, draw: &mut Draw) {
        let ((number, dir), name) = (self.some_dir(client, draw), some_name(draw));
        let there = self.names(number).and_then(|names| names.get(&name)).copied();
        let vault = self.vault(client).clone();
        let removed = match there {
            Some(There::Dir(inner)) => {
                let works = self.can_go(client, inner, &name);
                let removed = World::expect(vault.rmdir_name(&dir, &name), works, "rmdir");
                if removed.is_some() {
                    self.dirs[inner] = None;
                }
                removed
            }
            there => World::expect(vault.unlink_name(&dir, &name), there.is_some(), "unlink").map(drop),
        };
        if removed.is_some() {
            self.dirs[number].as_mut().unwrap().remove(&name);
        }
    }

    /// Whether a subdirectory of the root can be removed: it has no names, and no open file that NFS
    /// keeps in it.
    fn can_go(&self, client: usize, dir: usize, name: &OsStr) -> bool {
        let vault = self.vault(client);
        let (stored, _) = vault.lookup(&vault.root(), name).unwrap();
        sweep();
        let kept = raw_names(&self.dir.path().join(stored.0)).iter().any(|name| is_kept(name));
        self.names(dir).unwrap().is_empty() && !kept
    }

    fn rename(&mut self, client: usize, draw: &mut Draw) {
        let (from, to) = (self.some_dir(client, draw), self.some_dir(client, draw));
        let (old, new) = (some_name(draw), some_name(draw));
        let there = |place: &(usize, _), name| self.names(place.0).and_then(|names| names.get(name)).copied();
        let (moved, replaced) = (there(&from, &old), there(&to, &new));
        if matches!(moved, Some(There::Dir(_))) && to.0 != ROOT
            || self.names(to.0).is_none()
            || moved == replaced
        {
            return;
        }
        let works = match (moved, replaced) {
            (None, _) => false,
            (Some(_), None) | (Some(There::File(_)), Some(There::File(_))) => true,
            (Some(There::Dir(_)), Some(There::Dir(inner))) => self.can_go(client, inner, &new),
            (Some(_), Some(_)) => false,
        };
        let renamed = self.vault(client).rename_name((&from.1, &old), (&to.1, &new), RenameMode::Replace);
        if World::expect(renamed, works, "rename").is_some() {
            if let Some(There::Dir(inner)) = replaced {
                self.dirs[inner] = None;
            }
            self.dirs[from.0].as_mut().unwrap().remove(&old);
            self.dirs[to.0].as_mut().unwrap().insert(new, moved.unwrap());
        }
    }

    fn link(&mut self, client: usize, draw: &mut Draw) {
        let (from, to) = (self.some_dir(client, draw), self.some_dir(client, draw));
        let (old, new) = (some_name(draw), some_name(draw));
        let Some(There::File(file)) = self.names(from.0).and_then(|names| names.get(&old)).copied() else {
            return;
        };
        let works = self.names(to.0).is_some_and(|names| !names.contains_key(&new));
        let (stored, _): (StoredName, _) = self.vault(client).lookup(&from.1, &old).unwrap();
        let linked = self.vault(client).link(Target::Entry(&from.1, &stored), &to.1, &new);
        if World::expect(linked, works, "link").is_some() {
            self.dirs[to.0].as_mut().unwrap().insert(new, There::File(file));
        }
    }

    fn list(&mut self, client: usize, draw: &mut Draw) {
        let (number, dir) = self.some_dir(client, draw);
        let listed = match self.vault(client).list(&dir) {
            Err(Error::Store(e)) if Errno::from_io_error(&e) == Some(Errno::STALE) => {
                return assert!(self.names(number).is_none(), "a directory that is there is stale");
            }
            listed => listed.unwrap(),
        };
        let mut listed: Vec<_> = listed.into_iter().map(|entry| entry.name).collect();
        listed.sort();
        assert_eq!(listed, self.names(number).map_or(Vec::new(), |names| names.keys().cloned().collect()));
    }

    /// Gives back a lease, as the flusher does now and then.
    fn look(&mut self, client: usize, draw: &mut Draw) {
        let own: Vec<usize> =
            (0..self.handles.len()).filter(|at| self.handles[*at].client == client).collect();
        let Some(&at) = draw.one_of(&own) else { return };
        let (file, open) = (self.handles[at].file, self.handles[at].open.clone());
        let is_lost = self.is_of_lost(&self.handles[at]);
        let given_back = self.vault(client).files().give_back(&open);
        if is_lost {
            return self.confirmed_lost(&open, given_back);
        }
        given_back.unwrap();
        if self.files[file].is_held_by(client) {
            self.files[file].given_back();
        }
    }

    /// Kills a client, either now or during an operation, and restarts it.
    fn kill(&mut self, client: usize, draw: &mut Draw) {
        let life = self.vault(client).files().life.clone();
        if draw.below(2) == 0 {
            life.end_after(draw.below(12) as i64);
            self.on_handle(client, draw, true);
        }
        life.end_after(0);
        for content in self.files.iter_mut().filter(|content| content.is_held_by(client)) {
            content.killed();
        }
        let next = World::client(&self.dir, self.losses);
        let killed = std::mem::replace(&mut self.clients[client], next);
        self.forget(client, killed);
    }

    /// Waits until none of a client's open files is left, because its locks are released with them.
    fn forget(&mut self, client: usize, Client { vault, dirs }: Client) {
        drop(dirs);
        self.handles.retain(|handle| handle.client != client);
        self.owns.retain(|_, own| own.client != client);
        self.losers.remove(&client);
        vault.files().context().background.finish_jobs();
        let left: Vec<_> = vault.files().all().iter().map(|open| Arc::downgrade(&open.file)).collect();
        drop(vault);
        while left.iter().any(|file| file.strong_count() > 0) {
            std::thread::yield_now();
        }
    }

    /// Ends all clients, some of them cleanly, and checks everything.
    pub(super) fn end(mut self, draw: &mut Draw) {
        for (client, ended) in std::mem::take(&mut self.clients).into_iter().enumerate() {
            let vault = &ended.vault;
            if draw.below(2) == 0 {
                self.judge_end(client, vault.shut_down());
                for content in self.files.iter_mut().filter(|content| content.is_held_by(client)) {
                    content.given_back();
                }
            } else {
                vault.files().life.end_after(0);
                for content in self.files.iter_mut().filter(|content| content.is_held_by(client)) {
                    content.killed();
                }
            }
            self.forget(client, ended);
        }
        let vault = alone(self.dir.path());
        self.compare(&vault, ROOT, &vault.root());
        check(&vault, &vault.root());
        vault.shut_down().unwrap();
    }

    fn compare(&mut self, vault: &Arc<Vault>, number: usize, dir: &Arc<Dir>) {
        let names = self.dirs[number].clone().unwrap();
        let mut listed = vault.list(dir).unwrap();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(listed.iter().map(|entry| &entry.name).eq(names.keys()), "names at the end");
        for (entry, there) in listed.iter().zip(names.values()) {
            match there {
                There::Dir(inner) => {
                    assert_eq!(entry.kind, Kind::Dir);
                    self.compare(vault, *inner, &vault.open_dir(dir, &entry.stored).unwrap());
                }
                There::File(file) => {
                    let open = vault.open_file(dir, &entry.stored, false).unwrap();
                    let read = all_of(&open).unwrap();
                    self.files[*file].recovered(read.clone());
                    assert!(read == self.files[*file].last(), "content at the end");
                    vault.files().release(open);
                }
            }
        }
    }
}

/// The whole content of a file.
pub(super) fn all_of(open: &OpenFile) -> Result<Vec<u8>> {
    let mut all = vec![0xee; LONGEST + 200_000];
    let read = open.file.read(0, &mut all)?;
    all.truncate(read);
    Ok(all)
}

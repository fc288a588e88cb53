//! A client whose locks the store revokes: others continue, and it comes back.

use super::{
    super::Vault,
    Draw,
    history::{Holder, LONGEST, put, some_data},
    world::{Handle, World, all_of, is_again},
};
use crate::OpenFile;
use content::{Error, Result};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
};

/// The content that a client has in memory for a file whose lease it lost.
pub(super) struct Own {
    pub(super) client: usize,
    open: Weak<OpenFile>,
    /// Content that was certainly stored.
    floor: Vec<u8>,
    now: Vec<u8>,
    /// All contents that it has had.
    all: Vec<Vec<u8>>,
    /// Whether a call has already failed.
    told: bool,
}

/// Keyed by the address of the open file, while it has handles.
pub(super) type Owns = HashMap<usize, Own>;

impl Own {
    fn of(holder: Holder, open: &Arc<OpenFile>, told: bool) -> Self {
        let Holder { client, now, floor, later } = holder;
        let all = [&later[..], &[floor.clone(), now.clone()]].concat();
        Own { client, open: Arc::downgrade(open), all, floor, now, told }
    }

    /// Whether a change was not stored and nobody was told. A file that the client removed itself does
    /// not count.
    fn is_silent(&self) -> bool {
        let is_removed = |open: Arc<OpenFile>| open.unlinked.load(Ordering::Relaxed);
        !self.told && self.now != self.floor && !self.open.upgrade().is_some_and(is_removed)
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.now);
        self.all.push(self.now.clone());
    }

    /// Checks the result of a call that reports whether everything is stored.
    fn confirmed(&mut self, done: Result<()>) {
        match done {
            Ok(()) => assert!(!self.told && self.now == self.floor, "what a lost lease was for is confirmed"),
            Err(e) => self.failed(&e),
        }
    }

    fn failed(&mut self, e: &Error) {
        assert!(is_io(e), "a lost lease: {e}");
        self.told = true;
    }
}

fn is_io(e: &Error) -> bool {
    matches!(e, Error::Store(e) if e.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

fn address(open: &Arc<OpenFile>) -> usize {
    Arc::as_ptr(open) as usize
}

pub(super) fn has_lost(vault: &Vault, open: &OpenFile) -> bool {
    vault.files().life.locks.is_lost(&open.store.fd()) || open.file.lease().is_lost()
}

impl World {
    /// Makes the store revoke a client's locks, either now or during an operation.
    pub(super) fn lose(&mut self, client: usize, draw: &mut Draw) {
        let life = self.vault(client).files().life.clone();
        self.failed.set(None);
        if draw.below(2) == 0 {
            life.locks.lose_after(draw.below(30) as i64);
            match draw.below(3) {
                0 => self.open(client, draw, true),
                _ => self.on_handle(client, draw, true),
            }
        }
        life.locks.lose();
        let failed = self.failed.take();
        for (file, content) in self.files.iter_mut().enumerate() {
            let Some(holder) = content.lost_by(client) else { continue };
            self.losers.insert(client);
            let known = |handle: &&Handle| handle.client == client && handle.file == file;
            let holds = |handle: &&Handle| {
                !handle.open.file.is_clean() && !self.owns.contains_key(&address(&handle.open))
            };
            if let Some(handle) = self.handles.iter().filter(known).find(holds) {
                let own = Own::of(holder, &handle.open, failed == Some(file));
                self.owns.insert(address(&handle.open), own);
            }
        }
    }

    /// Whether the handle's file has lost its lease.
    pub(super) fn is_of_lost(&self, handle: &Handle) -> bool {
        has_lost(self.vault(handle.client), &handle.open)
    }

    /// Runs a random operation on such a file.
    pub(super) fn on_lost_handle(&mut self, at: usize, draw: &mut Draw) {
        let (client, open) = (self.handles[at].client, self.handles[at].open.clone());
        let vault = self.vault(client).clone();
        match draw.below(6) {
            0 => {
                let (offset, data) = some_data(draw);
                let done = open.file.write(offset as u64, &data);
                self.changed_lost(&open, done, |now| put(now, offset, &data));
            }
            1 => {
                let size = draw.below(LONGEST);
                let done = open.file.truncate(size as u64);
                self.changed_lost(&open, done, |now| now.resize(size, 0));
            }
            2 => self.flushed_lost(&open, open.file.flush()),
            // The store may be unable to make anything durable through a descriptor that lost its lock,
            // even attributes.
            3 => match vault.sync_file(&open) {
                Err(e) if is_io(&e) && !self.owns.contains_key(&address(&open)) => {}
                done => self.confirmed_lost(&open, done),
            },
            4 => self.read_lost(&self.handles[at]),
            _ => {
                self.confirmed_lost(&open, vault.files().flush_at_close(&open));
                drop(open);
                self.release(at);
            }
        }
    }

    fn changed_lost(&mut self, open: &Arc<OpenFile>, done: Result<()>, change: impl FnOnce(&mut Vec<u8>)) {
        match (self.owns.get_mut(&address(open)), done) {
            (Some(own), Ok(())) => {
                assert!(!own.told, "it goes on without its lease");
                own.change(change);
            }
            (Some(own), Err(e)) => own.failed(&e),
            // The lock was lost while the client examined the file.
            (None, done) => assert!(done.is_err_and(|e| is_io(&e)), "it writes without a lease"),
        }
    }

    /// A flush alone confirms nothing: it succeeds if everything was written before the lease was lost,
    /// for example by a truncation.
    fn flushed_lost(&mut self, open: &Arc<OpenFile>, done: Result<()>) {
        match (self.owns.get_mut(&address(open)), done) {
            (Some(own), Ok(())) => assert!(!own.told, "it flushes without its lease"),
            (Some(own), Err(e)) => own.failed(&e),
            (None, done) => assert!(done.is_ok(), "nothing was to be stored"),
        }
    }

    pub(super) fn confirmed_lost(&mut self, open: &Arc<OpenFile>, done: Result<()>) {
        match self.owns.get_mut(&address(open)) {
            Some(own) => own.confirmed(done),
            None => assert!(done.is_ok(), "nothing was to be stored"),
        }
    }

    /// A read returns an earlier version, the client's own content, or an error.
    pub(super) fn read_lost(&self, handle: &Handle) {
        let own = self.owns.get(&address(&handle.open));
        match all_of(&handle.open) {
            Err(e) => {
                assert!(is_io(&e) || is_again(&e), "read of a lost file: {e}");
                // Known data is found without asking the store.
                let data = handle.open.file.seek(0, true);
                assert!(!matches!(data, Err(Error::NoData)), "it shows holes where it has data");
            }
            Ok(read) => {
                assert!(own.is_none_or(|own| !own.told), "it still shows what it had");
                let more = own.map_or(&[][..], |own| &own.all[..]);
                self.files[handle.file].may_read(handle.since, more, &read);
            }
        }
    }

    pub(super) fn release(&mut self, at: usize) {
        let Handle { client, open, .. } = self.handles.swap_remove(at);
        if !self.handles.iter().any(|other| Arc::ptr_eq(&other.open, &open)) {
            self.owns.remove(&address(&open));
        }
        self.vault(client).files().release(open);
    }

    /// Checks how a client ended: unstored data must not be lost silently.
    pub(super) fn judge_end(&self, client: usize, ended: Result<()>) {
        match ended {
            Ok(()) => {
                let silent = self.owns.values().any(|own| own.client == client && own.is_silent());
                assert!(!silent, "it lost something, and did not say so");
            }
            Err(e) => assert!(self.losers.contains(&client) && is_io(&e), "{e}"),
        }
    }
}

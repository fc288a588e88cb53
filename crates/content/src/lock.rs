//! The lock of a file's state. A panic under it may leave the state inconsistent. The file then fails
//! until it is opened again and recovered from the store.

use super::{
    rules::{Rule, holds},
    state::{Fault, State},
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use std::{
    ops::{Deref, DerefMut},
    thread,
};

/// The state of a file behind its lock.
pub(super) struct StateLock(RwLock<State>);

/// Exclusive access to the state.
pub(super) struct WriteGuard<'a>(Option<RwLockWriteGuard<'a, State>>);

impl StateLock {
    pub(super) fn new(state: State) -> Self {
        StateLock(RwLock::new(state))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read()
    }

    pub(super) fn write(&self) -> WriteGuard<'_> {
        WriteGuard::new(self.0.write())
    }

    /// Like `write`, but returns `None` if another thread holds the lock.
    pub(super) fn try_write(&self) -> Option<WriteGuard<'_>> {
        self.0.try_write().map(WriteGuard::new)
    }
}

impl<'a> WriteGuard<'a> {
    /// Readers may have loaded slots. They are merged into the tree here, so that changes see them.
    fn new(mut guard: RwLockWriteGuard<'a, State>) -> Self {
        if holds(Rule::TakeInLoaded) {
            guard.stored.tree.merge_loaded_leaves();
        }
        WriteGuard(Some(guard))
    }

    /// Downgrades to shared access.
    pub(super) fn downgrade(mut self) -> RwLockReadGuard<'a, State> {
        let guard = self.0.take().expect("held until it is dropped"); // invariant: only this and drop take it
        RwLockWriteGuard::downgrade(guard)
    }
}

impl Deref for WriteGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("held until it is dropped") // invariant: as above
    }
}

impl DerefMut for WriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("held until it is dropped") // invariant: as above
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(state) = &mut self.0
        {
            state.fault = Some(Fault::Broken);
        }
    }
}

//! A file that other machines may write, too. Who changes it has its *lease*: a lock of the stored file, taken before the first
//! change and given back once all of it is in the store under a clean record. Whoever takes the lease next goes on from what the
//! store has then, and recovers what a machine that vanished left.
//!
//! Readers need no lease. What they read is proven to be of the version that they know. Where it is not, another may have changed
//! the file: they look again under the lock, which waits until the writer gives it back.
//!
//! A file without a lease has nothing that the store has not, so what is known of it may be forgotten at any time.

use super::{
    File,
    lock::WriteGuard,
    recover::Header,
    state::{Fault, State},
};
use crate::{
    format::{layout, record::Record},
    vault::{
        Error, Result, Time,
        sharing::{Rule, holds},
        sync::Mutex,
    },
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// After so long a lease is given back, though the file is still being written: others wait for it.
const LONGEST: Duration = Duration::from_secs(1);
/// So long it is then left to them.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two tries to take a lock, at most.
const MOST_BETWEEN: Duration = Duration::from_millis(50);

/// What the store says of a file: as long as it says the same, others have changed nothing that its attributes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes that the store has of it.
    pub len: u64,
    /// When it was changed.
    pub mtime: Time,
    /// The same, where nobody can set it back.
    pub ctime: Time,
}

/// A file's lease.
#[derive(Default)]
pub(super) struct Lease {
    /// What the store said of the file before it was last looked at.
    seen: Mutex<Option<Stamp>>,
    /// Held by who takes it, or looks at the stored file under its lock. Taken before the state.
    turn: Mutex<Turn>,
    /// Whether this process may change the file. It changes to true under `turn`, to false under the state's lock.
    held: AtomicBool,
    /// Whether the stored file is locked so that it may be written.
    locked: AtomicBool,
    /// Whether the store took it away, for good.
    lost: AtomicBool,
}

#[derive(Default)]
struct Turn {
    since: Option<Instant>,
    not_before: Option<Instant>,
}

impl Lease {
    /// Whether this process has it.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether the store took it away. Nobody takes it again then.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl File {
    /// Whether the file is shared, and this process must not write it now.
    pub(super) fn lacks_lease(&self) -> bool {
        self.context.sharing.is_some() && !self.lease.is_held()
    }

    /// Whether recovery may write.
    pub(super) fn may_write(&self) -> bool {
        let locked = || self.lease.locked.load(Ordering::Acquire);
        let allowed = !self.context.read_only && (self.context.guard)().is_ok();
        allowed && (self.context.sharing.is_none() || locked() || !holds(Rule::RecoverLocked))
    }

    /// The state, to be changed: of a shared file under its lease, which this waits for.
    ///
    /// # Errors
    /// EAGAIN if another machine does not give it back in time; those of opening the file.
    pub(super) fn state_to_change(&self) -> Result<WriteGuard<'_>> {
        let Some(patience) = self.context.sharing.filter(|_| !self.context.read_only) else {
            return Ok(self.state.write());
        };
        loop {
            let st = self.state.write();
            if self.lease.is_held() {
                return Ok(st);
            }
            drop(st);
            let mut turn = self.lease.turn.lock();
            if self.lease.is_held() {
                continue; // Another thread took it.
            }
            self.refuse_lost()?;
            if holds(Rule::LeaseBeforeChange) {
                self.lock_store(&turn, patience)?;
            }
            let mut st = self.state.write();
            let known = if holds(Rule::LookUnderLease) { self.take_in(&mut st) } else { Ok(()) };
            // Who cannot write down a recovery can change nothing: the lease is left to others.
            let unfinished = |st: &State| st.fault == Some(Fault::NotRecovered);
            let recovered =
                known.and_then(|()| if unfinished(&st) { self.finish_recovery(&mut st) } else { Ok(()) });
            match recovered {
                Ok(()) => {
                    turn.since = Some(Instant::now());
                    self.lease.held.store(true, Ordering::Release);
                    return Ok(st);
                }
                Err(e) => {
                    self.unlock_store();
                    return Err(e);
                }
            }
        }
    }

    /// Brings what is known of a shared file up to date: to be called when it is opened. Waits for one who is writing it.
    ///
    /// # Errors
    /// As [`File::open`]; EAGAIN if another machine does not give its lease back in time; EIO if the store took away the lease.
    pub fn refresh(&self) -> Result<()> {
        if self.lease.is_held() && holds(Rule::CheckLeaseAtOpen) {
            self.check_lease(&mut self.state.write())?;
        }
        if self.look_again()? { Ok(()) } else { self.locked(|| Ok(())) }
    }

    /// Says what the store said of the file before it was opened.
    pub fn opened_as(&self, stamp: Stamp) {
        *self.lease.seen.lock() = Some(stamp);
    }

    /// As `look_again`, if the store, which just said `stamp`, has said something else before.
    ///
    /// # Errors
    /// As there.
    pub fn look_again_at(&self, stamp: Stamp) -> Result<bool> {
        if !self.lease.is_lost() && *self.lease.seen.lock() == Some(stamp) {
            return Ok(true);
        }
        let known = self.look_again()?;
        if known {
            self.opened_as(stamp);
        }
        Ok(known)
    }

    /// The same without waiting; false if the file has to be looked at under its lock.
    ///
    /// # Errors
    /// The store's.
    pub fn look_again(&self) -> Result<bool> {
        if self.context.sharing.is_none() {
            return Ok(true);
        }
        let mut st = self.state.write();
        self.refuse_lost()?;
        if self.lease.is_held() || !holds(Rule::LookAtOpen) && st.stored.identity.is_some() {
            return Ok(true);
        }
        self.store.drop_cached(layout::PAGE);
        let stored = self.store.len()?;
        let header = Header::read(&*self.store)?;
        if is_known(&st, stored, &header) {
            return Ok(true);
        }
        // A clean record is in both; or there was never any.
        let [one, other] = header.records();
        if one != other || !Record::peek_clean(&one) {
            return Ok(false);
        }
        self.store.drop_cached(0);
        let mut found = State::never_committed(&self.context);
        match self.load_header(&mut found, stored, &header) {
            Ok(()) if found.fault.is_none() && found.is_clean() => *st = found,
            // Also where a writer was met half-way.
            Ok(()) | Err(Error::Damaged(_)) => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Does what reads the file; if that does not verify, again under the lock of a shared one.
    ///
    /// # Errors
    /// What `read` returned; EAGAIN if another machine does not give its lease back in time.
    pub(super) fn settled<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        match read() {
            Err(Error::Damaged(_)) if self.context.sharing.is_some() && holds(Rule::ReadAgainLocked) => {
                self.locked(read)
            }
            result => result,
        }
    }

    /// Does `work` while nobody else writes, with what the store has.
    fn locked<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let Some(patience) = self.context.sharing else { return work() };
        let turn = self.lease.turn.lock();
        self.refuse_lost()?;
        if self.lease.is_held() {
            match work() {
                // Given back meanwhile.
                Err(Error::Damaged(_)) if !self.lease.is_held() => {}
                result => return result,
            }
        }
        if holds(Rule::RecoverLocked) {
            self.lock_store(&turn, patience)?;
        }
        let known = self.take_in(&mut self.state.write());
        let result = known.and_then(|()| work());
        self.unlock_store();
        result
    }

    /// Stores all of a shared file under a clean record, and gives the lease back.
    ///
    /// # Errors
    /// The store's. The lease is kept then.
    pub fn give_back(&self) -> Result<()> {
        let mut st = self.state.write();
        if !self.lease.is_held() {
            return Ok(());
        }
        self.refuse_lost()?;
        if !holds(Rule::CleanBeforeGivingBack) {
            self.flush_all(&mut st)?;
        } else if !st.is_clean() {
            let stored = self.clean_at_once(&mut st);
            self.suspecting(&mut st, stored)?;
        }
        // Others may change them from here on.
        (st.times.mtime, st.times.written_at) = (None, None);
        // In this order: whoever sees that it is not held may take the lock at once, and this must not take it away again.
        self.unlock_store();
        self.lease.held.store(false, Ordering::Release);
        Ok(())
    }

    /// The same if others may have waited long enough; then they get the next turn.
    ///
    /// # Errors
    /// As there.
    pub fn give_back_in_time(&self) -> Result<()> {
        let is_due = |turn: &Turn| turn.since.is_none_or(|since| since.elapsed() >= LONGEST);
        if self.lease.is_held() && is_due(&self.lease.turn.lock()) {
            self.give_back()?;
            self.lease.turn.lock().not_before = Some(Instant::now() + PAUSE);
        }
        Ok(())
    }

    /// Does `exchange`, which gives the stored file another descriptor, while it is not locked by the one that it has.
    ///
    /// # Errors
    /// As [`File::give_back`].
    pub fn between_locks(&self, exchange: impl FnOnce()) -> Result<()> {
        let _turn = holds(Rule::KeepLockedDescriptor).then(|| self.lease.turn.lock());
        self.give_back()?;
        exchange();
        Ok(())
    }

    /// Has the file fail, which has nothing that is not stored; false if it has the lease.
    pub fn give_up(&self) -> bool {
        let _turn = self.lease.turn.lock();
        let mut st = self.state.write();
        if self.lease.is_held() && !self.lease.is_lost() {
            return false;
        }
        self.lose(&mut st);
        true
    }

    pub(super) fn refuse_lost(&self) -> Result<()> {
        if self.lease.is_lost() { Err(Error::os(libc::EIO)) } else { Ok(()) }
    }

    fn lock_store(&self, turn: &Turn, patience: Duration) -> Result<()> {
        if let Some(at) = turn.not_before {
            thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        wait_for(patience, || self.store.try_lock())?;
        self.lease.locked.store(true, Ordering::Release);
        self.store.drop_cached(0);
        Ok(())
    }

    pub(super) fn unlock_store(&self) {
        if self.lease.locked.swap(false, Ordering::AcqRel) {
            self.store.unlock();
        }
    }

    /// Takes in what the store has, unless that is known; recovers it if that has to be. On an error nothing changes.
    fn take_in(&self, st: &mut State) -> Result<()> {
        let stored = self.store.len()?;
        let header = Header::read(&*self.store)?;
        if is_known(st, stored, &header) {
            return Ok(());
        }
        let mut found = State::never_committed(&self.context);
        self.load(&mut found, stored, &header)?;
        if found.stored.records.written {
            self.sync_store(&mut found)?; // Others have to find what this wrote.
        }
        *st = found;
        Ok(())
    }
}

/// Whether the store, which has `stored` bytes of the file and this header, has the clean version that is known, or still nothing.
fn is_known(st: &State, stored: u64, header: &Header) -> bool {
    let has_length = st.stored.identity.is_none() || stored == layout::stored_size(st.stored.base.size);
    st.fault.is_none() && st.is_clean() && has_length && header.records() == st.stored.records.sectors
}

impl Drop for File {
    /// Closing alone would not do: a process that is just being started has the same open files until it runs its own program.
    fn drop(&mut self) {
        self.unlock_store();
    }
}

/// Waits until `lock` has a lock.
///
/// # Errors
/// EAGAIN if that takes longer than `patience`; what `lock` returned.
pub(in crate::vault) fn wait_for(
    patience: Duration,
    mut lock: impl FnMut() -> std::io::Result<bool>,
) -> std::io::Result<()> {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    while !lock()? {
        if start.elapsed() >= patience {
            return Err(std::io::Error::from_raw_os_error(libc::EAGAIN));
        }
        thread::sleep(pause);
        pause = (2 * pause).min(MOST_BETWEEN);
    }
    Ok(())
}

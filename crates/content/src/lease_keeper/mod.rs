//! A file that other machines may write, too. A writer holds its *lease*: a lock of the stored file,
//! taken before the first change and released once everything is in the store under a clean record. The
//! next holder continues from the stored state, and recovers the file if a machine that vanished left it
//! dirty.
//!
//! Readers need no lease. Their reads are proven to belong to the version that they know. If a read does
//! not verify, another machine may have changed the file. The reader then retries under the lock, which
//! blocks until the writer releases it.
//!
//! Without the lease, this process has no data that the store lacks, so it may forget its state of the
//! file at any time.

mod lost;

use super::{
    clean::Cleaner,
    commit::Committer,
    error::{Error, Result},
    file_core::FileCore,
    flush::Flusher,
    lease_rules::{LeaseRule, holds},
    lock::WriteGuard,
    record_writer::RecordWriter,
    recover::{CrashRecovery, Header},
    state::{Fault, State},
    sync::Mutex,
    time::Time,
};
use format::{layout, record::Record};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub use lost::is_passing;

/// Maximum time to hold a lease while the file is still being written, since others may be waiting for
/// it.
const LONGEST: Duration = Duration::from_secs(1);
/// Pause before this process takes the lease again.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause between two attempts to take a lock.
const MOST_BETWEEN: Duration = Duration::from_millis(50);

/// Attributes of the stored file. As long as they are unchanged, no other machine has changed anything
/// visible in the file's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Size of the stored file in bytes.
    pub len: u64,
    /// Modification time of the stored file.
    pub mtime: Time,
    /// Change time of the stored file, which nobody can set back.
    pub ctime: Time,
}

/// Turns of a file's threads at its lease.
#[derive(Default)]
pub(super) struct LeaseTurns {
    /// Attributes of the stored file from before the state was last refreshed.
    seen: Mutex<Option<Stamp>>,
    /// Held while taking the lease, and while examining the stored file under its lock. Taken before the
    /// state.
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    since: Option<Instant>,
    not_before: Option<Instant>,
}

/// Takes and releases a file's lease, and keeps the state of a shared file current.
#[derive(Clone, Copy)]
pub struct LeaseKeeper<'a> {
    core: &'a Arc<FileCore>,
    turns: &'a LeaseTurns,
}

impl<'a> LeaseKeeper<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>, turns: &'a LeaseTurns) -> Self {
        LeaseKeeper { core, turns }
    }

    fn records(&self) -> RecordWriter<'a> {
        RecordWriter::of(&self.core.backing)
    }

    fn recovery(&self) -> CrashRecovery<'a> {
        CrashRecovery::of(&self.core.backing)
    }

    fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    fn flusher(&self) -> Flusher<'a> {
        Flusher::of(self.core)
    }

    fn cleaner(&self) -> Cleaner<'a> {
        Cleaner::of(self.core)
    }

    /// The state for a change. For a shared file, waits for the lease first.
    ///
    /// # Errors
    /// EAGAIN if another machine does not release the lease in time; those of opening the file.
    pub(super) fn state_to_change(&self) -> Result<WriteGuard<'a>> {
        let Some(patience) =
            self.core.backing.context.sharing.filter(|_| !self.core.backing.context.read_only)
        else {
            return Ok(self.core.state.write());
        };
        loop {
            let st = self.core.state.write();
            if self.core.backing.lease.is_held() {
                return Ok(st);
            }
            drop(st);
            let mut turn = self.turns.turn.lock();
            if self.core.backing.lease.is_held() {
                continue; // Another thread took it.
            }
            self.core.backing.lease.refuse_lost()?;
            if holds(LeaseRule::LeaseBeforeChange) {
                self.lock_store(&turn, patience)?;
            }
            let mut st = self.core.state.write();
            let known = if holds(LeaseRule::LookUnderLease) { self.take_in(&mut st) } else { Ok(()) };
            // If the recovery cannot be written, no change is possible. Leave the lease to others.
            let unfinished = |st: &State| st.fault == Some(Fault::NotRecovered);
            let recovered = known.and_then(|()| {
                if unfinished(&st) { self.recovery().finish_recovery(&mut st) } else { Ok(()) }
            });
            match recovered {
                Ok(()) => {
                    turn.since = Some(Instant::now());
                    self.core.backing.lease.set_held(true);
                    return Ok(st);
                }
                Err(e) => {
                    self.core.backing.lease.unlock(&*self.core.backing.store);
                    return Err(e);
                }
            }
        }
    }

    /// Refreshes the state of a shared file. Called when the file is opened. Blocks while another machine
    /// is writing it.
    ///
    /// # Errors
    /// As [`File::open`](crate::File::open); EAGAIN if another machine does not release the lease in time;
    /// EIO if the store revoked this one's.
    pub fn refresh(&self) -> Result<()> {
        if self.core.backing.lease.is_held() && holds(LeaseRule::CheckLeaseAtOpen) {
            self.check_lease(&mut self.core.state.write())?;
        }
        if self.look_again()? { Ok(()) } else { self.locked(|| Ok(())) }
    }

    /// Remembers the attributes that the stored file had before it was opened.
    pub fn opened_as(&self, stamp: Stamp) {
        *self.turns.seen.lock() = Some(stamp);
    }

    /// Like `look_again`, but skipped if the stored file's attributes, given by `stamp`, are unchanged.
    ///
    /// # Errors
    /// As `look_again`.
    pub fn look_again_at(&self, stamp: Stamp) -> Result<bool> {
        if !self.core.backing.lease.is_lost() && *self.turns.seen.lock() == Some(stamp) {
            return Ok(true);
        }
        let known = self.look_again()?;
        if known {
            self.opened_as(stamp);
        }
        Ok(known)
    }

    /// Like `refresh`, but does not block. Returns false if the file must be examined under its lock.
    ///
    /// # Errors
    /// The store's.
    pub fn look_again(&self) -> Result<bool> {
        if self.core.backing.context.sharing.is_none() {
            return Ok(true);
        }
        let mut st = self.core.state.write();
        self.core.backing.lease.refuse_lost()?;
        if self.core.backing.lease.is_held() || !holds(LeaseRule::LookAtOpen) && st.stored.identity.is_some()
        {
            return Ok(true);
        }
        self.core.backing.store.drop_cached(layout::PAGE);
        let stored = self.core.backing.store.len()?;
        let header = Header::read(&*self.core.backing.store)?;
        if is_known(&st, stored, &header) {
            return Ok(true);
        }
        // A clean record is in both sectors. Both are zeros if nothing was ever committed.
        let [one, other] = header.records();
        if one != other || !Record::peek_clean(&one) {
            return Ok(false);
        }
        self.core.backing.store.drop_cached(0);
        let mut found = State::never_committed(&self.core.backing.context);
        match self.recovery().load_header(&mut found, stored, &header) {
            Ok(()) if found.fault.is_none() && found.is_clean() => *st = found,
            // Also reached if the read met a writer half-way.
            Ok(()) | Err(Error::Damaged(_)) => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Runs `read`. If the result does not verify and the file is shared, runs it again under the lock.
    ///
    /// # Errors
    /// `read`'s; EAGAIN if another machine does not release its lease in time.
    pub(super) fn retry_under_lease<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        match read() {
            Err(Error::Damaged(_))
                if self.core.backing.context.sharing.is_some() && holds(LeaseRule::ReadAgainLocked) =>
            {
                self.locked(read)
            }
            result => result,
        }
    }

    /// Runs `work` on the stored state while no one else can write.
    fn locked<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let Some(patience) = self.core.backing.context.sharing else { return work() };
        let turn = self.turns.turn.lock();
        self.core.backing.lease.refuse_lost()?;
        if self.core.backing.lease.is_held() {
            match work() {
                // The lease was released meanwhile.
                Err(Error::Damaged(_)) if !self.core.backing.lease.is_held() => {}
                result => return result,
            }
        }
        if holds(LeaseRule::RecoverLocked) {
            self.lock_store(&turn, patience)?;
        }
        let known = self.take_in(&mut self.core.state.write());
        let result = known.and_then(|()| work());
        self.core.backing.lease.unlock(&*self.core.backing.store);
        result
    }

    /// Stores all of a shared file under a clean record and releases the lease.
    ///
    /// # Errors
    /// The store's. The lease is kept then.
    pub fn give_back(&self) -> Result<()> {
        let mut st = self.core.state.write();
        if !self.core.backing.lease.is_held() {
            return Ok(());
        }
        self.core.backing.lease.refuse_lost()?;
        if !holds(LeaseRule::CleanBeforeGivingBack) {
            self.flusher().flush_all(&mut st)?;
        } else if !st.is_clean() {
            let stored = self.cleaner().clean_at_once(&mut st);
            self.recheck_lease_on_error(&mut st, stored)?;
        }
        // Other machines may change these from here on.
        (st.times.mtime, st.times.written_at) = (None, None);
        // The order matters: a thread that sees `held` cleared may take the lease at once, and unlocking
        // afterwards would release that new lock.
        self.core.backing.lease.unlock(&*self.core.backing.store);
        self.core.backing.lease.set_held(false);
        Ok(())
    }

    /// Like `give_back`, but only if this process has held the lease for the maximum time. Others then
    /// get the next turn.
    ///
    /// # Errors
    /// As `give_back`.
    pub fn give_back_in_time(&self) -> Result<()> {
        let is_due = |turn: &Turn| turn.since.is_none_or(|since| since.elapsed() >= LONGEST);
        if self.core.backing.lease.is_held() && is_due(&self.turns.turn.lock()) {
            self.give_back()?;
            self.turns.turn.lock().not_before = Some(Instant::now() + PAUSE);
        }
        Ok(())
    }

    /// Runs `exchange`, which replaces the stored file's descriptor, while no lock is held through the
    /// present one.
    ///
    /// # Errors
    /// As `give_back`.
    pub fn between_locks(&self, exchange: impl FnOnce()) -> Result<()> {
        let _turn = holds(LeaseRule::KeepLockedDescriptor).then(|| self.turns.turn.lock());
        self.give_back()?;
        exchange();
        Ok(())
    }

    /// Makes the file, which must have no unstored data, fail permanently. Returns false, with no effect, if
    /// this process holds a valid lease.
    pub fn give_up(&self) -> bool {
        let _turn = self.turns.turn.lock();
        let mut st = self.core.state.write();
        if self.core.backing.lease.is_held() && !self.core.backing.lease.is_lost() {
            return false;
        }
        self.lose(&mut st);
        true
    }

    fn lock_store(&self, turn: &Turn, patience: Duration) -> Result<()> {
        if let Some(at) = turn.not_before {
            thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        wait_for(patience, || self.core.backing.store.try_lock())?;
        self.core.backing.lease.note_lock();
        self.core.backing.store.drop_cached(0);
        Ok(())
    }

    /// Refreshes the state from the store unless it is current, and recovers the file if needed. On an
    /// error the state is unchanged.
    fn take_in(&self, st: &mut State) -> Result<()> {
        let stored = self.core.backing.store.len()?;
        let header = Header::read(&*self.core.backing.store)?;
        if is_known(st, stored, &header) {
            return Ok(());
        }
        let mut found = State::never_committed(&self.core.backing.context);
        self.recovery().load(&mut found, stored, &header)?;
        if found.stored.records.written {
            self.records().sync_store(&mut found)?; // Other machines must find this recovery.
        }
        *st = found;
        Ok(())
    }
}

/// Whether the store, with `stored` bytes and this header, still has the known clean version, or still
/// nothing.
fn is_known(st: &State, stored: u64, header: &Header) -> bool {
    let has_length = st.stored.identity.is_none() || stored == layout::stored_size(st.stored.base.size);
    st.fault.is_none() && st.is_clean() && has_length && header.records() == st.stored.records.sectors
}

/// Retries `lock` until it succeeds.
///
/// # Errors
/// EAGAIN after `patience`; `lock`'s.
pub fn wait_for(patience: Duration, mut lock: impl FnMut() -> std::io::Result<bool>) -> std::io::Result<()> {
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

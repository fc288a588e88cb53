//! The locks used in tests. Each is parking_lot's, or shuttle's if it is created while shuttle runs. A
//! lock keeps its kind, so a guard is always released where it was taken.

use shuttle_parking_lot_impl as scheduled;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

/// Whether shuttle runs the calling thread.
fn is_scheduled() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// A lock or a guard, of parking_lot or of the scheduler.
#[derive(Debug)]
pub enum Either<P, S> {
    Plain(P),
    Scheduled(S),
}

impl<P, S> Either<P, S> {
    fn made<T>(value: T, plain: impl FnOnce(T) -> P, scheduled: impl FnOnce(T) -> S) -> Self {
        if is_scheduled() { Either::Scheduled(scheduled(value)) } else { Either::Plain(plain(value)) }
    }
}

impl<T, P: Deref<Target = T>, S: Deref<Target = T>> Deref for Either<P, S> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Either::Plain(guard) => guard,
            Either::Scheduled(guard) => guard,
        }
    }
}

impl<T, P: DerefMut<Target = T>, S: DerefMut<Target = T>> DerefMut for Either<P, S> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Either::Plain(guard) => guard,
            Either::Scheduled(guard) => guard,
        }
    }
}

/// As parking_lot's.
#[derive(Debug)]
pub struct Mutex<T>(Either<parking_lot::Mutex<T>, scheduled::Mutex<T>>);

type MutexGuard<'a, T> = Either<parking_lot::MutexGuard<'a, T>, scheduled::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// As parking_lot's.
    pub fn new(value: T) -> Self {
        Mutex(Either::made(value, parking_lot::Mutex::new, scheduled::Mutex::new))
    }

    /// As parking_lot's.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match &self.0 {
            Either::Plain(lock) => Either::Plain(lock.lock()),
            Either::Scheduled(lock) => Either::Scheduled(lock.lock()),
        }
    }

    /// As parking_lot's.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match &self.0 {
            Either::Plain(lock) => lock.try_lock().map(Either::Plain),
            Either::Scheduled(lock) => lock.try_lock().map(Either::Scheduled),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

/// As parking_lot's.
#[derive(Debug)]
pub struct RwLock<T>(Either<parking_lot::RwLock<T>, scheduled::RwLock<T>>);

/// As parking_lot's.
pub type RwLockReadGuard<'a, T> =
    Either<parking_lot::RwLockReadGuard<'a, T>, scheduled::RwLockReadGuard<'a, T>>;
/// As parking_lot's.
pub type RwLockWriteGuard<'a, T> =
    Either<parking_lot::RwLockWriteGuard<'a, T>, scheduled::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// As parking_lot's.
    pub fn new(value: T) -> Self {
        RwLock(Either::made(value, parking_lot::RwLock::new, scheduled::RwLock::new))
    }

    /// As parking_lot's.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match &self.0 {
            Either::Plain(lock) => Either::Plain(lock.read()),
            Either::Scheduled(lock) => Either::Scheduled(lock.read()),
        }
    }

    /// As parking_lot's.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match &self.0 {
            Either::Plain(lock) => Either::Plain(lock.write()),
            Either::Scheduled(lock) => Either::Scheduled(lock.write()),
        }
    }

    /// As parking_lot's.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match &self.0 {
            Either::Plain(lock) => lock.try_write().map(Either::Plain),
            Either::Scheduled(lock) => lock.try_write().map(Either::Scheduled),
        }
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// As parking_lot's.
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        match guard {
            Either::Plain(guard) => Either::Plain(parking_lot::RwLockWriteGuard::downgrade(guard)),
            Either::Scheduled(guard) => Either::Scheduled(scheduled::RwLockWriteGuard::downgrade(guard)),
        }
    }
}

/// As parking_lot's. It must be of the same kind as the lock it is used with.
pub struct Condvar(Either<parking_lot::Condvar, ScheduledCondvar>);

/// A condition variable over the scheduler's.
#[derive(Default)]
struct ScheduledCondvar {
    waiting: shuttle::sync::Mutex<()>,
    woken: shuttle::sync::Condvar,
}

impl Condvar {
    /// As parking_lot's.
    pub fn new() -> Self {
        Condvar(Either::made((), |()| parking_lot::Condvar::new(), |()| ScheduledCondvar::default()))
    }

    /// As parking_lot's.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match (&self.0, guard) {
            (Either::Plain(condition), Either::Plain(guard)) => condition.wait(guard),
            (Either::Scheduled(condition), Either::Scheduled(guard)) => {
                // A notifier takes this lock too, so no notification is missed between unlocking and
                // waiting.
                let waiting = condition.waiting.lock().unwrap(); // invariant: nothing panics under it
                scheduled::MutexGuard::unlocked(guard, || drop(condition.woken.wait(waiting)));
            }
            _ => unreachable!("a condition is made where its lock is"),
        }
    }

    /// As parking_lot's.
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut holds: impl FnMut(&mut T) -> bool) {
        while holds(guard) {
            self.wait(guard);
        }
    }

    /// Ignores the timeout under the scheduler, where the wait may end at once.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        match (&self.0, guard) {
            (Either::Plain(condition), Either::Plain(guard)) => {
                condition.wait_for(guard, timeout);
            }
            (Either::Scheduled(_), Either::Scheduled(guard)) => {
                scheduled::MutexGuard::unlocked(guard, shuttle::thread::yield_now);
            }
            _ => unreachable!("a condition is made where its lock is"),
        }
    }

    /// As parking_lot's.
    pub fn notify_all(&self) {
        match &self.0 {
            Either::Plain(condition) => {
                condition.notify_all();
            }
            Either::Scheduled(condition) => {
                let waiting = condition.waiting.lock().unwrap(); // invariant: nothing panics under it
                condition.woken.notify_all();
                drop(waiting);
            }
        }
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

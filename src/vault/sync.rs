//! The locks of open files: parking_lot's. In the tests of interleavings (feature `interleave`) a scheduler's, which
//! decides at each of them who goes on.

#[cfg(not(all(test, feature = "interleave")))]
pub(super) use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(all(test, feature = "interleave"))]
pub(super) use {
    condvar::Condvar,
    shuttle_parking_lot_impl::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

#[cfg(all(test, feature = "interleave"))]
mod condvar {
    use shuttle_parking_lot_impl::MutexGuard;
    use std::time::Duration;

    /// As parking_lot's, over the scheduler's.
    #[derive(Default)]
    pub(in crate::vault) struct Condvar {
        waiting: shuttle::sync::Mutex<()>,
        woken: shuttle::sync::Condvar,
    }

    impl Condvar {
        pub(in crate::vault) fn new() -> Self {
            Condvar::default()
        }

        pub(in crate::vault) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            // Whoever notifies takes this lock, too: nothing is missed between the two.
            let waiting = self.waiting.lock().unwrap(); // invariant: nothing panics under it
            MutexGuard::unlocked(guard, || drop(self.woken.wait(waiting)));
        }

        pub(in crate::vault) fn wait_while<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            mut holds: impl FnMut(&mut T) -> bool,
        ) {
            while holds(guard) {
                self.wait(guard);
            }
        }

        /// Time has no length here: it may be over at once.
        pub(in crate::vault) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            MutexGuard::unlocked(guard, shuttle::thread::yield_now);
        }

        pub(in crate::vault) fn notify_all(&self) {
            let waiting = self.waiting.lock().unwrap(); // invariant: nothing panics under it
            self.woken.notify_all();
            drop(waiting);
        }
    }
}

//! One buffer for each thread that serves requests. Any thread can wipe all of them.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use zeroize::Zeroize;

type Buffer = Mutex<Vec<u8>>;

static ALL: Mutex<Vec<Weak<Buffer>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Arc<Buffer> = new();
}

fn new() -> Arc<Buffer> {
    let buffer = Arc::<Buffer>::default();
    let mut all = ALL.lock();
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(&buffer));
    buffer
}

/// Lends this thread's buffer, whose content is unspecified.
pub fn with<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    OWN.with(|buffer| work(&mut buffer.lock()))
}

/// Wipes and frees the buffers of all threads.
pub fn wipe() {
    let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    for buffer in all {
        let mut buffer = std::mem::take(&mut *buffer.lock());
        buffer.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_buffer_of_another_thread_is_wiped() {
        let (told, tell) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            with(|buffer| buffer.extend([7; 100]));
            told.send(()).unwrap();
            wait.recv().unwrap();
            with(|buffer| buffer.len())
        });
        tell.recv().unwrap();
        wipe();
        go.send(()).unwrap();
        assert_eq!(other.join().unwrap(), 0);
    }
}

//! Pages of the kernel's that a write past its cache has overtaken.
//!
//! A program that writes past the page cache by itself finds the pages dropped by the kernel, before the write and
//! after. But where it only begins writes (libaio, io_uring), the kernel drops pages when a write begins, and never
//! when it is done: what somebody reads meanwhile through the cache stays as it was. Requests do not say which of
//! the two they are, so after each write past the cache to a file of which the kernel may have pages, they are
//! dropped from here.
//!
//! Dropping a page waits for a read of it that is under way, in the kernel, and nothing ends that wait but the
//! read's answer. So a read that this process has, or is about to get, must not be waited for by the loop that is to
//! answer it, nor where many such waits could keep the kernel from sending the read at all; and should this process
//! be killed meanwhile, the thread that waits would keep it, the read and its program from ending. Hence:
//!
//! - if no read of the file's pages is under way, and no request waits, the pages are dropped before the write is
//!   answered: nobody sees it done and the pages still there;
//! - else the write is answered, and a thread drops the pages when there is such a moment. Until it has, whoever
//!   opens the file has the kernel drop all of the file's pages first, which waits in the program that opens. So
//!   who opens a file after a write to it is done always reads what was written.

use super::{inodes::Node, loops::Loops, server::Server};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the thread looks whether there is a moment for it.
const TICK: Duration = Duration::from_millis(1);
/// It takes the next best one after this long: then a wait is no more likely than it is long, against this.
const PATIENCE: Duration = Duration::from_millis(100);
/// Ranges of a file that are kept apart at most.
const MOST: usize = 64;

/// What the kernel may have of a file in its page cache.
#[derive(Debug, Default)]
pub struct Pages {
    /// Whether it may have any.
    any: AtomicBool,
    /// Reads of pages that are under way.
    reads: AtomicUsize,
    behind: Mutex<Behind>,
}

/// What is to be dropped.
#[derive(Debug, Default)]
struct Behind {
    ranges: Vec<Range<u64>>,
    /// Whether that is being done, for ranges that are not here any more.
    dropping: bool,
}

impl Behind {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.dropping
    }

    fn add(&mut self, new: Range<u64>) {
        let together = |a: &Range<u64>, b: &Range<u64>| a.start.min(b.start)..a.end.max(b.end);
        let full = self.ranges.len() >= MOST;
        match self.ranges.last_mut() {
            Some(last) if last.start <= new.end && new.start <= last.end => *last = together(last, &new),
            _ if full => self.ranges = vec![self.ranges.iter().fold(new, |all, range| together(&all, range))],
            _ => self.ranges.push(new),
        }
    }
}

impl Pages {
    /// The kernel is about to have some.
    pub fn begin(&self) {
        if !self.any.load(Ordering::SeqCst) {
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// The kernel is dropping all, and nobody else has the file.
    pub fn end(&self) {
        self.any.store(false, Ordering::SeqCst);
    }

    /// Whether it may have some that a write has overtaken.
    pub fn behind(&self) -> bool {
        !self.behind.lock().is_empty()
    }

    fn idle(&self) -> bool {
        self.reads.load(Ordering::SeqCst) == 0
    }
}

/// A read of pages, from its arrival until it is answered.
pub struct PageRead(Arc<Node>);

impl PageRead {
    /// Says that a read of a node's pages has come; to be called before anything is read.
    pub fn begin(node: Arc<Node>) -> PageRead {
        node.pages.reads.fetch_add(1, Ordering::SeqCst);
        node.pages.begin();
        PageRead(node)
    }
}

impl Drop for PageRead {
    fn drop(&mut self) {
        self.0.pages.reads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Drops what could not be dropped at once.
#[derive(Default)]
pub struct Dropper {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Nodes that have something to be dropped, and since when.
    nodes: Vec<(Arc<Node>, Instant)>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Server {
    /// Says that `bytes` of a node were written past the page cache; to be called before that is answered.
    pub fn overtaken(&self, node: &Arc<Node>, bytes: Range<u64>) {
        if bytes.is_empty() || !node.pages.any.load(Ordering::SeqCst) {
            return;
        }
        let Some(kernel) = self.kernel() else { return };
        if !self.loops().all_busy() && is_quiet(node, self.loops()) {
            return drop_pages(kernel, node, &bytes);
        }
        let first = {
            let mut behind = node.pages.behind.lock();
            let first = behind.is_empty();
            behind.add(bytes);
            first
        };
        if first {
            self.dropper.add(node.clone(), kernel, self.loops());
        }
    }
}

impl Dropper {
    /// Ends the thread; what is left need not be dropped any more.
    pub fn finish(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.ended = true;
            state.nodes.clear();
            state.thread.take()
        };
        self.wake.notify_all();
        if let Some(thread) = thread {
            // It cannot panic.
            let _ = thread.join();
        }
    }

    fn add(self: &Arc<Self>, node: Arc<Node>, kernel: &Notifier, loops: &Arc<Loops>) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.nodes.push((node, Instant::now()));
        if state.thread.is_none() {
            let (dropper, kernel, loops) = (self.clone(), kernel.clone(), loops.clone());
            let started =
                thread::Builder::new().name("pages".into()).spawn(move || dropper.work(&kernel, &loops));
            // Without it, every opening has the kernel drop all.
            state.thread = started.ok();
        }
        self.wake.notify_all();
    }

    fn work(&self, kernel: &Notifier, loops: &Loops) {
        loop {
            let mut due = Vec::new();
            {
                let mut state = self.state.lock();
                while state.nodes.is_empty() && !state.ended {
                    self.wake.wait(&mut state);
                }
                if state.ended {
                    return;
                }
                state.nodes.retain(|(node, since)| {
                    let is_due = is_quiet(node, loops) || since.elapsed() >= PATIENCE;
                    if is_due {
                        due.push(node.clone());
                    }
                    !is_due
                });
            }
            for node in &due {
                self.bring_up(kernel, node);
            }
            if due.is_empty() {
                thread::sleep(TICK);
            }
        }
    }

    /// Drops what is to be dropped of a node.
    fn bring_up(&self, kernel: &Notifier, node: &Arc<Node>) {
        let ranges = {
            let mut behind = node.pages.behind.lock();
            behind.dropping = true;
            std::mem::take(&mut behind.ranges)
        };
        for range in &ranges {
            drop_pages(kernel, node, range);
        }
        let mut behind = node.pages.behind.lock();
        behind.dropping = false;
        if !behind.is_empty() {
            self.state.lock().nodes.push((node.clone(), Instant::now()));
        }
    }
}

/// Whether dropping pages would wait for nothing, as far as can be seen from here.
fn is_quiet(node: &Node, loops: &Loops) -> bool {
    node.pages.idle() && !loops.request_waits()
}

fn drop_pages(kernel: &Notifier, node: &Node, bytes: &Range<u64>) {
    let offset = i64::try_from(bytes.start).unwrap_or(i64::MAX);
    let len = i64::try_from(bytes.end - bytes.start).unwrap_or(0); // 0: to the end
    // A node that the kernel does not know has no pages.
    let _ = kernel.inval_inode(INodeNo(node.number), offset, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one_and_too_many_do_too() {
        let mut behind = Behind::default();
        assert!(behind.is_empty());
        behind.add(0..10);
        behind.add(10..20);
        behind.add(5..12);
        assert_eq!((behind.ranges.len(), &behind.ranges[0]), (1, &(0..20)));
        for at in 1..MOST as u64 {
            behind.add(at * 100..at * 100 + 1);
        }
        assert_eq!(behind.ranges.len(), MOST);
        behind.add(50..51);
        assert_eq!((behind.ranges.len(), &behind.ranges[0]), (1, &(0..MOST as u64 * 100 - 99)));
    }

    #[test]
    fn a_file_is_behind_until_what_was_begun_is_dropped() {
        let pages = Pages::default();
        assert!(!pages.behind());
        pages.behind.lock().add(0..1);
        assert!(pages.behind());
        let mut behind = pages.behind.lock();
        behind.ranges.clear();
        behind.dropping = true;
        drop(behind);
        assert!(pages.behind());
    }
}

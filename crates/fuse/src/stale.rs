//! Drops pages from the kernel's cache that a direct write has made stale.
//!
//! For a synchronous direct write, the kernel drops the pages before and after the write. For an
//! asynchronous one (libaio, io_uring) it drops them when the write begins, but not when it ends: a page
//! that is read through the cache in between stays stale. A request does not tell which of the two it is.
//! So this module drops the pages after each direct write to a file of which the kernel may have cached
//! pages.
//!
//! To drop a page, the kernel waits for a read of it that is in progress, and only the read's answer ends
//! that wait. So an event loop must not wait for a read that this process has to answer, and too many
//! such waits could keep the kernel from sending the read at all. If this process is killed meanwhile,
//! the waiting thread prevents itself, the read and the reading program from exiting. Hence:
//!
//! - If no read of the file's pages is in progress, no request waits, and the gate is open, the pages are
//!   dropped before the write is answered. No program can then see the write completed and the pages
//!   still cached.
//! - Otherwise the write is answered, and a thread drops the pages as soon as these conditions hold.
//!   Until then, an open of the file makes the kernel drop all of the file's pages first; that wait is in
//!   the opening program. So a program that opens a file after a write to it has completed always reads
//!   the written data.

use super::{affinity, gate::Gate, inodes::Node, loops::Loops};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::{
    ops::Range,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the thread checks whether it can drop pages without waiting.
const TICK: Duration = Duration::from_millis(1);
/// After this long it drops pages even if it has to wait, because the wait is short in comparison. The
/// wait may be long if the gate is closed, but then nothing waits for the thread.
const PATIENCE: Duration = Duration::from_millis(100);

/// A read of pages, from its arrival until its answer.
pub struct PageRead(Arc<Node>);

impl PageRead {
    /// Counts a read of a node's pages that has arrived. Call it before reading anything.
    pub fn begin(node: Arc<Node>) -> PageRead {
        node.pages.begin_read();
        PageRead(node)
    }
}

impl Drop for PageRead {
    fn drop(&mut self) {
        self.0.pages.end_read();
    }
}

/// Drops stale pages, immediately or on a thread.
pub struct PageInvalidator {
    loops: Arc<Loops>,
    gate: Arc<Gate>,
    state: Mutex<InvalidatorState>,
    wake: Condvar,
}

#[derive(Default)]
struct InvalidatorState {
    /// Nodes with stale pages, and the time at which they became stale.
    nodes: Vec<(Arc<Node>, Instant)>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl PageInvalidator {
    /// Creates a dropper without stale pages.
    pub fn new(loops: Arc<Loops>, gate: Arc<Gate>) -> Arc<Self> {
        Arc::new(PageInvalidator { loops, gate, state: Mutex::default(), wake: Condvar::new() })
    }

    /// Drops the pages of `bytes` after a direct write to a node. Call it before answering the write.
    /// `may_wait` means that another thread would serve a read that this one waits for.
    pub fn overtaken(
        self: &Arc<Self>,
        kernel: &Notifier,
        node: &Arc<Node>,
        bytes: Range<u64>,
        may_wait: bool,
    ) {
        if bytes.is_empty() || !node.pages.any() {
            return;
        }
        if may_wait && self.is_quiet(node) {
            return drop_pages(kernel, node, &bytes);
        }
        if node.pages.add_stale(bytes) {
            self.add(node.clone(), kernel);
        }
    }

    /// Stops the thread. Remaining stale pages no longer need to be dropped.
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

    fn add(self: &Arc<Self>, node: Arc<Node>, kernel: &Notifier) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.nodes.push((node, Instant::now()));
        if state.thread.is_none() {
            let (dropper, kernel) = (self.clone(), kernel.clone());
            let started = thread::Builder::new().name("pages".into()).spawn(move || {
                affinity::unbind();
                dropper.work(&kernel);
            });
            // Without a thread, every open makes the kernel drop all pages.
            state.thread = started.ok();
        }
        self.wake.notify_all();
    }

    fn work(&self, kernel: &Notifier) {
        while let Some(due) = self.wait() {
            for node in &due {
                self.drop_stale(kernel, node);
            }
            if due.is_empty() {
                thread::sleep(TICK);
            }
        }
    }

    /// Waits until there are nodes with stale pages, and takes those that are due. `None` when the
    /// dropper ends.
    fn wait(&self) -> Option<Vec<Arc<Node>>> {
        let mut state = self.state.lock();
        while state.nodes.is_empty() && !state.ended {
            self.wake.wait(&mut state);
        }
        if state.ended {
            return None;
        }
        let mut due = Vec::new();
        state.nodes.retain(|(node, since)| {
            let is_due = self.is_quiet(node) || since.elapsed() >= PATIENCE;
            if is_due {
                due.push(node.clone());
            }
            !is_due
        });
        Some(due)
    }

    fn drop_stale(&self, kernel: &Notifier, node: &Arc<Node>) {
        for range in &node.pages.take_stale() {
            drop_pages(kernel, node, range);
        }
        if node.pages.dropped() {
            self.state.lock().nodes.push((node.clone(), Instant::now()));
        }
    }

    /// Whether a request may drop a node's pages. A closing gate waits for that request, and holds new
    /// reads of pages. If the kernel then waited for one of these reads, the three would deadlock.
    fn is_quiet(&self, node: &Node) -> bool {
        !self.gate.is_closed() && self.waits_for_nothing(node)
    }

    /// Whether dropping a node's pages would not have to wait, as far as this process can tell.
    pub fn waits_for_nothing(&self, node: &Node) -> bool {
        node.pages.idle() && self.gate.held() == 0 && !self.loops.request_waits()
    }
}

fn drop_pages(kernel: &Notifier, node: &Node, bytes: &Range<u64>) {
    let offset = i64::try_from(bytes.start).unwrap_or(i64::MAX);
    let len = i64::try_from(bytes.end - bytes.start).unwrap_or(0); // 0: to the end.
    // A node that the kernel does not know has no pages.
    let _ = kernel.inval_inode(INodeNo(node.number), offset, len);
}

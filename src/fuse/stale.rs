//! Drops the kernel's pages that a write with direct I/O has made stale.
//!
//! A program that writes with direct I/O finds the pages dropped by the kernel, before the write and after. But a
//! program that only begins writes (libaio, io_uring) finds them dropped when a write begins, and never when it
//! ends: a page that is read through the cache meanwhile stays as it was. A request does not say which of the two it
//! is. So after each direct write to a file of which the kernel may have pages, this module drops them.
//!
//! To drop a page the kernel waits for a read of it that is in progress, and nothing ends that wait but the read's
//! answer. So an event loop must not wait for a read that this process has to answer, and too many such waits could
//! keep the kernel from sending the read at all. If this process is killed meanwhile, the waiting thread keeps
//! itself, the read and its program from ending. Hence:
//!
//! - If no read of the file's pages is in progress, no request waits, and the gate is open, the pages are dropped before the
//!   write is answered. Nobody sees the write done and the pages still there.
//! - Otherwise the write is answered, and a thread drops the pages at the next such moment. Until then, an open of
//!   the file has the kernel drop all of the file's pages first; that wait is in the program that opens. So a
//!   program that opens a file after a write to it has ended always reads what was written.

use super::{affinity, gate::Gate, inodes::Node, loops::Loops};
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::{
    ops::Range,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often the thread looks for a moment at which it would not wait.
const TICK: Duration = Duration::from_millis(1);
/// After this long it drops pages at any moment: compared with this, a wait is short. It may be long where the gate is
/// closed, but nothing waits for the thread then.
const PATIENCE: Duration = Duration::from_millis(100);

/// A read of pages, from its arrival until it is answered.
pub struct PageRead(Arc<Node>);

impl PageRead {
    /// Counts a read of a node's pages that has arrived; to be called before anything is read.
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

/// Drops stale pages, at once or on a thread.
pub struct Dropper {
    loops: Arc<Loops>,
    gate: Arc<Gate>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Nodes that have stale pages, and since when.
    nodes: Vec<(Arc<Node>, Instant)>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl Dropper {
    /// Nothing to drop yet.
    pub fn new(loops: Arc<Loops>, gate: Arc<Gate>) -> Arc<Self> {
        Arc::new(Dropper { loops, gate, state: Mutex::default(), wake: Condvar::new() })
    }

    /// Drops the pages of `bytes`, which were written to a node with direct I/O; to be called before the write is
    /// answered. `may_wait`: another thread would serve a read that this one waited for.
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

    /// Ends the thread; stale pages that are left need not be dropped any more.
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
            // Without a thread, every open has the kernel drop all pages.
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

    /// Waits until there are nodes with stale pages, and takes those whose moment has come. `None` at the end.
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

    /// Whether a request may drop a node's pages. A gate that closes waits for that request, and holds reads of pages that
    /// come: if the kernel waited for one of them, none of the three would end.
    fn is_quiet(&self, node: &Node) -> bool {
        !self.gate.is_closed() && self.waits_for_nothing(node)
    }

    /// Whether dropping a node's pages would wait for nothing, as far as this process can see.
    pub fn waits_for_nothing(&self, node: &Node) -> bool {
        node.pages.idle() && self.gate.held() == 0 && !self.loops.request_waits()
    }
}

fn drop_pages(kernel: &Notifier, node: &Node, bytes: &Range<u64>) {
    let offset = i64::try_from(bytes.start).unwrap_or(i64::MAX);
    let len = i64::try_from(bytes.end - bytes.start).unwrap_or(0); // 0: to the end
    // A node that the kernel does not know has no pages.
    let _ = kernel.inval_inode(INodeNo(node.number), offset, len);
}

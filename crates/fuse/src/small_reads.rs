//! Batching of small reads that arrive together: their chunks are verified in parallel, which takes
//! hardly longer than verifying one. The reads of a single program never wait.
//!
//! Suppose that a loop gets a small read while the kernel has another request and no other loop is free
//! to take it. The loop then queues the read and takes that request. The loop that takes the request
//! finds the queued read and serves it first. If the kernel has withdrawn the request and no loop takes
//! it, the loops' monitor serves the queue.

use super::{
    handles::FileHandle,
    read_queue::{MOST_TOGETHER, QueuedRead, SMALL},
    replies::Reply,
    server::{Server, Transport},
};
use content::{Result, SmallRead};
use fuser::ReplyData;
use metrics::Activity;
use std::{sync::Arc, time::Duration};
use zeroize::Zeroize;

/// Destination of the answer to a read.
pub trait ReadReply: for<'a> Reply<&'a [u8]> {
    /// Serves a small read, possibly together with others.
    fn read_small(server: &Server, read: QueuedRead<Self>)
    where
        Self: Sized;

    /// Lets `fill` read `len` bytes directly into the memory from which the kernel takes the answer, and
    /// answers with the number of bytes that it returns. False if the caller must answer in another way:
    /// there is no such memory, or `fill` returned `None`.
    ///
    /// # Errors
    /// Those of `fill`. No answer was sent then.
    fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<Option<usize>>) -> Result<bool>;
}

impl ReadReply for ReplyData {
    /// The kernel has no fixed place for an answer through `/dev/fuse`.
    fn fill(&mut self, _: usize, _: impl FnOnce(&mut [u8]) -> Result<Option<usize>>) -> Result<bool> {
        Ok(false)
    }

    /// Serves the read, or queues it while another request waits and all loops are busy.
    fn read_small(server: &Server, read: QueuedRead<Self>) {
        if !server.queued.any() && (server.may_wait(Transport::Device) || !server.request_waits()) {
            return server.read_batch(vec![read]);
        }
        // Queue the read before asking the kernel: the loop that takes the waiting request must find it.
        if server.queued.push(read) >= MOST_TOGETHER || !server.request_waits() {
            server.read_queued();
        }
    }
}

impl Server {
    /// Serves the queued reads.
    pub fn read_queued(&self) {
        if self.queued.any() {
            self.read_batch(self.queued.take());
        }
    }

    /// Serves small reads, those of one file together.
    pub fn read_batch<R: ReadReply>(&self, mut reads: Vec<QueuedRead<R>>) {
        reads.sort_by_key(|read| Arc::as_ptr(&read.file.file) as usize);
        while let Some(first) = reads.first() {
            let alike =
                reads.iter().take_while(|read| Arc::ptr_eq(&read.file.file, &first.file.file)).count();
            let alike: Vec<_> = reads.drain(..alike.min(MOST_TOGETHER)).collect();
            self.read_of_one(alike);
        }
    }

    /// Serves reads of one file.
    #[inline(never)] // Keep the buffer off the event loop's stack, which is never unwound and so never wiped.
    fn read_of_one<R: ReadReply>(&self, mut reads: Vec<QueuedRead<R>>) {
        if let [_] = &reads[..] {
            let Some(QueuedRead { file, offset, len, reply, page: _page, pass: _pass }) = reads.pop() else {
                return;
            };
            return self.read_alone(&file, offset, len, false, reply);
        }
        let mut buffer = [0; MOST_TOGETHER * SMALL];
        let mut parts = buffer.chunks_mut(SMALL);
        let mut small: Vec<SmallRead> = reads
            .iter()
            .zip(&mut parts)
            .map(|(read, part)| SmallRead { offset: read.offset, out: &mut part[..read.len] })
            .collect();
        let file = reads[0].file.file.file.clone();
        let number = reads[0].file.node.number;
        let (replies, _inside): (Vec<_>, Vec<_>) =
            reads.into_iter().map(|read| (read.reply, (read.page, read.pass))).unzip();
        let done = self.answer(Activity::Read, number, |_| Ok(file.read_together(&mut small)));
        // The time of all reads is counted with the first.
        replies.iter().skip(1).for_each(|_| metrics::count(Activity::Read, 0, Duration::ZERO));
        match done {
            Ok(done) => {
                for ((reply, small), result) in replies.into_iter().zip(small).zip(done) {
                    self.answer_read(number, reply, result.map(|len| &small.out[..len]));
                }
            }
            Err(e) => replies.into_iter().for_each(|reply| reply.answer(Err(e))),
        }
        buffer.zeroize(); // Before the passes are dropped, because the vault may be locked after that.
    }

    /// Serves a single read of any size. Reads that fill the page cache (`pages`) get no read-ahead from
    /// us, because the kernel has its own. If possible, they are read directly into the memory from which
    /// the kernel takes the answer.
    pub fn read_alone<R: ReadReply>(
        &self,
        file: &FileHandle,
        offset: u64,
        len: usize,
        pages: bool,
        reply: R,
    ) {
        let mut reply = Some(reply);
        let number = file.node.number;
        let read = self.answer(Activity::Read, number, |s| {
            if pages && fill(&mut reply, file, offset, len)? {
                return Ok(());
            }
            s.read_file(&file.file, offset, len, |data| {
                if let Some(reply) = reply.take() {
                    send(reply, data);
                }
            })
        });
        if let (Err(e), Some(reply)) = (read, reply) {
            reply.answer(Err(e));
        }
    }

    /// Answers a read of the node `number` with the data read, or with the error.
    pub fn answer_read<R: ReadReply>(&self, number: u64, reply: R, result: Result<&[u8]>) {
        match result {
            Ok(data) => send(reply, data),
            Err(e) => {
                if let Err(e) = self.answer(Activity::Read, number, |_| Err::<(), _>(e)) {
                    reply.answer(Err(e));
                }
            }
        }
    }
}

fn send<R: ReadReply>(reply: R, data: &[u8]) {
    metrics::bytes(Activity::Read, data.len());
    metrics::measure(Activity::Reply, data.len(), || reply.answer(Ok(data)));
}

/// Reads directly into the memory from which the kernel takes the answer. False if there is no such
/// memory.
fn fill<R: ReadReply>(reply: &mut Option<R>, file: &FileHandle, offset: u64, len: usize) -> Result<bool> {
    let Some(to) = reply else { return Ok(false) };
    let is_answered = to.fill(len, |out| {
        let read = file.file.file.read_whole_chunks(offset, out)?;
        metrics::bytes(Activity::Read, read.unwrap_or(0));
        Ok(read)
    })?;
    if is_answered {
        *reply = None;
    }
    Ok(is_answered)
}

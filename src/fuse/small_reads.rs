//! Small reads that arrive together are done as a batch: their chunks are verified side by side, which takes hardly
//! longer than one of them. The reads of a lone program never wait.
//!
//! A loop that gets a small read while the kernel has another request, and no other loop is free to take that, queues
//! the read and goes for that request. The loop that takes that request finds the read and does it first. If the kernel
//! has withdrawn the request and no loop takes it, the monitor of the loops does what is queued.

use super::{
    handles::FileHandle,
    read_queue::{MOST_TOGETHER, QueuedRead, SMALL},
    replies::Reply,
    server::{Server, Transport},
};
use crate::{
    metrics::{self, Activity},
    vault::{Result, SmallRead},
};
use fuser::ReplyData;
use std::{sync::Arc, time::Duration};
use zeroize::Zeroize;

/// Where the answer to a read goes.
pub trait ReadReply: for<'a> Reply<&'a [u8]> {
    /// Does a small read, perhaps together with others.
    fn read_small(server: &Server, read: QueuedRead<Self>)
    where
        Self: Sized;

    /// Has `fill` read `len` bytes to where the kernel takes an answer from, and answers with as many as it returns.
    /// False if they are to be answered otherwise: there is no such place, or `fill` returned `None`.
    ///
    /// # Errors
    /// What `fill` returned. Then nothing is answered.
    fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<Option<usize>>) -> Result<bool>;
}

impl ReadReply for ReplyData {
    /// The kernel takes it from anywhere.
    fn fill(&mut self, _: usize, _: impl FnOnce(&mut [u8]) -> Result<Option<usize>>) -> Result<bool> {
        Ok(false)
    }

    /// Does it, or queues it while another request waits and all loops are busy.
    fn read_small(server: &Server, read: QueuedRead<Self>) {
        if !server.queued.any() && (server.may_wait(Transport::Device) || !server.request_waits()) {
            return server.read_batch(vec![read]);
        }
        // It must be queued before the kernel is asked: the loop that takes what waits now has to find it.
        if server.queued.push(read) >= MOST_TOGETHER || !server.request_waits() {
            server.read_queued();
        }
    }
}

impl Server {
    /// Does the reads that are queued.
    pub fn read_queued(&self) {
        if self.queued.any() {
            self.read_batch(self.queued.take());
        }
    }

    /// Does small reads, those of one file side by side.
    pub fn read_batch<R: ReadReply>(&self, mut reads: Vec<QueuedRead<R>>) {
        reads.sort_by_key(|read| Arc::as_ptr(&read.file.file) as usize);
        while let Some(first) = reads.first() {
            let alike =
                reads.iter().take_while(|read| Arc::ptr_eq(&read.file.file, &first.file.file)).count();
            let alike: Vec<_> = reads.drain(..alike.min(MOST_TOGETHER)).collect();
            self.read_of_one(alike);
        }
    }

    /// Does reads of one file.
    #[inline(never)] // What it reads to is no part of an event loop's stack, which is in use for ever.
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
        // The time of all of them is counted with the first.
        replies.iter().skip(1).for_each(|_| metrics::count(Activity::Read, 0, Duration::ZERO));
        match done {
            Ok(done) => {
                for ((reply, small), result) in replies.into_iter().zip(small).zip(done) {
                    self.answer_read(number, reply, result.map(|len| &small.out[..len]));
                }
            }
            Err(e) => replies.into_iter().for_each(|reply| reply.answer(Err(e))),
        }
        buffer.zeroize(); // Before the passes are dropped: then the vault may be locked.
    }

    /// Does a read of any size by itself. The kernel reads ahead of who reads `pages` of its cache: those are read to
    /// where it takes them from, if they can be, with no read-ahead of our own.
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

    /// Answers a read of the node `number` with what was read, or why nothing was.
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

/// Reads to where the kernel takes the answer from. False if there is no such place.
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

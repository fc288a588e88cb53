//! Small reads that wait for one another are done together: their chunks are verified side by side, which takes
//! hardly longer than one of them. A lone program's never wait.
//!
//! A loop that gets a small read while the kernel has another request lays the read aside, and goes for that one. So
//! whoever takes that one finds the read: it does it too, before anything else. Should nobody take it, because
//! the kernel has withdrawn it, the watch does what lies aside.

use super::{
    aside::{Asked, MOST, SMALL},
    handles::FileHandle,
    server::Server,
};
use crate::{
    metrics::{self, Activity},
    vault::{Result, SmallRead},
};
use fuser::ReplyData;
use std::{sync::Arc, time::Duration};

impl Server {
    /// Does a small read, or lays it aside while another request waits.
    pub fn read_small(&self, read: Asked) {
        if !self.aside.any() && !self.request_waits() {
            return self.read_together(&mut vec![read]);
        }
        // It must lie there before the kernel is asked: who takes what waits now has to find it.
        if self.aside.put(read) >= MOST || !self.request_waits() {
            self.read_aside();
        }
    }

    /// Does the reads that lie aside.
    pub fn read_aside(&self) {
        if self.aside.any() {
            self.read_together(&mut self.aside.take());
        }
    }

    fn read_together(&self, reads: &mut Vec<Asked>) {
        reads.sort_by_key(|read| Arc::as_ptr(&read.file.file) as usize);
        while let Some(first) = reads.first() {
            let alike =
                reads.iter().take_while(|read| Arc::ptr_eq(&read.file.file, &first.file.file)).count();
            let alike: Vec<Asked> = reads.drain(..alike.min(MOST)).collect();
            self.read_of_one(alike);
        }
    }

    /// Does reads of one file.
    fn read_of_one(&self, mut reads: Vec<Asked>) {
        if let [_] = &reads[..] {
            let Some(Asked { file, offset, len, reply, page: _page }) = reads.pop() else { return };
            return self.read_alone(&file, offset, len, reply);
        }
        let mut buffer = [0; MOST * SMALL];
        let mut parts = buffer.chunks_mut(SMALL);
        let mut small: Vec<SmallRead> = reads
            .iter()
            .zip(&mut parts)
            .map(|(read, part)| SmallRead { offset: read.offset, out: &mut part[..read.len] })
            .collect();
        let file = reads[0].file.file.file.clone();
        let number = reads[0].file.node.number;
        let done = self.answer(Activity::Read, number, |_| Ok(file.read_together(&mut small)));
        // The time of all of them is counted with the first.
        reads.iter().skip(1).for_each(|_| metrics::count(Activity::Read, 0, Duration::ZERO));
        match done {
            Ok(done) => {
                for ((read, small), result) in reads.into_iter().zip(small).zip(done) {
                    self.answer_read(number, read.reply, result.map(|len| &small.out[..len]));
                }
            }
            Err(e) => reads.into_iter().for_each(|read| read.reply.error(e)),
        }
    }

    /// Does any read by itself.
    pub fn read_alone(&self, file: &FileHandle, offset: u64, len: usize, reply: ReplyData) {
        let mut reply = Some(reply);
        let number = file.node.number;
        let read = self.answer(Activity::Read, number, |s| {
            s.read_file(&file.file, offset, len, |data| {
                if let Some(reply) = reply.take() {
                    send(reply, data);
                }
            })
        });
        if let (Err(e), Some(reply)) = (read, reply) {
            reply.error(e);
        }
    }

    /// Answers a read of the node `number` with what was read, or why nothing was.
    pub fn answer_read(&self, number: u64, reply: ReplyData, result: Result<&[u8]>) {
        match result {
            Ok(data) => send(reply, data),
            Err(e) => {
                if let Err(e) = self.answer(Activity::Read, number, |_| Err::<(), _>(e)) {
                    reply.error(e);
                }
            }
        }
    }
}

fn send(reply: ReplyData, data: &[u8]) {
    metrics::bytes(Activity::Read, data.len());
    metrics::measure(Activity::Reply, data.len(), || reply.data(data));
}

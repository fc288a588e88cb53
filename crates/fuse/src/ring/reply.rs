//! Answers through a ring.

use super::{
    encode,
    entry::{Answered, RingEntry, RingRequest},
    mail::Mail,
};
use crate::{
    errno::{Answer, UNANSWERED},
    read_queue::QueuedRead,
    replies::{
        AttrReply, Created, FoundReply, Listing, ListingPlus, OpenReply, Place, Reply, Value, Written,
    },
    server::Server,
    small_reads::ReadReply,
};
use content::Result;
use parking_lot::Mutex;
use std::{ffi::OsStr, sync::Arc};
use vault::{Kind, StatFs};

/// Small reads received by one thread, to be served as a batch.
pub struct Reads {
    reads: Mutex<Vec<QueuedRead<RingReply>>>,
    mail: Arc<Mail>,
}

impl Reads {
    /// Creates an empty batch; the thread is told about new reads through `mail`.
    pub fn new(mail: Arc<Mail>) -> Arc<Reads> {
        Arc::new(Reads { reads: Mutex::default(), mail })
    }

    /// Takes all reads.
    pub fn take(&self) -> Vec<QueuedRead<RingReply>> {
        std::mem::take(&mut *self.reads.lock())
    }
}

/// Reply to a request of a ring. Dropping it without an answer sends EIO.
pub struct RingReply {
    entry: Arc<RingEntry>,
    reads: Arc<Reads>,
    opcode: u32,
}

impl RingReply {
    /// Creates the reply to this request. Call it once per request.
    pub fn to(request: &RingRequest, reads: Arc<Reads>) -> RingReply {
        RingReply { entry: request.entry.clone(), reads, opcode: request.header.opcode }
    }

    fn encoded<T>(self, answer: Answer<T>, encode: impl FnOnce(&T) -> Vec<u8>) {
        self.entry.answer(match answer {
            Ok(value) => Answered::Bytes(encode(&value)),
            Err(e) => Answered::Error(e.code()),
        });
    }

    fn data(self, answer: Answer<&[u8]>) {
        match answer {
            Ok(bytes) if self.entry.put(bytes, self.opcode) => {}
            Ok(_) => self.entry.answer(Answered::Error(UNANSWERED.code())),
            Err(e) => self.entry.answer(Answered::Error(e.code())),
        }
    }
}

impl Drop for RingReply {
    fn drop(&mut self) {
        self.entry.leave();
    }
}

/// Implements [`Reply`] for values that are encoded.
macro_rules! encoded {
    ($($value:ty, $encode:expr;)*) => {
        $(impl Reply<$value> for RingReply {
            fn answer(self, answer: Answer<$value>) {
                self.encoded(answer, $encode);
            }
        })*
    };
}

encoded! {
    (), |()| Vec::new();
    AttrReply, encode::told;
    FoundReply, encode::found;
    OpenReply, encode::opened;
    Created, encode::created;
    Written, |Written(bytes)| encode::count(*bytes);
    Place, |Place(offset)| encode::place(*offset);
    StatFs, encode::statfs;
}

impl Reply<&[u8]> for RingReply {
    fn answer(self, answer: Answer<&[u8]>) {
        self.data(answer);
    }
}

impl Reply<Value> for RingReply {
    fn answer(self, answer: Answer<Value>) {
        match answer {
            Ok(Value::Bytes(bytes)) => self.data(Ok(&bytes)),
            Ok(Value::Size(size)) => self.encoded(Ok(size), |size| encode::count(*size)),
            Err(e) => self.data(Err(e)),
        }
    }
}

impl ReadReply for RingReply {
    /// Queues the read for the ring's thread, which serves it together with others that have arrived.
    fn read_small(_: &Server, read: QueuedRead<Self>) {
        let reads = read.reply.reads.clone();
        reads.reads.lock().push(read);
        reads.mail.read();
    }

    fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<Option<usize>>) -> Result<bool> {
        self.entry.fill(len, self.opcode, fill)
    }
}

/// Destination of a listing.
pub struct RingListing {
    reply: RingReply,
    bytes: Vec<u8>,
    room: usize,
}

impl RingListing {
    /// Creates a listing of at most `size` bytes.
    pub fn new(reply: RingReply, size: u32) -> RingListing {
        let room = (size as usize).min(reply.entry.capacity());
        RingListing { reply, bytes: Vec::new(), room }
    }
}

impl Reply<()> for RingListing {
    fn answer(self, answer: Answer<()>) {
        self.reply.data(answer.map(|()| &*self.bytes));
    }
}

impl Listing for RingListing {
    fn add(&mut self, number: u64, next: u64, kind: Kind, name: &OsStr) -> bool {
        encode::listed(&mut self.bytes, self.room, number, next, kind, name)
    }
}

impl ListingPlus for RingListing {
    fn add(&mut self, next: u64, name: &OsStr, found: &FoundReply) -> bool {
        encode::listed_plus(&mut self.bytes, self.room, next, name, found)
    }
}

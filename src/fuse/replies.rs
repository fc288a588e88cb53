//! The answers that several requests share: an entry, attributes, a value, nothing.

use super::{
    errno::{Answer, VALUE_TOO_LARGE},
    names::Entry,
    server::Server,
};
use crate::{
    metrics::Activity,
    vault::{Result, Stat},
};
use fuser::{Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use std::sync::Arc;

/// Answers a request that returns nothing.
pub fn done(reply: ReplyEmpty, result: Answer<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

/// Answers with a value; a caller with no room wants only its size.
pub fn value(reply: ReplyXattr, room: u32, result: Answer<Vec<u8>>) {
    match result {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > room as usize => reply.error(VALUE_TOO_LARGE),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(e),
    }
}

impl Server {
    /// Answers with a node and its attributes.
    pub fn reply_entry(&self, reply: ReplyEntry, result: Answer<Entry>) {
        match result {
            Ok(Entry { id, stat }) => {
                let (ttl, attr) = self.tell(id.number, &stat);
                reply.entry_with_ttls(&ttl, &self.name_ttl(), &attr, Generation(id.generation));
            }
            Err(e) => reply.error(e),
        }
    }

    /// Answers with a node's attributes.
    pub fn reply_attr(&self, reply: ReplyAttr, number: u64, result: Answer<Stat>) {
        match result {
            Ok(stat) => {
                let (ttl, attr) = self.tell(number, &stat);
                reply.attr(&ttl, &attr);
            }
            Err(e) => reply.error(e),
        }
    }

    /// Serves a request on a name that returns an entry.
    pub fn answer_entry(
        &self,
        request: &Request,
        activity: Activity,
        node: INodeNo,
        reply: ReplyEntry,
        work: impl FnOnce(&Self) -> Result<Entry>,
    ) {
        let _busy = self.busy();
        self.reply_entry(reply, self.named(request.uid(), activity, node.0, work));
    }

    /// Serves a request on a name that returns nothing.
    pub fn answer_done(
        &self,
        request: &Request,
        activity: Activity,
        node: INodeNo,
        reply: ReplyEmpty,
        work: impl FnOnce(&Self) -> Result<()>,
    ) {
        let _busy = self.busy();
        done(reply, self.named(request.uid(), activity, node.0, work));
    }

    /// Serves a request on a handle that may take long and returns nothing.
    pub fn answer_done_slowly(
        self: &Arc<Self>,
        activity: Activity,
        node: INodeNo,
        reply: ReplyEmpty,
        work: impl FnOnce(&Self) -> Result<()> + Send + 'static,
    ) {
        let _busy = self.busy();
        self.slowly(move |s| done(reply, s.answer(activity, node.0, work)));
    }
}

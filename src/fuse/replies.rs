//! The answers that several requests share: an entry, attributes, a value, nothing.

use super::{
    errno::{Answer, VALUE_TOO_LARGE},
    names::Entry,
    server::Server,
};
use crate::{
    format::acl::Acl,
    metrics::Activity,
    vault::{NewNode, Result, Stat},
};
use fuser::{Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use std::sync::Arc;

/// What a request wants to make.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub(super) mode: u32,
    pub(super) umask: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Wanted {
    /// A node with this mode, by the process that asks.
    pub fn by(request: &Request, mode: u32, umask: u32) -> Self {
        Wanted { mode: mode & 0o7777, umask, uid: request.uid(), gid: request.gid() }
    }

    /// The node in a directory with this default ACL, if it has one: that takes the place of the umask.
    pub fn under(self, default_acl: Option<&Acl>) -> NewNode<'_> {
        let Wanted { mode, umask, uid, gid } = self;
        NewNode { mode: if default_acl.is_some() { mode } else { mode & !umask }, uid, gid, default_acl }
    }
}

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

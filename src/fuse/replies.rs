//! The answers that several requests share: an entry, attributes, a value, nothing.

use super::{
    errno::{Answer, VALUE_TOO_LARGE},
    names::Entry,
    server::Server,
};
use crate::vault::Stat;
use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};

/// The value of a result; of an error, an answer, with which the function returns.
macro_rules! or_answer {
    ($reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(e) => return $reply.error(e),
        }
    };
}
pub(super) use or_answer;

/// Does `$body` with the `$server` and what counts it as busy: at once, or when the vault is unlocked. The `$owned`
/// parts of the request are kept so long.
macro_rules! when_open {
    ($this:expr, $way:ident, $caller:expr, $reply:ident, [$($owned:ident),*], |$server:ident, $serving:ident| $body:block) => {
        match $this.$way() {
            Some($serving) => {
                let $server = &$this;
                $body
            }
            None => {
                $(let $owned = $owned.to_owned();)*
                $this.hold($caller, move |$server, serving| {
                    $(let $owned = &*$owned;)*
                    let $serving = or_answer!($reply, serving);
                    $body
                })
            }
        }
    };
}
pub(super) use when_open;

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
}

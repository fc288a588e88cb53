//! Answers through `/dev/fuse`.

use super::{
    attr,
    errno::Answer,
    replies::{
        AttrReply, Created, FoundReply, Listing, ListingPlus, OpenReply, Place, Reply, Value, Written,
    },
};
use fuser::{
    FileAttr, FileHandle, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use std::ffi::OsStr;
use vault::{Kind, StatFs};

/// Implements [`Reply`] for a fuser reply. `$send` sends the value; errors are sent the same way for all
/// of them.
macro_rules! reply {
    ($reply:ty, $value:ty, |$to:ident, $answer:pat_param| $send:expr) => {
        impl Reply<$value> for $reply {
            fn answer(self, answer: Answer<$value>) {
                let $to = self;
                match answer {
                    Ok($answer) => $send,
                    Err(e) => $to.error(e),
                }
            }
        }
    };
}

reply!(ReplyEmpty, (), |to, ()| to.ok());
reply!(ReplyDirectory, (), |to, ()| to.ok());
reply!(ReplyDirectoryPlus, (), |to, ()| to.ok());
reply!(ReplyData, &[u8], |to, bytes| to.data(bytes));
reply!(ReplyAttr, AttrReply, |to, told| to.attr(&told.ttl, &file_attr(&told)));
reply!(ReplyEntry, FoundReply, |to, FoundReply { told, generation, name_ttl }| {
    to.entry_with_ttls(&told.ttl, &name_ttl, &file_attr(&told), Generation(generation));
});
reply!(ReplyOpen, OpenReply, |to, OpenReply { handle, mode }| to.opened(FileHandle(handle), mode));
reply!(ReplyCreate, Created, |to, Created { found, opened }| {
    let (generation, handle) = (Generation(found.generation), FileHandle(opened.handle));
    to.created(&found.told.ttl, &file_attr(&found.told), generation, handle, opened.mode);
});
reply!(ReplyWrite, Written, |to, Written(bytes)| to.written(bytes));
reply!(ReplyLseek, Place, |to, Place(offset)| to.offset(offset));
reply!(ReplyXattr, Value, |to, value| match value {
    Value::Size(size) => to.size(size),
    Value::Bytes(bytes) => to.data(&bytes),
});
reply!(ReplyStatfs, StatFs, |to, s| {
    to.statfs(s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.frsize);
});

impl Listing for ReplyDirectory {
    fn add(&mut self, number: u64, next: u64, kind: Kind, name: &OsStr) -> bool {
        ReplyDirectory::add(self, INodeNo(number), next, attr::file_type(kind), name)
    }
}

impl ListingPlus for ReplyDirectoryPlus {
    fn add(&mut self, next: u64, name: &OsStr, found: &FoundReply) -> bool {
        let FoundReply { told, generation, name_ttl } = found;
        let (ttl, generation) = (told.ttl.min(*name_ttl), Generation(*generation));
        ReplyDirectoryPlus::add(self, INodeNo(told.number), next, name, &ttl, &file_attr(told), generation)
    }
}

fn file_attr(told: &AttrReply) -> FileAttr {
    attr::file_attr(told.number, &told.stat)
}

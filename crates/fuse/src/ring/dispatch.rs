//! Dispatch of an operation to [`Requests`].

use super::{
    parse::{Operation, ParseFault, RequestHeader},
    reply::{RingListing, RingReply},
};
use crate::{
    caller::Caller,
    errno::{MALFORMED_REQUEST, UNSUPPORTED_REQUEST},
    replies::Reply,
    requests::{Reading, Requests, Writing},
    wanted::Wanted,
};
use fuser::{AccessFlags, OpenFlags, RenameFlags, WriteFlags};

/// Size in bytes above which a read or a write is large.
const LARGE: usize = 64 << 10;

/// Whether an operation may take long, by its nature or because of its size. On the ring's thread it would
/// block other requests of the same processor. The program would also wait for a large one, although it
/// could copy data meanwhile. In a `shared` vault an operation may have to wait for another machine.
pub fn takes_long(operation: &Operation, shared: bool) -> bool {
    use Operation as Op;
    match operation {
        Op::Read { size, .. } => *size as usize > LARGE,
        _ if shared => true,
        Op::Write { data, .. } => data.len() > LARGE,
        Op::Setattr { changes, .. } => changes.size.is_some(),
        Op::Fsync { .. } | Op::Fsyncdir { .. } | Op::Fallocate { .. } | Op::Copy { .. } => true,
        Op::Lookup { .. }
        | Op::Getattr { .. }
        | Op::Readlink
        | Op::Symlink { .. }
        | Op::Mknod { .. }
        | Op::Mkdir { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Open { .. }
        | Op::Statfs
        | Op::Release { .. }
        | Op::Setxattr { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Removexattr { .. }
        | Op::Flush { .. }
        | Op::Opendir
        | Op::Readdir { .. }
        | Op::Readdirplus { .. }
        | Op::Releasedir { .. }
        | Op::Access { .. }
        | Op::Create { .. }
        | Op::Tmpfile { .. }
        | Op::Destroy
        | Op::Lseek { .. } => false,
    }
}

/// Serves an operation and answers it.
pub fn serve(requests: &Requests, header: &RequestHeader, operation: Operation, reply: RingReply) {
    use Operation as Op;
    let RequestHeader { number, user, group, thread, .. } = *header;
    let caller = Caller { user, group, thread };
    match operation {
        Op::Lookup { name } => requests.lookup(caller, number, name, reply),
        Op::Getattr { handle } => requests.getattr(caller, number, handle, reply),
        Op::Setattr { handle, changes } => requests.setattr(caller, number, handle, changes, reply),
        Op::Readlink => requests.readlink(caller, number, reply),
        Op::Symlink { name, target } => requests.symlink(caller, number, name, target, reply),
        Op::Mknod { name, mode, rdev, umask } => {
            requests.mknod(caller, number, name, Wanted::by(caller, mode, umask), (mode, rdev), reply);
        }
        Op::Mkdir { name, mode, umask } => {
            requests.mkdir(caller, number, name, Wanted::by(caller, mode, umask), reply);
        }
        Op::Unlink { name } => requests.unlink(caller, number, name, reply),
        Op::Rmdir { name } => requests.rmdir(caller, number, name, reply),
        Op::Rename { name, to, new_name, flags } => {
            let flags = RenameFlags::from_bits_retain(flags);
            requests.rename(caller, (number, name), (to, new_name), flags, reply);
        }
        // The request's node is the directory of the new name.
        Op::Link { number: linked, name } => requests.link(caller, linked, number, name, reply),
        Op::Open { flags } => requests.open(caller, number, OpenFlags(flags), reply),
        Op::Read { handle, offset, size, page } => {
            requests.read(caller, Reading { number, handle, offset, size, page }, reply);
        }
        Op::Write { handle, offset, data, flags, open } => {
            let (flags, open) = (WriteFlags::from_bits_retain(flags), OpenFlags(open));
            requests.write(caller, Writing { number, handle, offset, data, flags, open }, reply);
        }
        Op::Statfs => requests.statfs(number, reply),
        Op::Release { handle } => requests.release(number, handle, reply),
        Op::Fsync { handle, data } => requests.fsync(caller, number, (handle, data), reply),
        Op::Setxattr { name, value, flags } => requests.setxattr(caller, number, name, value, flags, reply),
        Op::Getxattr { name, room } => requests.getxattr(caller, number, name, room, reply),
        Op::Listxattr { room } => requests.listxattr(caller, number, room, reply),
        Op::Removexattr { name } => requests.removexattr(caller, number, name, reply),
        Op::Flush { handle } => requests.flush(number, handle, reply),
        Op::Opendir => requests.opendir(caller, number, reply),
        Op::Readdir { handle, offset, size } => {
            requests.readdir(caller, number, handle, offset, RingListing::new(reply, size));
        }
        Op::Readdirplus { handle, offset, size } => {
            requests.readdirplus(caller, number, handle, offset, RingListing::new(reply, size));
        }
        Op::Releasedir { handle } => requests.releasedir(number, handle, reply),
        Op::Fsyncdir { handle } => requests.fsyncdir(caller, number, handle, reply),
        Op::Access { mask } => requests.access(caller, number, AccessFlags::from_bits_retain(mask), reply),
        Op::Create { name, mode, umask, flags } => {
            let new = Wanted::by(caller, mode, umask);
            requests.create(caller, number, name, new, OpenFlags(flags), reply);
        }
        Op::Tmpfile { mode, umask, flags } => {
            requests.tmpfile(caller, number, Wanted::by(caller, mode, umask), OpenFlags(flags), reply);
        }
        Op::Destroy => Reply::<()>::answer(reply, Ok(())),
        Op::Fallocate { handle, offset, len, mode } => {
            requests.fallocate(caller, (number, handle), (offset, len), mode, reply);
        }
        Op::Lseek { handle, offset, whence } => {
            requests.lseek(caller, (number, handle), offset, whence, reply);
        }
        Op::Copy { from, number: written, to, len } => {
            requests.copy(caller, written, from, to, len, reply);
        }
    }
}

/// Answers a request that cannot be served.
pub fn refuse(fault: ParseFault, reply: RingReply) {
    let errno = match fault {
        ParseFault::Unknown => UNSUPPORTED_REQUEST,
        ParseFault::Malformed => MALFORMED_REQUEST,
    };
    Reply::<()>::answer(reply, Err(errno));
}

//! Requests on open directories.

use super::{
    attr, errno,
    handles::DirHandle,
    inodes::{Id, ROOT},
    server::Server,
};
use crate::vault::{DirEntry, Kind, Result, Stat, Target};
use fuser::{FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parking_lot::Mutex;
use std::{ffi::OsStr, sync::Arc, time::Duration};

/// "." and "..", which come before what is listed.
const DOTS: u64 = 2;

/// One line of a listing: what the kernel asks for again by the offset after it.
enum Line<'a> {
    Dot(u64, &'static str),
    Entry(&'a DirEntry),
}

/// A directory as it was when it was last read from the start.
pub struct Listing {
    handle: Arc<DirHandle>,
    entries: Arc<Vec<DirEntry>>,
    parent: u64,
}

impl Listing {
    /// The lines from an offset on, each with the offset after it.
    fn from(&self, offset: u64) -> impl Iterator<Item = (u64, Line<'_>)> {
        let dots = [Line::Dot(self.handle.node, "."), Line::Dot(self.parent, "..")];
        let skip = usize::try_from(offset.saturating_sub(DOTS)).unwrap_or(usize::MAX);
        let entries = self.entries.iter().skip(skip).map(Line::Entry);
        dots.into_iter().skip(offset.min(DOTS) as usize).chain(entries).zip(offset + 1..).map(|(l, o)| (o, l))
    }
}

impl Server {
    /// Opens a directory.
    pub fn opendir(&self, number: u64) -> Result<u64> {
        let dir = self.dir(number)?;
        Ok(self.handles.add_dir(DirHandle { node: number, dir, listing: Mutex::new(None) }))
    }

    /// What is in an open directory; read anew when it is read from the start.
    pub fn listing(&self, handle: u64, offset: u64) -> Result<Listing> {
        let handle = self.handles.dir(handle)?;
        let mut kept = handle.listing.lock();
        let entries = match &*kept {
            Some(entries) if offset > 0 => entries.clone(),
            _ => kept.insert(Arc::new(self.vault.list(&handle.dir)?)).clone(),
        };
        drop(kept);
        let parent = self.parent_of(handle.node);
        Ok(Listing { handle, entries, parent })
    }

    /// Makes a directory's entries durable.
    pub fn fsyncdir(&self, handle: u64) -> Result<()> {
        let handle = self.handles.dir(handle)?;
        if self.read_only { Ok(()) } else { self.vault.sync_dir(&handle.dir) }
    }

    /// Fills a reply with names and types.
    pub fn fill(&self, listing: &Listing, offset: u64, reply: &mut ReplyDirectory) {
        let device = self.inodes.get(listing.handle.node).map_or(0, |n| n.key.0);
        for (next, line) in listing.from(offset) {
            let full = match line {
                Line::Dot(number, name) => reply.add(INodeNo(number), next, FileType::Directory, name),
                Line::Entry(e) => {
                    let number = INodeNo(self.inodes.number_of((device, e.ino)));
                    reply.add(number, next, attr::file_type(e.kind), &e.name)
                }
            };
            if full {
                break;
            }
        }
    }

    /// Fills a reply with names and attributes; every entry in it is a lookup.
    pub fn fill_plus(&self, listing: &Listing, offset: u64, reply: &mut ReplyDirectoryPlus) {
        for (next, line) in listing.from(offset) {
            let full = match line {
                // The kernel links neither of them and counts no lookup.
                Line::Dot(number, name) => {
                    let attr = attr::file_attr(number, &attr::unknown(Kind::Dir, number));
                    let (number, none) = (INodeNo(number), fuser::Generation(0));
                    reply.add(number, next, OsStr::new(name), &Duration::ZERO, &attr, none)
                }
                Line::Entry(e) => self.add_plus(listing, e, next, reply),
            };
            if full {
                break;
            }
        }
    }

    /// Adds an entry with its attributes; true if there is no more room.
    fn add_plus(&self, listing: &Listing, e: &DirEntry, next: u64, reply: &mut ReplyDirectoryPlus) -> bool {
        let dir = &listing.handle.dir;
        let (stat, ttl) = match self.vault.stat(Target::Entry(dir, &e.stored)) {
            Ok(stat) => (stat, self.name_ttl().min(self.attr_ttl(&stat))),
            Err(error) if errno::is_no_entry(&error) => return false,
            // Listed all the same: whoever wants more than its name asks again and meets the error.
            Err(_) => {
                let device = self.inodes.get(listing.handle.node).map_or(0, |n| n.key.0);
                (Stat { dev: device, ..attr::unknown(e.kind, e.ino) }, Duration::ZERO)
            }
        };
        let id = self.found(listing.handle.node, e.stored.clone(), &stat);
        let Id { number, generation } = id;
        let attr = attr::file_attr(number, &stat);
        let full = reply.add(INodeNo(number), next, &e.name, &ttl, &attr, fuser::Generation(generation));
        if full {
            self.inodes.forget(number, 1);
        }
        full
    }

    fn parent_of(&self, number: u64) -> u64 {
        let node = self.inodes.get(number).ok();
        node.and_then(|n| n.names.read().any().map(|name| name.parent)).unwrap_or(ROOT)
    }
}

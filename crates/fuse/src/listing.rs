//! Requests on open directories.

use super::{
    attr, errno,
    handles::DirHandle,
    inodes::{Id, ROOT},
    replies::{AttrReply, FoundReply, Listing, ListingPlus},
    server::Server,
};
use content::Result;
use parking_lot::Mutex;
use std::time::Duration;
use vault::{DirEntry, Kind, Stat, Target};

/// Whether a reply has no more room.
struct Full(bool);

impl Server {
    /// Opens a directory and returns a handle.
    pub fn opendir(&self, number: u64) -> Result<u64> {
        let dir = self.dir(number)?;
        Ok(self.handles.add_dir(DirHandle { node: number, dir, listing: Mutex::new(None) }))
    }

    /// Makes a directory's entries durable.
    pub fn fsyncdir(&self, handle: u64) -> Result<()> {
        let handle = self.handles.dir(handle)?;
        if self.read_only { Ok(()) } else { self.vault.sync_dir(&handle.dir) }
    }

    /// Fills a reply with names and types, starting at an offset.
    pub fn fill(&self, handle: u64, offset: u64, reply: &mut impl Listing) -> Result<()> {
        let handle = self.handles.dir(handle)?;
        let device = self.device_of(handle.node);
        self.each(&handle, offset, |e| {
            let number = match e.is_dots() {
                true => self.number_of_dots(handle.node, e),
                false => self.inodes.number_of((device, e.ino)),
            };
            Some(Full(reply.add(number, e.next, e.kind, &e.name)))
        })
    }

    /// Fills a reply with names and attributes, starting at an offset. Every entry in the reply counts as
    /// a lookup.
    pub fn fill_plus(&self, handle: u64, offset: u64, reply: &mut impl ListingPlus) -> Result<()> {
        let handle = self.handles.dir(handle)?;
        self.each(&handle, offset, |e| {
            if !e.is_dots() {
                return self.add_plus(&handle, e, reply);
            }
            // The kernel does not instantiate `.` and `..`, and counts no lookup for them.
            let number = self.number_of_dots(handle.node, e);
            let told = AttrReply { number, stat: attr::unknown(Kind::Dir, number), ttl: Duration::ZERO };
            let found = FoundReply { told, generation: 0, name_ttl: Duration::ZERO };
            Some(Full(reply.add(e.next, &e.name, &found)))
        })
    }

    /// Passes the entries from an offset on to `add` until the reply is full or one batch of the listing
    /// is done; the kernel asks again for the rest. An empty reply means the end of the directory, so
    /// entries that have vanished since the listing (`None`) do not count.
    fn each(
        &self,
        handle: &DirHandle,
        mut offset: u64,
        mut add: impl FnMut(&DirEntry) -> Option<Full>,
    ) -> Result<()> {
        let mut kept = handle.listing.lock();
        let listing = match &mut *kept {
            Some(listing) => listing,
            none => none.insert(self.vault.read_dir(handle.dir.clone())?),
        };
        loop {
            let entries = self.vault.entries(listing, offset)?;
            let Some(last) = entries.last() else { return Ok(()) };
            offset = last.next;
            let mut some = false;
            for entry in entries {
                match add(entry) {
                    Some(Full(true)) => return Ok(()),
                    Some(Full(false)) => some = true,
                    None => {}
                }
            }
            if some {
                return Ok(());
            }
        }
    }

    /// Adds an entry with its attributes, unless it has vanished.
    fn add_plus(&self, handle: &DirHandle, e: &DirEntry, reply: &mut impl ListingPlus) -> Option<Full> {
        let (stat, name_ttl) = match self.vault.stat(Target::Entry(&handle.dir, &e.stored)) {
            Ok(stat) => (stat, self.name_ttl()),
            Err(error) if errno::is_no_entry(&error) => return None,
            // List it anyway: a program that wants more than its name asks again and gets the error.
            Err(_) => {
                let device = self.device_of(handle.node);
                (Stat { dev: device, ..attr::unknown(e.kind, e.ino) }, Duration::ZERO)
            }
        };
        let Id { number, generation } = self.found(handle.node, &handle.dir, e.stored.clone(), &stat)?;
        let found = FoundReply { told: self.tell(number, &stat), generation, name_ttl };
        let full = reply.add(e.next, &e.name, &found);
        if full {
            self.inodes.forget(number, 1);
        }
        Some(Full(full))
    }

    fn device_of(&self, number: u64) -> u64 {
        self.inodes.get(number).map_or(0, |node| node.key.0)
    }

    fn number_of_dots(&self, number: u64, entry: &DirEntry) -> u64 {
        if entry.name == "." { number } else { self.parent_of(number) }
    }

    fn parent_of(&self, number: u64) -> u64 {
        let node = self.inodes.get(number).ok();
        node.and_then(|n| n.names.read().any().map(|name| name.parent)).unwrap_or(ROOT)
    }
}

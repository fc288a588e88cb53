//! Recording a vault's current state as the new baseline.

use super::{
    Anchor, Anew, ROOT,
    database::{DirState, Writer},
    entry::AnchoredIdentity,
};
use crate::{
    Dir, Vault,
    descent::{Visitor, descend},
};
use content::{Error, Result};
use std::{
    ffi::OsString,
    io,
    sync::{Arc, atomic::Ordering},
};

/// A walk through the vault that records it.
struct Taking<'a, 'w> {
    vault: &'a Vault,
    anchor: &'a Anchor,
    writer: &'a mut Writer<'w>,
    /// Called for each node. Returns whether to continue.
    progress: &'a mut dyn FnMut() -> bool,
}

impl Vault {
    /// Whether the vault was opened with an anchor that has not recorded it yet.
    pub fn lacks_anchor(&self) -> bool {
        self.anchor.as_ref().is_some_and(|anchor| !anchor.is_made())
    }

    /// Records the vault's current state as the anchor's new baseline, replacing everything recorded
    /// before. The anchor must have been opened for that. Nobody may use the vault meanwhile. `progress`
    /// is called for each entry, and returns whether to continue.
    ///
    /// # Errors
    /// The store's, and the anchor's, which then keeps its previous state; `Interrupted` if `progress`
    /// returns false.
    pub fn take_into_anchor(&self, progress: &mut dyn FnMut() -> bool) -> Result<()> {
        let Some(anchor) = &self.anchor else { return Ok(()) };
        let Some(Anew { keys, about }) = anchor.anew.lock().take() else { return Ok(()) };
        let before = anchor.keys.write().replace(keys);
        let taken = anchor.database.write(|writer| {
            writer.clear()?;
            about.iter().try_for_each(|(what, value)| writer.set_about(what, value))?;
            if let Some(id) = self.root.id {
                writer.set_about(ROOT, &id.0)?;
            }
            descend(&mut Taking { vault: self, anchor, writer, progress }, &self.root)?;
            // The vault must be durable before the anchor trusts it.
            self.root.store.sync_all().map(drop)
        });
        match taken {
            Ok(()) => anchor.made.store(true, Ordering::Relaxed),
            Err(_) => *anchor.keys.write() = before,
        }
        Ok(taken?)
    }
}

impl Visitor for Taking<'_, '_> {
    type Stop = io::Error;

    fn visit(&mut self, dir: &Arc<Dir>) -> io::Result<Vec<OsString>> {
        let mut inner = Vec::new();
        let Some(id) = dir.id else { return Ok(inner) };
        self.writer.set_directory(&id, DirState::Known)?;
        for (name, stored) in self.vault.entries_of(dir)? {
            if !(self.progress)() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let (mut bound, vault) = (None, self.vault);
            let identity = vault.identity_at(self.anchor, dir, &stored, &mut |stored| {
                let node = dir.store.node(&stored.0)?;
                bound = vault.newest_record(&node, false)?;
                // If the file later gets an identity through another of its names, it would no longer
                // match "empty" here.
                let shared = bound.is_none() && node.stat()?.st_nlink > 1;
                Ok(if shared {
                    AnchoredIdentity::Any
                } else {
                    AnchoredIdentity::File(bound.map(|bound| bound.key.salt))
                })
            })?;
            if let Some(bound) = bound {
                self.writer.raise(&bound)?;
            }
            self.writer.set_name(&self.anchor.keys()?.seal(&id, &name), identity.as_ref())?;
            if let Some(AnchoredIdentity::Dir(_)) = identity {
                inner.push(stored.0);
            }
        }
        Ok(inner)
    }

    fn open(&mut self, dir: &Arc<Dir>, name: OsString) -> io::Result<Option<Arc<Dir>>> {
        match self.vault.with_id(dir.store.open_dir(&name)?) {
            Ok(inner) => Ok(Some(Arc::new(inner))),
            Err(Error::Damaged(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn lost(&mut self, _: &Arc<Dir>, error: io::Error) -> io::Result<()> {
        Err(error)
    }
}

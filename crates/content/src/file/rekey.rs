//! Rewrites a file under another key in place, so that the inode keeps its names, handles and attributes.
//!
//! The new form is first written to a separate file and made durable, before anything of the old form is
//! overwritten. Its records are copied first. From then on they say that the new form counts, and
//! `finish` copies the rest, now or after a crash. Then the separate file is removed durably. It counts
//! only until the first record written after it; `is_unfinished` decides that.

use super::{
    File,
    segments::{Segment, each_segment},
};
use crate::{
    commit::Committer,
    context::Context,
    error::{Damage, Result},
    file_core::FileCore,
    flush::Flusher,
    keys::ContentKeys,
    record::{FileIdentity, OnDisk},
    recover::{CrashRecovery, Header},
    rewrites::{Rewrite, Rewrites, Sectors},
    rules::{Rule, holds},
    state::{Fault, State},
};
use format::{
    record::{RECORD, Record, RecordError},
    tree::Digest,
};
use std::{io, ops::Range, sync::Arc};
use store::BackingFile;

/// Bytes of both records.
const HEADER: usize = 2 * RECORD;
/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// Rewrites a file under the vault's present key.
#[derive(Clone, Copy)]
pub(super) struct Rekeyer<'a> {
    core: &'a Arc<FileCore>,
}

impl<'a> Rekeyer<'a> {
    pub(super) fn of(core: &'a Arc<FileCore>) -> Self {
        Rekeyer { core }
    }

    fn recovery(&self) -> CrashRecovery<'a> {
        CrashRecovery::of(&self.core.backing)
    }

    fn committer(&self) -> Committer<'a> {
        Committer::of(&self.core.backing)
    }

    fn flusher(&self) -> Flusher<'a> {
        Flusher::of(self.core)
    }

    /// Puts the file under the present key before a change: nothing may be written under the former key,
    /// which others may know.
    ///
    /// # Errors
    /// As `rekey`.
    pub(super) fn renew(&self, st: &mut State) -> Result<()> {
        let to_go = |identity: &Arc<FileIdentity>| self.core.backing.context.keys.are_to_go(&identity.id);
        if st.is_clean() && st.stored.identity.as_ref().is_some_and(to_go) {
            self.rekey(st, &|| true)?;
        }
        Ok(())
    }

    /// Rewrites the file under the present key, if it is under a former one. Returns whether it was.
    pub(super) fn rekey(&self, st: &mut State, go_on: &dyn Fn() -> bool) -> Result<bool> {
        let Some(rewrites) = self.core.backing.context.rewrites.as_deref().filter(|_| self.has_former(st))
        else {
            return Ok(false);
        };
        self.committer().begin_change(st)?;
        if !st.is_clean() {
            self.flusher().flush_all(st)?;
            self.committer().commit(st)?;
        }
        let Some(identity) = st.stored.identity.clone() else { return Ok(false) };
        if st.stored.records.on_disk == OnDisk::Nothing {
            st.stored.identity = None; // A new salt is drawn with the first record.
            return Ok(true);
        }
        st.remember_mtime(&*self.core.backing.store)?;
        let rewrite = rewrites.begin()?;
        let known = (st.stored.tree.size(), st.stored.tree.root());
        // From here on, only the store determines the file's state.
        st.fault = Some(Fault::Broken);
        let made = self.make_new_form(&rewrite, rewrites, identity.id.salt, known, go_on);
        if made.is_ok() {
            put_in_place(&*rewrite.store, &*self.core.backing.store)?;
            st.restore_mtime(&*self.core.backing.store);
        }
        let removed = remove(rewrites, &rewrite);
        self.read_anew(st)?;
        if made.is_err() && (st.stored.tree.size(), st.stored.tree.root()) != known {
            st.fault = Some(Fault::Broken); // The stored file was replaced by one never checked against the list.
        }
        made?;
        st.stored.records.written = true; // Written and synced by `put_in_place`.
        st.stored.durable = st.stored.records.newest_bound();
        removed?;
        Ok(true)
    }

    pub(super) fn has_former(&self, st: &State) -> bool {
        st.stored
            .identity
            .as_ref()
            .is_some_and(|identity| self.core.backing.context.keys.are_former(&identity.id))
    }

    /// Writes the content, which is in the store, durably to a separate file with a clean record.
    fn make_new_form(
        &self,
        rewrite: &Rewrite,
        rewrites: &dyn Rewrites,
        salt: [u8; 32],
        known: (u64, Digest),
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let old = Arc::new(File::over(self.core.backing.store.clone(), self.core.backing.context.clone()));
        {
            let mut st = old.core.state.write();
            let header = Header::read(&*self.core.backing.store)?;
            CrashRecovery::of(&old.core.backing).load(&mut st, self.core.backing.store.len()?, &header)?;
            // A holder of the former key may have written another version meanwhile.
            if (st.stored.tree.size(), st.stored.tree.root()) != known {
                return Err(
                    Damage { what: "commit record".into(), reason: "is not that which was read" }.into()
                );
            }
        }
        let new = File::fresh(rewrite.store.clone(), self.core.backing.context.clone());
        new.core.state.write().stored.identity =
            Some(FileIdentity::new(|| self.core.backing.context.keys.of_new(salt)));
        each_segment(&old, &mut |segment| match segment {
            _ if !go_on() => Err(io::Error::from_raw_os_error(libc::EINTR)),
            Segment::Data(at, bytes) => new.write(at, bytes).map_err(io::Error::other),
            Segment::Damaged(_, reason) => Err(io::Error::other(reason)),
        })?;
        new.truncate(old.size())?;
        new.salt(true)?;
        make_clean(&new)?;
        let (seconds, nanoseconds) = self.core.backing.store.mtime()?;
        rewrite.store.set_mtime(seconds, nanoseconds)?;
        if holds(Rule::NewFormDurable) {
            rewrite.store.sync_data()?;
            rewrites.sync()?;
        }
        Ok(())
    }

    /// Discards the state and reads it again from the store. Nothing may be waiting to be written.
    fn read_anew(&self, st: &mut State) -> Result<()> {
        let known = std::mem::replace(st, State::never_committed(&self.core.backing.context));
        st.fault = Some(Fault::Broken);
        let header = Header::read(&*self.core.backing.store)?;
        self.recovery().load_header(st, self.core.backing.store.len()?, &header)?;
        (st.times, st.fault) = (known.times, None);
        Ok(())
    }
}

/// Writes the clean record. It need not be the last write to the store, because the whole file is made
/// durable before it counts.
fn make_clean(file: &File) -> Result<()> {
    let step = file.cleaner().flush()?;
    if file.cleaner().settle(step)? {
        file.cleaner().finish(step)?;
    }
    Ok(())
}

impl Context {
    /// The new form that must replace a file with these records before it is used, if a crash interrupted
    /// that.
    ///
    /// # Errors
    /// The store's.
    pub fn unfinished_rewrite(&self, stored: &Sectors) -> io::Result<Option<Rewrite>> {
        match &self.rewrites {
            Some(rewrites) => rewrites.left(&|new| is_unfinished(&self.keys, new, stored)),
            None => Ok(None),
        }
    }
}

/// Whether the file with the sectors `stored` is being replaced by the form with the sectors `new`.
///
/// The clean record of the new form is in both of its sectors, and replaces the sectors of the old form
/// one by one. Until that is done, the other sector is still that of the old form: under a former key, or
/// never written. Any other record of the present key was written later, to a file that was whole, and
/// means that the new form no longer counts.
fn is_unfinished(keys: &ContentKeys, new: &Sectors, stored: &Sectors) -> bool {
    let is_present = |sector| Record::peek_key(sector).is_ok_and(|key| !keys.are_former(&key));
    let is_old = |sector| match Record::peek_key(sector) {
        Ok(key) => keys.are_former(&key),
        Err(RecordError::Empty) => true,
        Err(RecordError::Malformed | RecordError::Forged) => false,
    };
    let [record, copy] = new;
    let newer = |sector| holds(Rule::NoNewerRecord) && sector != record && !is_old(sector);
    record == copy && is_present(record) && stored.contains(record) && !stored.iter().any(newer)
}

/// Removes a new form durably. If it reappeared, it would be put in place again, with outdated file
/// times.
fn remove(rewrites: &dyn Rewrites, rewrite: &Rewrite) -> io::Result<()> {
    rewrites.remove(rewrite)?;
    if holds(Rule::RemovalDurable) { rewrites.sync() } else { Ok(()) }
}

/// Completes the replacement of a file, whose header was just read, by its new form, if that was begun.
/// Returns the store that then has the content: the file, or the new form if nothing may be written.
/// `None` if there was nothing to do.
///
/// # Errors
/// The store's; the file is then neither completely old nor completely new.
pub(super) fn finish(
    store: &Arc<dyn BackingFile>,
    header: &Header,
    context: &Context,
) -> Result<Option<Arc<dyn BackingFile>>> {
    let Some(rewrites) = context.rewrites.as_deref() else { return Ok(None) };
    let Some(rewrite) = context.unfinished_rewrite(&header.records())? else { return Ok(None) };
    if context.read_only {
        return Ok(Some(rewrite.store));
    }
    put_in_place(&*rewrite.store, &**store)?;
    let (seconds, nanoseconds) = rewrite.store.mtime()?;
    store.set_mtime(seconds, nanoseconds)?;
    remove(rewrites, &rewrite)?;
    Ok(Some(store.clone()))
}

/// Durably copies `new` over `old`. The records are copied first, and are durable before anything else
/// changes.
fn put_in_place(new: &dyn BackingFile, old: &dyn BackingFile) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    new.read_at(&mut piece[..HEADER], 0)?;
    old.write_at(&piece[..HEADER], 0)?;
    if holds(Rule::NewRecordsFirst) {
        old.sync_data()?;
    }
    let len = new.len()?;
    old.set_len(len)?;
    let mut at = HEADER as u64;
    while at < len {
        let data = new.next_data(at)?.unwrap_or(len);
        clear(old, at..data, &mut piece)?;
        let read = if data < len { new.read_at(&mut piece, data)? } else { 0 };
        old.write_at(&piece[..read], data)?;
        at = data + read as u64;
    }
    old.sync_data()
}

/// Zeroes a range, by punching a hole if the store supports that.
fn clear(store: &dyn BackingFile, range: Range<u64>, piece: &mut [u8]) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    store.punch(range.start, range.end - range.start)?;
    let Some(data) = store.next_data(range.start)?.filter(|data| *data < range.end) else { return Ok(()) };
    let mut at = data;
    while at < range.end {
        let len = (piece.len() as u64).min(range.end - at);
        let zeros = &mut piece[..len as usize];
        zeros.fill(0);
        store.write_at(zeros, at)?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::break_rule;
    use crypto::{cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};
    use format::record::{Claim, KeyId, Version};

    fn kdf(byte: u8) -> FileKdf {
        FileKdf::new(Secret::new_with(|key| key.fill(byte)), Cipher::Aes128, Integrity::TurboShake128x4)
    }

    fn sector(generation: u32, sequence: u64) -> [u8; RECORD] {
        let key = KeyId { generation, salt: [1; 32] };
        let target = Version { epoch: sequence, size: 0, root: [0; 32] };
        Record { sequence, key, target, claim: Claim::Clean }
            .encode(&kdf(generation as u8).keys(&key.salt).record)
    }

    #[test]
    fn a_new_form_counts_until_a_record_is_written_after_it() {
        let keys = ContentKeys::after((1, kdf(1)), (2, kdf(2)));
        let [old, older, new, newer] = [sector(1, 9), sector(1, 8), sector(2, 3), sector(2, 4)];
        let (empty, garbage) = ([0; RECORD], [7; RECORD]);
        let counts = |form, stored| is_unfinished(&keys, &form, &stored);
        for other in [new, old, empty] {
            assert!(counts([new; 2], [new, other]) && counts([new; 2], [other, new]));
        }
        for other in [newer, garbage] {
            assert!(!counts([new; 2], [new, other]) && !counts([new; 2], [other, new]));
        }
        for stored in [[old, older], [empty; 2], [newer; 2]] {
            assert!(!counts([new; 2], stored));
        }
        assert!(!counts([new, empty], [new, old]), "not whole itself");
        assert!(!counts([old; 2], [old, older]), "left by an earlier rotation");
        assert!(!counts([empty; 2], [empty; 2]));
        break_rule(Some(Rule::NoNewerRecord));
        let found = counts([new; 2], [new, newer]);
        break_rule(None);
        assert!(found);
    }
}

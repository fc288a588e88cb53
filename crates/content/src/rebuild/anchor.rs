//! Identifies a damaged file: the salt of its keys, and the record that still authenticates.

use super::{FileIdentity, Rebuilder, entries_below};
use crate::error::Result;
use format::{
    entry::{EPOCH_LIMIT, Entry},
    layout,
    record::{RECORD, Record},
    tree::Digest,
};
use std::sync::Arc;

/// Offset of the salt in a record.
const SALT_AT: usize = 24;

/// Facts established about a damaged file.
pub(super) struct RebuildAnchor {
    pub(super) identity: Arc<FileIdentity>,
    /// The largest sequence number of its records.
    pub(super) sequence: u64,
    /// Size of the plaintext in bytes.
    pub(super) size: u64,
    /// Slots with a higher epoch do not count.
    pub(super) epoch: u64,
    /// The root, if a clean record gives it.
    pub(super) root: Option<Digest>,
    /// Both sectors have that record.
    pub(super) recorded: bool,
}

impl Rebuilder<'_> {
    /// Evaluates the records; `None` if no key of this vault fits.
    pub(super) fn anchor(&self) -> Result<Option<RebuildAnchor>> {
        let mut header = [0; 2 * RECORD];
        self.backing.store.read_at(&mut header, 0)?;
        let sectors = header.as_chunks::<RECORD>().0;
        let mut records: Vec<Record> = sectors.iter().filter_map(|sector| self.authentic(sector)).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.sequence));
        for record in &records {
            let Some(identity) = self.backing.derive(record.key) else { continue };
            let alone = records.iter().all(|other| other.key == record.key);
            if alone || self.any_chunk_is_of(&identity)? {
                let whole = sectors.iter().all(|sector| self.authentic(sector).is_some());
                let recorded = record.base().is_none() && sectors[0] == sectors[1];
                return Ok(Some(RebuildAnchor { recorded, ..self.anchored(identity, record, whole)? }));
            }
        }
        self.by_salt(sectors)
    }

    fn authentic(&self, sector: &[u8; RECORD]) -> Option<Record> {
        let id = Record::peek_key(sector).ok()?;
        let record = Record::decode(sector, &self.backing.derive(id)?.keys.record).ok()?;
        self.backing.context.keys.accept(&id, sector).then_some(record)
    }

    /// Evaluates an authentic record. If the other sector is damaged, it may have been the newer one, so
    /// the slots are checked.
    fn anchored(&self, identity: Arc<FileIdentity>, record: &Record, whole: bool) -> Result<RebuildAnchor> {
        let Record { sequence, target, .. } = *record;
        let base = record.base();
        let clean = base.is_none();
        let size = if clean && !whole && self.root(&identity, target.size, target.epoch)? != target.root {
            layout::plain_size(self.backing.store.len()?)
        } else {
            base.map_or(target.size, |base| base.size.max(target.size))
        };
        let proven = clean && size == target.size;
        let epoch = if whole { record.limit() } else { EPOCH_LIMIT - 1 };
        let epoch = if proven { target.epoch } else { epoch };
        Ok(RebuildAnchor {
            identity,
            sequence,
            size,
            epoch,
            root: proven.then_some(target.root),
            recorded: false,
        })
    }

    /// Uses the salt of a record that does not authenticate, if a chunk verifies under it.
    fn by_salt(&self, sectors: &[[u8; RECORD]]) -> Result<Option<RebuildAnchor>> {
        for sector in sectors {
            let Some((salt, _)) = sector[SALT_AT..].split_first_chunk() else { continue };
            for derive in self.backing.context.keys.any_of(*salt) {
                let identity = FileIdentity::new(derive);
                // A holder of the former key could have written the chunk.
                if !self.backing.context.keys.are_former(&identity.id) && self.any_chunk_is_of(&identity)? {
                    let size = layout::plain_size(self.backing.store.len()?);
                    let epoch = EPOCH_LIMIT - 1;
                    return Ok(Some(RebuildAnchor {
                        identity,
                        sequence: 0,
                        size,
                        epoch,
                        root: None,
                        recorded: false,
                    }));
                }
            }
        }
        Ok(None)
    }

    fn any_chunk_is_of(&self, identity: &FileIdentity) -> Result<bool> {
        let size = layout::plain_size(self.backing.store.len()?);
        let mut found = false;
        self.backing.each_group(layout::groups(size), |group, raw| {
            for (index, Entry(slots)) in (layout::first_chunk(group)..).zip(entries_below(group, raw, size)) {
                for slot in slots.iter().flatten() {
                    found = found
                        || self.backing.verifies(identity, index, *slot, layout::chunk_len(size, index))?;
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

//! Extended attributes of a file in memory, including the states that a power cut may leave.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

#[derive(Clone, Default)]
pub(super) struct Attributes {
    now: BTreeMap<OsString, Vec<u8>>,
    /// Earlier values since the last sync of the whole file, oldest first. `None`: the attribute was not set.
    past: BTreeMap<OsString, Vec<Option<Vec<u8>>>>,
}

impl Attributes {
    pub(super) fn all(&self) -> BTreeMap<OsString, Vec<u8>> {
        self.now.clone()
    }

    /// Sets an attribute, or removes it if `value` is `None`.
    pub(super) fn set(&mut self, name: &OsStr, value: Option<&[u8]>) {
        let before = match value {
            Some(value) => self.now.insert(name.to_owned(), value.to_vec()),
            None => self.now.remove(name),
        };
        self.past.entry(name.to_owned()).or_default().push(before);
    }

    pub(super) fn sync(&mut self) {
        self.past.clear();
    }

    /// A copy in which everything is durable.
    pub(super) fn durable(&self) -> Self {
        Attributes { now: self.all(), past: BTreeMap::new() }
    }

    /// A state that a power cut may leave: each attribute as it was at some time since the last sync.
    pub(super) fn power_cut(&self, mut pick: impl FnMut(usize) -> usize) -> Self {
        let mut after = self.durable();
        for (name, values) in &self.past {
            match values.get(pick(values.len() + 1)) {
                Some(Some(value)) => _ = after.now.insert(name.clone(), value.clone()),
                Some(None) => _ = after.now.remove(name),
                None => {}
            }
        }
        after
    }

    pub(super) fn is_unsynced(&self) -> bool {
        !self.past.is_empty()
    }
}

//! A cache from long stored names to plain names, filled by listings. The stored name is a hash, so it does
//! not reveal the plain name, and listing the directory for each of its names is slow.
//!
//! An entry is only a guess: it may be stale or belong to another directory. Callers encode the plain name
//! again to verify it.

use parking_lot::Mutex;
use std::{collections::HashMap, mem};

/// Names per generation. There are two generations, with about 25 MB in total at most.
const MOST: usize = 32_768;

#[derive(Default)]
struct NameGenerations {
    young: HashMap<Vec<u8>, Vec<u8>>,
    old: HashMap<Vec<u8>, Vec<u8>>,
}

/// The plain names of the most recently listed long names.
#[derive(Default)]
pub struct LongNames(Mutex<NameGenerations>);

impl LongNames {
    /// The plain name that this stored name had when it was listed.
    pub fn guess(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let names = self.0.lock();
        names.young.get(stored).or_else(|| names.old.get(stored)).cloned()
    }

    /// Adds a listed name.
    pub fn keep(&self, stored: Vec<u8>, plain: Vec<u8>) {
        let mut names = self.0.lock();
        if names.young.len() >= MOST {
            names.old = mem::take(&mut names.young);
        }
        names.young.insert(stored, plain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_were_listed_last_are_kept() {
        let names = LongNames::default();
        let name = |i: usize| i.to_string().into_bytes();
        (0..4 * MOST).for_each(|i| names.keep(name(i), name(i)));
        assert_eq!((3 * MOST..4 * MOST).filter(|i| names.guess(&name(*i)) == Some(name(*i))).count(), MOST);
        let held = names.0.lock();
        assert!(held.young.len() + held.old.len() <= 2 * MOST);
    }
}

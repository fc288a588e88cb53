//! Which plain names stand behind long stored ones, as listings showed: a hash does not tell, and to list a directory for
//! each of its names takes long.
//!
//! What is kept is a guess, of any age and any directory: who takes one encodes it again.

use parking_lot::Mutex;
use std::{collections::HashMap, mem};

/// Names of a generation; there are two, some 25 MB together at most.
const MOST: usize = 32_768;

#[derive(Default)]
struct Generations {
    young: HashMap<Vec<u8>, Vec<u8>>,
    old: HashMap<Vec<u8>, Vec<u8>>,
}

/// The plain names of the long ones that were listed last.
#[derive(Default)]
pub struct LongNames(Mutex<Generations>);

impl LongNames {
    /// The plain name that this stored one had when it was listed.
    pub fn guess(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let names = self.0.lock();
        names.young.get(stored).or_else(|| names.old.get(stored)).cloned()
    }

    /// Keeps a name that was listed.
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

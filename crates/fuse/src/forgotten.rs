//! Locations of nodes that the kernel has forgotten but may still request by number. File handles (NFS,
//! open_by_handle_at(2)) outlive the kernel's inodes, and even the mount.
//!
//! Nothing is recorded before the first such request. That request searches the whole store. From then
//! on, the parent of each node that the kernel forgets is recorded.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Maximum number of recorded nodes, about 40 MB. Beyond it, a request for an unrecorded node searches
/// the store.
const MOST: usize = 1 << 20;

#[derive(Default)]
struct KnownPlaces {
    /// Parent directory of each node, both by number.
    parents: HashMap<u64, u64>,
    state: SearchState,
    /// Whether the parent of some node is not recorded.
    lost: bool,
}

#[derive(Default, PartialEq, Eq)]
enum SearchState {
    /// No request so far.
    #[default]
    Unused,
    /// A thread is searching the store.
    Searching,
    /// The whole store has been searched.
    Searched,
}

/// Locations of forgotten nodes.
#[derive(Default)]
pub struct Forgotten {
    places: Mutex<KnownPlaces>,
    /// Held by the thread that searches the store.
    search: Mutex<()>,
}

/// Known location of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// In the directory with this number, unless it has moved.
    In(u64),
    /// There is no such node.
    Nowhere,
    /// The store must be searched.
    Unknown,
}

impl Forgotten {
    /// Returns the known location of a node.
    pub fn place(&self, number: u64) -> Place {
        let places = self.places.lock();
        match places.parents.get(&number) {
            Some(parent) => Place::In(*parent),
            None if places.state == SearchState::Searched && !places.lost => Place::Nowhere,
            None => Place::Unknown,
        }
    }

    /// Locates a node, after a search of the store if necessary. `walk` does the search and records every
    /// node it sees. Only one thread searches at a time; one that waited uses the other's results. If
    /// `others` change the store, a node that is not found now may exist the next time.
    ///
    /// # Errors
    /// Those of `walk`.
    pub fn search<E>(
        &self,
        number: u64,
        others: bool,
        walk: impl FnOnce() -> Result<(), E>,
    ) -> Result<Place, E> {
        let _alone = self.search.lock();
        match self.place(number) {
            Place::Unknown => {}
            known => return Ok(known),
        }
        *self.places.lock() =
            KnownPlaces { state: SearchState::Searching, lost: others, ..KnownPlaces::default() };
        walk()?;
        self.places.lock().state = SearchState::Searched;
        Ok(self.place(number))
    }

    /// Records that a search has seen a node in the directory `parent`. An existing record is newer and
    /// takes precedence: the kernel forgot the node during the search.
    pub fn note_seen(&self, number: u64, parent: u64) {
        let mut places = self.places.lock();
        if places.parents.len() < MOST {
            places.parents.entry(number).or_insert(parent);
        } else if !places.parents.contains_key(&number) {
            places.lost = true;
        }
    }

    /// Records that the kernel forgets a node in the directory `parent`.
    pub fn note_forgotten(&self, number: u64, parent: u64) {
        let mut places = self.places.lock();
        let has_room = places.parents.len() < MOST || places.parents.contains_key(&number);
        match places.state {
            SearchState::Unused => {}
            SearchState::Searching | SearchState::Searched if has_room => {
                _ = places.parents.insert(number, parent);
            }
            SearchState::Searching | SearchState::Searched => places.lost = true,
        }
    }

    /// Records that the locations of some nodes are unknown.
    pub fn note_lost(&self) {
        self.places.lock().lost = true;
    }

    /// Records the directories from the root down to a node. Evicts everything else if there is no room.
    pub fn keep_path(&self, numbers: &[u64]) {
        let mut places = self.places.lock();
        if places.parents.len() + numbers.len() > MOST {
            places.parents.clear();
            places.lost = true;
        }
        places.parents.extend(numbers.windows(2).map(|pair| (pair[1], pair[0])));
    }

    /// Removes a deleted node.
    pub fn note_gone(&self, number: u64) {
        self.places.lock().parents.remove(&number);
    }

    /// Removes a node that was not found in its recorded location.
    pub fn is_not_there(&self, number: u64) {
        let mut places = self.places.lock();
        places.parents.remove(&number);
        places.lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up a node, with `walk` as the search of the store.
    fn ask(forgotten: &Forgotten, number: u64, walk: impl FnOnce()) -> Place {
        let walk = || {
            walk();
            Ok::<_, ()>(())
        };
        forgotten.search(number, false, walk).unwrap()
    }

    fn nothing_is_searched() {
        panic!("the store is searched");
    }

    #[test]
    fn nothing_is_noted_before_a_search_and_everything_after_it() {
        let forgotten = Forgotten::default();
        forgotten.note_forgotten(5, 1);
        assert_eq!(forgotten.place(5), Place::Unknown);
        assert_eq!(ask(&forgotten, 5, || forgotten.note_seen(5, 1)), Place::In(1));
        assert_eq!(ask(&forgotten, 6, nothing_is_searched), Place::Nowhere);
        forgotten.note_forgotten(7, 2);
        assert_eq!(forgotten.place(7), Place::In(2));
        forgotten.note_gone(7);
        assert_eq!(forgotten.place(7), Place::Nowhere);
    }

    #[test]
    fn nothing_is_nowhere_before_a_search_has_ended() {
        let forgotten = Forgotten::default();
        let found = ask(&forgotten, 5, || {
            assert_eq!(forgotten.place(6), Place::Unknown);
            forgotten.note_seen(6, 1);
        });
        assert_eq!((found, forgotten.place(6)), (Place::Nowhere, Place::In(1)));
        let failed = Forgotten::default();
        assert_eq!(failed.search(5, false, || Err(())), Err(()));
        assert_eq!(failed.place(5), Place::Unknown);
    }

    #[test]
    fn what_is_forgotten_during_a_search_is_newer_than_what_that_sees() {
        let forgotten = Forgotten::default();
        let found = ask(&forgotten, 5, || {
            forgotten.note_forgotten(5, 2);
            forgotten.note_seen(5, 1);
        });
        assert_eq!(found, Place::In(2));
    }

    #[test]
    fn what_is_not_where_it_was_noted_is_searched_for_again() {
        let forgotten = Forgotten::default();
        ask(&forgotten, 5, || forgotten.note_seen(5, 1));
        forgotten.is_not_there(5);
        assert_eq!(ask(&forgotten, 5, || forgotten.note_seen(5, 2)), Place::In(2));
        assert_eq!(forgotten.place(6), Place::Nowhere, "the new search was complete");
    }

    #[test]
    fn what_others_add_is_searched_for_each_time() {
        let forgotten = Forgotten::default();
        assert_eq!(forgotten.search(5, true, || Ok::<_, ()>(())), Ok(Place::Unknown));
        let found = forgotten.search(5, true, || {
            forgotten.note_seen(5, 1);
            Ok::<_, ()>(())
        });
        assert_eq!(found, Ok(Place::In(1)));
    }

    #[test]
    fn what_is_noted_is_bounded_and_the_path_that_was_asked_for_has_room() {
        let forgotten = Forgotten::default();
        let wanted = 2 * MOST as u64;
        let found = ask(&forgotten, wanted, || {
            for number in 0..=MOST as u64 {
                forgotten.note_seen(number, 1);
            }
            forgotten.keep_path(&[1, 4, wanted]);
        });
        assert_eq!((found, forgotten.place(4)), (Place::In(4), Place::In(1)));
        assert_eq!(forgotten.place(3), Place::Unknown);
        for number in 0..=MOST as u64 {
            forgotten.note_forgotten(number, 1);
        }
        assert_eq!(forgotten.places.lock().parents.len(), MOST);
    }
}

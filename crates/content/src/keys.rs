//! The keys of file contents. They change while the vault is open if it gets another master key; the
//! former keys then serve for everything not yet rewritten. While the vault is locked there are none, and
//! asking for one panics.

use crypto::kdf::{FileKdf, FileKeys};
use format::record::{KeyId, RECORD};
use parking_lot::RwLock;
use std::sync::Arc;

const UNLOCKED: &str = "the vault is not locked";

/// Source of file keys: the present key generation, and the former one while files are still under it.
/// `None` while the vault is locked.
pub struct ContentKeys(RwLock<Option<Generations>>);

/// The generations of keys that a vault has.
#[derive(Clone)]
pub struct Generations {
    /// Files are written under this one.
    pub present: Generation,
    /// Files under this one are read if they are accepted, until they are rewritten.
    pub former: Option<(Generation, Accept)>,
}

/// Whether a file with this newest record existed when the rotation began.
pub type Accept = Arc<dyn Fn(&[u8; RECORD]) -> bool + Send + Sync>;

/// Keys of files with one number, which each file's header names.
#[derive(Clone)]
pub struct Generation {
    number: u32,
    kdf: Arc<FileKdf>,
}

impl Generation {
    /// The generation with this number, whose keys `kdf` derives.
    pub fn new(number: u32, kdf: FileKdf) -> Generation {
        Generation { number, kdf: Arc::new(kdf) }
    }

    fn keys(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        (KeyId { generation: self.number, salt }, self.kdf.keys(&salt))
    }
}

impl Generations {
    fn each(self) -> impl Iterator<Item = Generation> {
        [Some(self.present), self.former.map(|(generation, _)| generation)].into_iter().flatten()
    }
}

impl ContentKeys {
    /// Keys of a single generation.
    pub fn new(generation: u32, kdf: FileKdf) -> Self {
        ContentKeys::of(Generations { present: Generation::new(generation, kdf), former: None })
    }

    fn all(&self) -> Generations {
        self.0.read().clone().expect(UNLOCKED) // invariant: a locked vault serves no request
    }

    /// Erases the keys.
    pub fn wipe(&self) {
        *self.0.write() = None;
    }

    /// Keys of a vault that is getting another master key, and accepts all files under the former one.
    #[cfg(any(test, feature = "testing"))]
    pub fn after(former: (u32, FileKdf), present: (u32, FileKdf)) -> Self {
        let [former, present] = [former, present].map(|(number, kdf)| Generation::new(number, kdf));
        ContentKeys::of(Generations { present, former: Some((former, Arc::new(|_: &_| true))) })
    }

    /// Keys of these generations.
    pub fn of(generations: Generations) -> Self {
        ContentKeys(RwLock::new(Some(generations)))
    }

    /// Switches to other generations, or back to its own after a lock.
    pub fn replace(&self, generations: Generations) {
        *self.0.write() = Some(generations);
    }

    /// Derives the keys of a new file with this salt.
    pub fn of_new(&self, salt: [u8; 32]) -> (KeyId, FileKeys) {
        self.all().present.keys(salt)
    }

    /// Whether a file with this key id is not under the present key generation.
    pub fn are_former(&self, id: &KeyId) -> bool {
        self.with(|all| all.present.number != id.generation)
    }

    /// Whether a file with this key id must be rewritten by the rotation in progress.
    pub fn are_to_go(&self, id: &KeyId) -> bool {
        self.with(|all| all.former.as_ref().is_some_and(|(former, _)| former.number == id.generation))
    }

    /// Whether a file with this key id is accepted. `newest` is its newest record, which is authentic.
    pub fn accept(&self, id: &KeyId, newest: &[u8; RECORD]) -> bool {
        let Generations { present, former } = self.all();
        present.number == id.generation
            || former.is_some_and(|(former, accept)| former.number == id.generation && accept(newest))
    }

    fn with<T>(&self, work: impl FnOnce(&Generations) -> T) -> T {
        work(self.0.read().as_ref().expect(UNLOCKED)) // invariant: a locked vault serves no request
    }

    /// Derivations of all keys that a file with this salt could have.
    pub fn any_of(&self, salt: [u8; 32]) -> impl Iterator<Item = impl FnOnce() -> (KeyId, FileKeys)> {
        self.all().each().map(move |generation| move || generation.keys(salt))
    }

    /// The derivation of a file's keys; `None` if the vault lacks the keys of its generation.
    pub fn of_file(&self, id: KeyId) -> Option<impl FnOnce() -> (KeyId, FileKeys)> {
        let generation = self.all().each().find(|g| g.number == id.generation)?;
        Some(move || generation.keys(id.salt))
    }
}

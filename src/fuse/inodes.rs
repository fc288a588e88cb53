//! The nodes that the kernel knows: their numbers, where they stand, and how often they were looked up.
//!
//! Locks: a node's names are locked before the table, never the other way round; names of several nodes in the order
//! of `Node::order`.

use super::{caching::InUse, errno, forgotten::Forgotten, pages::Pages};
use crate::vault::{Kind, OpenFile, Pin, Result, Stat, StoredName, There};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The number of the mount's root.
pub const ROOT: u64 = 1;
/// Nodes that cannot keep their store's inode number are numbered from here on.
const FOREIGN: u64 = 1 << 63;
/// Directories above a node that a log line names at most.
const PATH_DEPTH: usize = 64;

/// Device and inode number in the store.
pub type Key = (u64, u64);

/// Device and inode number of a node.
pub fn key(stat: &Stat) -> Key {
    (stat.dev, stat.ino)
}

/// A place where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Number of the directory.
    pub parent: u64,
    /// Name there, as stored.
    pub stored: StoredName,
}

/// Where a node stands, as far as the kernel has seen.
#[derive(Debug, Default)]
pub struct Names {
    known: Vec<Name>,
    gone: Option<Box<Stat>>,
    /// Holds the inode of a node that is gone until the kernel forgets the node. Else the store could give
    /// the number away, and the kernel take the one for the other.
    pin: Option<Pin>,
}

impl Names {
    /// A name; the one seen last, as that is the likeliest to be in use.
    pub fn any(&self) -> Option<&Name> {
        self.known.last()
    }

    /// All names, the one seen last first.
    pub fn latest_first(&self) -> impl Iterator<Item = &Name> {
        self.known.iter().rev()
    }

    /// A name that is known was seen again.
    fn seen(&mut self, name: &Name) {
        if let Some(at) = self.known.iter().position(|known| known == name) {
            self.known[at..].rotate_left(1);
        }
    }

    /// Adds a name.
    pub fn add(&mut self, name: Name) {
        if !self.known.contains(&name) {
            // Nearly every node has one name, and there can be millions of nodes.
            self.known.reserve_exact(1);
            self.known.push(name);
        }
    }

    /// The names in a directory are others now.
    pub fn renew(&mut self, parent: u64, stored: &[StoredName]) {
        self.known.retain(|name| name.parent != parent);
        stored.iter().for_each(|stored| self.add(Name { parent, stored: stored.clone() }));
    }

    /// The directories that it has names in.
    pub fn parents(&self) -> impl Iterator<Item = u64> {
        self.known.iter().map(|name| name.parent)
    }

    /// Puts `new` in the place of `old`.
    pub fn replace(&mut self, old: &Name, new: Name) {
        self.known.retain(|n| n != old);
        self.add(new);
    }

    /// Takes a name away; `before` are the attributes that the node had then. Without its `last` link the
    /// node is gone: only open handles reach it.
    pub fn remove(&mut self, name: &Name, before: &Stat, last: bool, pin: Option<Pin>) {
        self.known.retain(|n| n != name);
        if last {
            self.known.clear();
            self.gone = Some(Box::new(Stat { nlink: 0, ..*before }));
            self.pin = pin;
        }
    }

    /// A node that was made without a name: as long as it gets none, it is like one whose every name is gone.
    fn none_yet(there: There) -> Self {
        Names { known: Vec::new(), gone: Some(Box::new(there.stat)), pin: Some(there.pin) }
    }

    /// A node without a name gets one.
    pub fn came_back(&mut self, name: Name) {
        *self = Names { known: vec![name], gone: None, pin: None };
    }

    /// Holds the inode of a node whose every name is gone.
    pub fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }

    /// Attributes of a node whose every name is gone have changed.
    pub fn changed(&mut self, stat: &Stat) {
        if let Some(gone) = &mut self.gone {
            **gone = Stat { nlink: 0, ..*stat };
        }
    }

    /// The last attributes of a node whose every name is gone.
    pub fn gone(&self) -> Option<&Stat> {
        self.gone.as_deref()
    }
}

/// The size that the kernel was told of a file while that was not open, by the length of the stored file: a crash may
/// have left that wrong, or somebody cut or restored the stored file since.
#[derive(Debug)]
pub struct KernelSize(AtomicU64);

impl KernelSize {
    /// No file is so long.
    const NONE: u64 = u64::MAX;

    /// Notes a size; to be called before it is told, and before it is asked whether the file is open.
    pub fn note(&self, size: u64) {
        self.0.store(size, Ordering::SeqCst);
    }

    /// The kernel is told the size of the open file, or keeps its own from here on.
    pub fn by_file(&self) {
        self.0.store(KernelSize::NONE, Ordering::SeqCst);
    }

    /// Notes a size, if the kernel was not told one before.
    pub fn note_first(&self, size: u64) {
        // Otherwise it keeps what it has.
        let _ = self.0.compare_exchange(KernelSize::NONE, size, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the kernel may believe in another size; to be called once the file is open.
    pub fn other_than(&self, size: u64) -> bool {
        ![size, KernelSize::NONE].contains(&self.0.load(Ordering::SeqCst))
    }
}

impl Default for KernelSize {
    fn default() -> Self {
        KernelSize(AtomicU64::new(KernelSize::NONE))
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its number in the mount.
    pub number: u64,
    /// Where it is in the store.
    pub key: Key,
    /// Tells its inode from others that have the number before or after it; 0 if the store does not say.
    generation: u64,
    /// Its type.
    pub kind: Kind,
    /// Where it stands. Locked for reading while a name is used, for writing while one changes, so that
    /// nothing is ever done to the wrong node.
    pub names: RwLock<Names>,
    /// Whether it is known to have no extended attribute: the kernel and `ls` ask for some of every file.
    /// Locked for writing while one is set, or the store is asked whether there is any.
    pub bare: RwLock<bool>,
    /// Whether it may have file capabilities. Changes while `bare` is locked for writing.
    pub capable: AtomicBool,
    /// How a file is in use. Locked while an opening is decided, and while the kernel is given content.
    pub in_use: Mutex<InUse>,
    /// What the kernel may have of a file in its page cache.
    pub pages: Pages,
    /// The size that the kernel was told while the file was not open.
    pub kernel_size: KernelSize,
    /// Whether the kernel could not write what it had gathered: it may go by a size that the file never got. Not under the
    /// lock of `in_use`: whoever holds that may wait for a page that is being written.
    pub writes_lost: AtomicBool,
    /// Whether the next lookup is to find a new node in its place.
    replaced: AtomicBool,
    /// Whether somebody renamed it in the store while a program had it open: the kernel may still know it by the former name.
    pub has_left: AtomicBool,
}

impl Node {
    fn new(number: u64, key: Key, kind: Kind, generation: u64) -> Arc<Node> {
        Arc::new(Node {
            number,
            key,
            generation,
            kind,
            names: RwLock::default(),
            bare: RwLock::default(),
            capable: AtomicBool::new(true),
            in_use: Mutex::default(),
            pages: Pages::default(),
            kernel_size: KernelSize::default(),
            writes_lost: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        })
    }

    /// Whether an inode is its own, and not a later one with the same number. A `generation` of 0 is unknown.
    pub fn is_inode(&self, key: Key, generation: u64) -> bool {
        self.key == key && (generation == self.generation || generation == 0 || self.generation == 0)
    }

    /// Says that the next lookup is to find a new node: the store has another file in its place although the inode is the same,
    /// or the kernel reaches it by a name that it does not have any more.
    pub fn was_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether certainly no program has it open.
    fn is_closed(&self) -> bool {
        self.in_use.try_lock().is_some_and(|in_use| in_use.is_closed())
    }

    fn is_of(&self, stat: &Stat, generation: u64) -> bool {
        self.kind == stat.kind
            && self.is_inode(key(stat), generation)
            && !self.replaced.load(Ordering::Relaxed)
    }

    /// Says that it was cut to nothing, upon which the kernel drops all of its pages. Where somebody else has it
    /// open, some may have come meanwhile.
    pub fn emptied(&self) {
        if self.in_use.lock().is_of_one() {
            self.pages.end();
        }
    }

    /// Where it stands in the order in which the names of several nodes are locked: directories last, because who uses
    /// a name of a file, and so keeps it, may have to find the way to the directory.
    pub fn order(&self) -> (bool, u64) {
        (self.kind == Kind::Dir, self.number)
    }
}

/// What a reply about a node says: its number, and which of the nodes that had that number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Number in the mount.
    pub number: u64,
    /// Differs from that of an earlier node of the same number that the kernel may still know.
    pub generation: u64,
}

struct Known {
    node: Arc<Node>,
    lookups: u64,
    generation: u64,
}

/// A node that was looked up.
struct Counted {
    node: Arc<Node>,
    generation: u64,
    /// Whether the kernel did not know it before.
    first: bool,
}

struct Table {
    nodes: HashMap<u64, Known>,
    foreign: HashMap<Key, u64>,
    next_foreign: u64,
}

/// The table of nodes.
pub struct Inodes {
    root: Key,
    table: Mutex<Table>,
    /// Where nodes stand that are not in the table any more.
    pub forgotten: Forgotten,
}

impl Inodes {
    /// A table that knows the root, which is never forgotten.
    pub fn new(root: Key) -> Self {
        let known = Known { node: Node::new(ROOT, root, Kind::Dir, 0), lookups: 1, generation: 0 };
        let table =
            Table { nodes: HashMap::from([(ROOT, known)]), foreign: HashMap::new(), next_foreign: FOREIGN };
        Inodes { root, table: Mutex::new(table), forgotten: Forgotten::default() }
    }

    /// A node of which the kernel said the number.
    ///
    /// # Errors
    /// ESTALE if it is not known.
    pub fn get(&self, number: u64) -> Result<Arc<Node>> {
        self.table.lock().nodes.get(&number).map(|k| k.node.clone()).ok_or_else(errno::stale)
    }

    /// The node of a store's inode, if the kernel knows it.
    pub fn find(&self, key: Key) -> Option<Arc<Node>> {
        let table = self.table.lock();
        let number = self.number(&table, key)?;
        table.nodes.get(&number).filter(|k| k.node.key == key).map(|k| k.node.clone())
    }

    /// Every node that the kernel knows.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.table.lock().nodes.values().map(|known| known.node.clone()).collect()
    }

    /// The number that an inode has, or would have where it can keep the store's.
    pub fn number_of(&self, key: Key) -> u64 {
        self.number(&self.table.lock(), key).unwrap_or(key.1)
    }

    /// Counts a lookup of a node found under `name`: to be called before the kernel is told of it.
    ///
    /// The kernel may ask anew for a name that it knows while that is renamed or removed, so what was found can be out
    /// of date. Such a node is known already: a name that is new to it is noted only if `stands` says, while
    /// no name of the node changes, that it stands there. `None`, and nothing is counted, if it does not. A known node
    /// whose number the store has given to another inode, by its `generation`, is replaced by a new one, and so is a closed
    /// file that stands under another name than the known ones: by those the kernel would still reach it. In a shared vault
    /// (`moves`) it does not keep names, and the one seen last counts.
    pub fn found(
        &self,
        stat: &Stat,
        name: Name,
        generation: impl Fn(&Name) -> u64,
        stands: impl Fn(&Name) -> bool,
        moves: bool,
    ) -> Option<Id> {
        let key = key(stat);
        let mut now = generation(&name);
        let Counted { node, generation: known, first } = self.count(key, stat.kind, now);
        let id = Id { number: node.number, generation: known };
        let is_same = node.is_of(stat, now);
        if is_same && node.names.read().known.contains(&name) {
            if moves && node.names.read().any() != Some(&name) {
                node.names.write().seen(&name);
            }
            return Some(id);
        }
        let mut names = node.names.write();
        if !first && !stands(&name) {
            drop(names);
            self.forget(node.number, 1);
            return None;
        }
        if !first && !is_same {
            // The name may have led to another inode when its generation was asked for.
            now = generation(&name);
        }
        if node.is_of(stat, now) && names.gone().is_none() {
            // Somebody else renamed it, and the kernel still takes the former name for it.
            let left = stat.kind == Kind::File && !moves && names.known.iter().any(|known| !stands(known));
            if !left || !node.is_closed() {
                node.has_left.fetch_or(left, Ordering::Relaxed);
                names.add(name);
                return Some(id);
            }
        }
        let (node, generation) = self.renew(&node, key, stat.kind, now);
        node.names.write().add(name);
        Some(Id { number: node.number, generation })
    }

    /// Counts the first lookup of a node that was made without a name.
    pub fn made_nameless(&self, there: There) -> Id {
        let (key, kind) = (there.inode(), there.stat.kind);
        let generation = there.pin.generation().into();
        let Counted { node, generation: known, first } = self.count(key, kind, generation);
        let (node, generation) = if first { (node, known) } else { self.renew(&node, key, kind, generation) };
        *node.names.write() = Names::none_yet(there);
        Id { number: node.number, generation }
    }

    /// Takes back `lookups` lookups of a node; after the last one it is no longer known.
    pub fn forget(&self, number: u64, lookups: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.table.lock();
        let Some(known) = table.nodes.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            let key = known.node.key;
            match known
                .node
                .names
                .try_read()
                .map(|names| (names.any().map(|n| n.parent), names.gone().is_some()))
            {
                _ if !self.keeps_number(key) => {}
                Some((_, true)) => self.forgotten.note_gone(number),
                Some((Some(parent), false)) => self.forgotten.note_forgotten(number, parent),
                // It has another name, or is being renamed right now.
                Some((None, false)) | None => self.forgotten.note_lost(),
            }
            table.nodes.remove(&number);
            // A renumbered one never gets its former number again: the kernel may still hold that.
            if !self.keeps_number(key) {
                table.foreign.remove(&key);
            }
        }
    }

    /// Gives the file behind a node another number, and keeps it open until the kernel opens it by that. Requests by the
    /// former number fail with ESTALE, upon which the kernel looks the name up again.
    pub fn renumber(&self, node: &Node, file: &Arc<OpenFile>) {
        let mut table = self.table.lock();
        // Another open may have come first.
        if table.nodes.get(&node.number).is_none_or(|known| !std::ptr::eq(&*known.node, node)) {
            return;
        }
        table.nodes.remove(&node.number);
        let number = table.next_foreign;
        table.next_foreign += 1;
        table.foreign.insert(node.key, number);
        let renumbered = Node::new(number, node.key, node.kind, node.generation);
        renumbered.in_use.lock().send_back(file);
        table.nodes.insert(number, Known { node: renumbered, lookups: 0, generation: 0 });
    }

    /// The stored path of a node, for a log line; its inode number if it stands nowhere.
    pub fn stored_path(&self, number: u64) -> String {
        let mut parts = Vec::new();
        let mut at = number;
        while at != ROOT && parts.len() < PATH_DEPTH {
            let Ok(node) = self.get(at) else { break };
            // A node that is being renamed right now is named by its number: a log line must not wait.
            let Some(name) = node.names.try_read().and_then(|n| n.any().cloned()) else { break };
            parts.push(name.stored.0.to_string_lossy().into_owned());
            at = name.parent;
        }
        match at {
            ROOT if parts.is_empty() => "the root directory".to_owned(),
            ROOT => parts.into_iter().rev().collect::<Vec<_>>().join("/"),
            _ => format!("inode {number}"),
        }
    }

    fn number(&self, table: &Table, key: Key) -> Option<u64> {
        match key == self.root {
            true => Some(ROOT),
            false => table.foreign.get(&key).copied().or_else(|| self.keeps_number(key).then_some(key.1)),
        }
    }

    /// Whether an inode has the store's number.
    pub fn keeps_number(&self, (device, inode): Key) -> bool {
        device == self.root.0 && self.is_of_store(inode)
    }

    /// Whether a number is one of the store's.
    pub fn is_of_store(&self, number: u64) -> bool {
        number > ROOT && number < FOREIGN
    }

    fn count(&self, key: Key, kind: Kind, generation: u64) -> Counted {
        let mut table = self.table.lock();
        let number = self.number(&table, key).unwrap_or_else(|| {
            let number = table.next_foreign;
            table.next_foreign += 1;
            table.foreign.insert(key, number);
            number
        });
        let known = table.nodes.entry(number).or_insert_with(|| Known {
            node: Node::new(number, key, kind, generation),
            lookups: 0,
            generation,
        });
        known.lookups = known.lookups.saturating_add(1);
        Counted { node: known.node.clone(), generation: known.generation, first: known.lookups == 1 }
    }

    /// Puts a new node in the place of `old`, whose inode number the store has given away again. The
    /// kernel may still hold `old`: its lookups and the new node's are one sum.
    fn renew(&self, old: &Arc<Node>, key: Key, kind: Kind, generation: u64) -> (Arc<Node>, u64) {
        let mut table = self.table.lock();
        let known = table.nodes.entry(old.number).or_insert_with(|| Known {
            node: old.clone(),
            lookups: 1,
            generation: 0,
        });
        if Arc::ptr_eq(&known.node, old) {
            known.node = Node::new(old.number, key, kind, generation);
            // Where the store has no generations, or another file was written over this one.
            let is_same = generation == known.generation;
            known.generation = if is_same { generation + 1 } else { generation };
        }
        (known.node.clone(), known.generation)
    }
}

#[cfg(test)]
mod tests;

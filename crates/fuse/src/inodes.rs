//! The nodes that the kernel knows: their numbers, names, and lookup counts.
//!
//! Lock order: a node's names before the table, never the reverse; names of several nodes in the order of
//! `Node::order`.

use super::{caching::InUse, errno, forgotten::Forgotten, pages::Pages};
use content::Result;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use vault::{Kind, OpenFile, Pin, Stat, StoredName, There};

/// Number of the mount's root.
pub const ROOT: u64 = 1;
/// First number for nodes that cannot keep the store's inode number.
const FOREIGN: u64 = 1 << 63;
/// Maximum number of parent directories that a log line names.
const PATH_DEPTH: usize = 64;

/// Device and inode number in the store.
pub type Key = (u64, u64);

/// Device and inode number of a node.
pub fn key(stat: &Stat) -> Key {
    (stat.dev, stat.ino)
}

/// One name of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Number of the directory.
    pub parent: u64,
    /// Stored name in that directory.
    pub stored: StoredName,
}

/// A node's names, as far as the kernel has seen them.
#[derive(Debug, Default)]
pub struct Names {
    known: Vec<Name>,
    gone: Option<Box<Stat>>,
    /// Holds the inode of an unlinked node until the kernel forgets the node. Otherwise the store could
    /// reuse the number, and the kernel could mistake the new node for the old one.
    pin: Option<Pin>,
}

impl Names {
    /// Any name; the one seen last, because it is the most likely to be in use.
    pub fn any(&self) -> Option<&Name> {
        self.known.last()
    }

    /// All names, the one seen last first.
    pub fn latest_first(&self) -> impl Iterator<Item = &Name> {
        self.known.iter().rev()
    }

    /// Marks a known name as seen last.
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

    /// Replaces all names in a directory.
    pub fn renew(&mut self, parent: u64, stored: &[StoredName]) {
        self.known.retain(|name| name.parent != parent);
        stored.iter().for_each(|stored| self.add(Name { parent, stored: stored.clone() }));
    }

    /// The directories that contain its names.
    pub fn parents(&self) -> impl Iterator<Item = u64> {
        self.known.iter().map(|name| name.parent)
    }

    /// Replaces `old` with `new`.
    pub fn replace(&mut self, old: &Name, new: Name) {
        self.known.retain(|n| n != old);
        self.add(new);
    }

    /// Removes a name; `before` are the node's attributes before that. If it was the `last` link, the
    /// node is gone and only open handles reach it.
    pub fn remove(&mut self, name: &Name, before: &Stat, last: bool, pin: Option<Pin>) {
        self.known.retain(|n| n != name);
        if last {
            self.known.clear();
            self.gone = Some(Box::new(Stat { nlink: 0, ..*before }));
            self.pin = pin;
        }
    }

    /// Names of a node that was created without one. Until it gets a name, it is treated like an unlinked
    /// node.
    fn none_yet(there: There) -> Self {
        Names { known: Vec::new(), gone: Some(Box::new(there.stat)), pin: Some(there.pin) }
    }

    /// Gives a node without a name its first one.
    pub fn came_back(&mut self, name: Name) {
        *self = Names { known: vec![name], gone: None, pin: None };
    }

    /// The pin on the inode of an unlinked node.
    pub fn pin(&self) -> Option<&Pin> {
        self.pin.as_ref()
    }

    /// Updates the attributes of an unlinked node.
    pub fn changed(&mut self, stat: &Stat) {
        if let Some(gone) = &mut self.gone {
            **gone = Stat { nlink: 0, ..*stat };
        }
    }

    /// The last known attributes of an unlinked node.
    pub fn gone(&self) -> Option<&Stat> {
        self.gone.as_deref()
    }
}

/// The size that the kernel was told while the file was not open, derived from the stored file's length.
/// It may be wrong: a crash can leave that length wrong, and another process may have truncated or
/// restored the stored file since.
#[derive(Debug)]
pub struct KernelSize(AtomicU64);

impl KernelSize {
    /// No file is that long.
    const NONE: u64 = u64::MAX;

    /// Records a size. Call it before telling the kernel, and before checking whether the file is open.
    pub fn note(&self, size: u64) {
        self.0.store(size, Ordering::SeqCst);
    }

    /// The kernel is told the open file's size, or relies on its own from here on.
    pub fn by_file(&self) {
        self.0.store(KernelSize::NONE, Ordering::SeqCst);
    }

    /// Records a size, unless the kernel was told one before.
    pub fn note_first(&self, size: u64) {
        // If this fails, the kernel keeps the size it has.
        let _ = self.0.compare_exchange(KernelSize::NONE, size, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the kernel may have a different size. Call it once the file is open.
    pub fn other_than(&self, size: u64) -> bool {
        ![size, KernelSize::NONE].contains(&self.0.load(Ordering::SeqCst))
    }
}

impl Default for KernelSize {
    fn default() -> Self {
        KernelSize(AtomicU64::new(KernelSize::NONE))
    }
}

/// A node that the kernel knows.
#[derive(Debug)]
pub struct Node {
    /// Number in the mount.
    pub number: u64,
    /// Device and inode number in the store.
    pub key: Key,
    /// Distinguishes its inode from earlier and later ones with the same number; 0 if the store has no
    /// generations.
    generation: u64,
    /// Type of the node.
    pub kind: Kind,
    /// The node's names. Locked for reading while a name is used, and for writing while one changes, so
    /// that no operation ever reaches the wrong node.
    pub names: RwLock<Names>,
    /// Whether the node is known to have no extended attributes: the kernel and `ls` query some for every
    /// file. Locked for writing while one is set, or while the store is asked whether there are any.
    pub bare: RwLock<bool>,
    /// Whether the file may have capabilities. Changes only while `bare` is locked for writing.
    pub capable: AtomicBool,
    /// How the file is in use. Locked while an open is decided, and while content is pushed to the
    /// kernel.
    pub in_use: Mutex<InUse>,
    /// The file's content that may be in the kernel's page cache.
    pub pages: Pages,
    /// The size that the kernel was told while the file was not open.
    pub kernel_size: KernelSize,
    /// Whether write-back from the kernel's cache failed, in which case the kernel may rely on a size
    /// that the file never reached. Not protected by the lock of `in_use`, whose holder may be waiting
    /// for a page that is being written.
    pub writes_lost: AtomicBool,
    /// Whether the next lookup must create a new node in its place.
    replaced: AtomicBool,
    /// Whether another process renamed it in the store while a program had it open. The kernel may still
    /// know the old name.
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

    /// Whether an inode is this node's, and not a later one with the same number. A `generation` of 0 is
    /// unknown.
    pub fn is_inode(&self, key: Key, generation: u64) -> bool {
        self.key == key && (generation == self.generation || generation == 0 || self.generation == 0)
    }

    /// Makes the next lookup create a new node: the store has a different file under the same inode, or
    /// the kernel reaches the node by a name that it no longer has.
    pub fn was_replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether it is certain that no program has it open.
    fn is_closed(&self) -> bool {
        self.in_use.try_lock().is_some_and(|in_use| in_use.is_closed())
    }

    fn is_of(&self, stat: &Stat, generation: u64) -> bool {
        self.kind == stat.kind
            && self.is_inode(key(stat), generation)
            && !self.replaced.load(Ordering::Relaxed)
    }

    /// Called after truncation to zero, on which the kernel drops all of its pages. With other open
    /// handles, some pages may have been read again meanwhile.
    pub fn emptied(&self) {
        if self.in_use.lock().is_of_one() {
            self.pages.end();
        }
    }

    /// Position in the lock order for the names of several nodes. Directories come last: while the name
    /// of a file is locked, its user may still have to resolve the path of the directory.
    pub fn order(&self) -> (bool, u64) {
        (self.kind == Kind::Dir, self.number)
    }
}

/// Identity of a node in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Number in the mount.
    pub number: u64,
    /// Distinguishes the node from earlier ones with the same number that the kernel may still know.
    pub generation: u64,
}

struct KnownInode {
    node: Arc<Node>,
    lookups: u64,
    generation: u64,
}

/// Result of counting a lookup.
struct CountedLookup {
    node: Arc<Node>,
    generation: u64,
    /// Whether the kernel did not know the node before.
    first: bool,
}

struct InodeTable {
    nodes: HashMap<u64, KnownInode>,
    foreign: HashMap<Key, u64>,
    next_foreign: u64,
}

/// The table of nodes.
pub struct Inodes {
    root: Key,
    table: Mutex<InodeTable>,
    /// Locations of nodes that are no longer in the table.
    pub forgotten: Forgotten,
}

impl Inodes {
    /// Creates a table with only the root, which is never forgotten.
    pub fn new(root: Key) -> Self {
        let known = KnownInode { node: Node::new(ROOT, root, Kind::Dir, 0), lookups: 1, generation: 0 };
        let table = InodeTable {
            nodes: HashMap::from([(ROOT, known)]),
            foreign: HashMap::new(),
            next_foreign: FOREIGN,
        };
        Inodes { root, table: Mutex::new(table), forgotten: Forgotten::default() }
    }

    /// Looks up a node by the kernel's number.
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

    /// The inode's number; for an unknown inode, the number that it would get if it can keep the store's.
    pub fn number_of(&self, key: Key) -> u64 {
        self.number(&self.table.lock(), key).unwrap_or(key.1)
    }

    /// Counts a lookup of a node found under `name`. Call it before telling the kernel.
    ///
    /// The kernel may look up a name that it knows while that name is renamed or removed, so the result
    /// may be out of date. The node is then already known. A name that is new to it is recorded only if
    /// `stands` confirms it while the node's names cannot change. If it does not, the result is `None`
    /// and nothing is counted.
    ///
    /// A known node is replaced by a new one in two cases: the `generation` shows that the store has
    /// reused its number for another inode, or it is a closed file and one of its known names is no
    /// longer valid, because the kernel would still reach it by that name. In a shared vault (`moves`)
    /// the kernel does not keep names, and the one seen last counts.
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
        let CountedLookup { node, generation: known, first } = self.count(key, stat.kind, now);
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
            // The name may have led to another inode when its generation was read.
            now = generation(&name);
        }
        if node.is_of(stat, now) && names.gone().is_none() {
            // Another process renamed the file, and the kernel still uses the old name for it.
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

    /// Counts the first lookup of a node that was created without a name.
    pub fn made_nameless(&self, there: There) -> Id {
        let (key, kind) = (there.inode(), there.stat.kind);
        let generation = there.pin.generation().into();
        let CountedLookup { node, generation: known, first } = self.count(key, kind, generation);
        let (node, generation) = if first { (node, known) } else { self.renew(&node, key, kind, generation) };
        *node.names.write() = Names::none_yet(there);
        Id { number: node.number, generation }
    }

    /// Subtracts `lookups` from a node's count. At zero the node is removed.
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
            // A renumbered file never gets its old number back: the kernel may still hold that number.
            if !self.keeps_number(key) {
                table.foreign.remove(&key);
            }
        }
    }

    /// Gives the file behind a node a new number, and keeps the file open until the kernel opens it by
    /// that number. Requests with the old number fail with ESTALE, and the kernel then looks the name up
    /// again.
    pub fn renumber(&self, node: &Node, file: &Arc<OpenFile>) {
        let mut table = self.table.lock();
        // Another open may have renumbered it first.
        if table.nodes.get(&node.number).is_none_or(|known| !std::ptr::eq(&*known.node, node)) {
            return;
        }
        table.nodes.remove(&node.number);
        let number = table.next_foreign;
        table.next_foreign += 1;
        table.foreign.insert(node.key, number);
        let renumbered = Node::new(number, node.key, node.kind, node.generation);
        renumbered.in_use.lock().send_back(file);
        table.nodes.insert(number, KnownInode { node: renumbered, lookups: 0, generation: 0 });
    }

    /// The stored path of a node for a log line; its inode number if the path is unknown.
    pub fn stored_path(&self, number: u64) -> String {
        let mut parts = Vec::new();
        let mut at = number;
        while at != ROOT && parts.len() < PATH_DEPTH {
            let Ok(node) = self.get(at) else { break };
            // If the node is being renamed right now, use its number: a log line must not block.
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

    fn number(&self, table: &InodeTable, key: Key) -> Option<u64> {
        match key == self.root {
            true => Some(ROOT),
            false => table.foreign.get(&key).copied().or_else(|| self.keeps_number(key).then_some(key.1)),
        }
    }

    /// Whether an inode keeps the store's number.
    pub fn keeps_number(&self, (device, inode): Key) -> bool {
        device == self.root.0 && self.is_of_store(inode)
    }

    /// Whether a number is one of the store's.
    pub fn is_of_store(&self, number: u64) -> bool {
        number > ROOT && number < FOREIGN
    }

    fn count(&self, key: Key, kind: Kind, generation: u64) -> CountedLookup {
        let mut table = self.table.lock();
        let number = self.number(&table, key).unwrap_or_else(|| {
            let number = table.next_foreign;
            table.next_foreign += 1;
            table.foreign.insert(key, number);
            number
        });
        let known = table.nodes.entry(number).or_insert_with(|| KnownInode {
            node: Node::new(number, key, kind, generation),
            lookups: 0,
            generation,
        });
        known.lookups = known.lookups.saturating_add(1);
        CountedLookup { node: known.node.clone(), generation: known.generation, first: known.lookups == 1 }
    }

    /// Replaces `old` with a new node, because the store has reused its inode number. The kernel may
    /// still hold `old`, so both share one lookup count.
    fn renew(&self, old: &Arc<Node>, key: Key, kind: Kind, generation: u64) -> (Arc<Node>, u64) {
        let mut table = self.table.lock();
        let known = table.nodes.entry(old.number).or_insert_with(|| KnownInode {
            node: old.clone(),
            lookups: 1,
            generation: 0,
        });
        if Arc::ptr_eq(&known.node, old) {
            known.node = Node::new(old.number, key, kind, generation);
            // The store has no generations, or another file was written over this one.
            let is_same = generation == known.generation;
            known.generation = if is_same { generation + 1 } else { generation };
        }
        (known.node.clone(), known.generation)
    }
}

#[cfg(test)]
mod tests;

//! Explores faults: one call fails or the machine stops there, then another operation runs, and then the
//! power fails.

use super::{
    rules::{ALL, break_rule},
    *,
};
use crypto::{cipher::Cipher, secret::Secret};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

const OWNER: ListOwner = ListOwner::File([3; 32]);
/// Room for one small attribute.
const ROOM: usize = 40;
const SMALL: &[u8] = b"s";
const LARGE: &[u8] = b"too large";

/// State of the store: the durable part alone, or with all changes in flight applied.
#[derive(Clone, Default)]
struct State {
    attributes: BTreeMap<OsString, Vec<u8>>,
    /// Contents of files by number. `names` refers to them.
    files: BTreeMap<usize, Vec<u8>>,
    names: BTreeMap<OsString, usize>,
}

#[derive(Clone)]
enum Change {
    Attribute(OsString, Option<Vec<u8>>),
    Content(usize, Vec<u8>),
    Name(OsString, Option<usize>),
    Rename(OsString, OsString),
}

impl State {
    fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::Attribute(name, Some(value)) => drop(self.attributes.insert(name, value)),
            Change::Attribute(name, None) => drop(self.attributes.remove(&name)),
            Change::Content(file, content) => drop(self.files.insert(file, content)),
            Change::Name(name, Some(file)) => drop(self.names.insert(name, file)),
            Change::Name(name, None) => drop(self.names.remove(&name)),
            Change::Rename(from, to) => {
                if let Some(file) = self.names.remove(&from) {
                    self.names.insert(to, file);
                }
            }
        }
    }
}

/// How one call fails: without effect, or after it took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Before,
    After,
    /// This call and all later ones fail, because the machine stopped.
    Stop,
}

/// A store in memory.
#[derive(Default)]
struct Store {
    durable: RefCell<State>,
    under_way: RefCell<Vec<Change>>,
    calls: Cell<usize>,
    fault: Cell<Option<(usize, Fault)>>,
    files: Cell<usize>,
    uncertain: AtomicBool,
}

impl Store {
    fn now(&self) -> State {
        let mut state = self.durable.borrow().clone();
        self.under_way.borrow().iter().for_each(|change| state.apply(change));
        state
    }

    /// Counts a call, and makes it fail if it is the faulty one.
    fn call<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let call = self.calls.replace(self.calls.get() + 1);
        match self.fault.get() {
            Some((at, Fault::Stop)) if call >= at => Err(Errno::IO.into()),
            Some((at, Fault::Before)) if call == at => Err(Errno::IO.into()),
            Some((at, Fault::After)) if call == at => {
                let _ = work();
                Err(Errno::IO.into())
            }
            _ => work(),
        }
    }

    fn change(&self, change: Change) {
        self.under_way.borrow_mut().push(change);
    }

    /// Makes the changes that `is` selects durable.
    fn settle(&self, is: impl Fn(&Change) -> bool) {
        self.under_way.borrow_mut().retain(|change| {
            let settled = is(change);
            if settled {
                self.durable.borrow_mut().apply(change);
            }
            !settled
        });
    }

    /// Every state that a power cut may leave.
    fn after_a_cut(&self) -> Vec<Store> {
        let under_way = self.under_way.borrow();
        let subsets = 0..1_usize << under_way.len();
        let store = |kept: usize| {
            let mut state = self.durable.borrow().clone();
            let kept = under_way.iter().enumerate().filter(|(n, _)| kept >> n & 1 == 1);
            kept.for_each(|(_, change)| state.apply(change));
            Store { durable: RefCell::new(state), files: self.files.clone(), ..Store::default() }
        };
        subsets.map(store).collect()
    }
}

impl Places for &Store {
    fn accept_former(&self, _: &[u8]) -> bool {
        true
    }

    fn attribute(&self, stored: &OsStr) -> io::Result<Option<Vec<u8>>> {
        self.call(|| Ok(self.now().attributes.get(stored).cloned()))
    }

    fn set_attribute(&self, stored: &OsStr, value: &[u8], flags: XattrFlags) -> io::Result<()> {
        assert!(flags.is_empty());
        self.call(|| {
            let now = self.now().attributes;
            let others = now.iter().filter(|(name, _)| *name != stored);
            if others.map(|(_, value)| value.len()).sum::<usize>() + value.len() > ROOM {
                return Err(Errno::NOSPC.into());
            }
            self.change(Change::Attribute(stored.to_owned(), Some(value.to_vec())));
            Ok(())
        })
    }

    fn remove_attribute(&self, stored: &OsStr) -> io::Result<bool> {
        self.call(|| {
            let is_there = self.now().attributes.contains_key(stored);
            if is_there {
                self.change(Change::Attribute(stored.to_owned(), None));
            }
            Ok(is_there)
        })
    }

    fn names_len(&self) -> io::Result<usize> {
        self.call(|| Ok(self.now().attributes.keys().map(|name| name.len() + 1).sum()))
    }

    fn sync_attributes(&self) -> io::Result<()> {
        self.call(|| {
            self.settle(|change| matches!(change, Change::Attribute(..)));
            Ok(())
        })
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn read(&self, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
        self.call(|| {
            let now = self.now();
            Ok(now.names.get(name).map(|file| now.files.get(file).cloned().unwrap_or_default()))
        })
    }

    fn write(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        self.call(|| {
            let file = self.files.replace(self.files.get() + 1);
            self.change(Change::Name(name.to_owned(), Some(file)));
            self.change(Change::Content(file, content.to_vec()));
            Ok(())
        })
    }

    fn sync(&self, name: &OsStr) -> io::Result<()> {
        self.call(|| {
            let file = self.now().names.get(name).copied();
            self.settle(|change| matches!(change, Change::Content(n, _) if Some(*n) == file));
            Ok(())
        })
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.call(|| {
            self.change(Change::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn unlink(&self, name: &OsStr) -> io::Result<bool> {
        self.call(|| {
            let is_there = self.now().names.contains_key(name);
            if is_there {
                self.change(Change::Name(name.to_owned(), None));
            }
            Ok(is_there)
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call(|| {
            self.settle(|change| matches!(change, Change::Name(..) | Change::Rename(..)));
            Ok(())
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Set(&'static str, &'static [u8]),
    Remove(&'static str),
    /// fsync(2) of the node.
    Sync,
    /// A rotation renews the list.
    Renew,
}

const OPS: [Op; 8] = [
    Op::Set("user.a", SMALL),
    Op::Set("user.a", LARGE),
    Op::Set("user.b", SMALL),
    Op::Set("user.b", LARGE),
    Op::Remove("user.a"),
    Op::Remove("user.b"),
    Op::Sync,
    Op::Renew,
];

type Value = Option<Vec<u8>>;

/// A store, and the values that each attribute may have after a power cut. The last one is the present
/// value.
struct Case<'a> {
    keys: &'a [XattrKeys; 2],
    store: Store,
    may_be: BTreeMap<&'static str, Vec<Value>>,
    /// Attributes whose last change failed. An fsync of the node confirms none of their values.
    failed: BTreeSet<&'static str>,
}

fn attribute(name: &str) -> Attribute<'_> {
    Attribute { name: OsStr::new(name), stored: OsStr::new(name) }
}

impl Case<'_> {
    fn attributes(&self) -> Attributes<'_, &Store> {
        Attributes {
            places: &self.store,
            keys: &self.keys[1],
            former: Some(&self.keys[0]),
            owner: OWNER,
            uncertain: &self.store.uncertain,
        }
    }

    fn get(&self, name: &str) -> std::result::Result<Value, String> {
        let attributes = self.attributes();
        let list = attributes.list().map_err(|e| e.to_string())?;
        if let Some(value) = list.as_ref().and_then(|list| list.get(name.as_bytes())) {
            return Ok(Some(value.to_vec()));
        }
        let stored = attributes.places.attribute(OsStr::new(name)).map_err(|e| e.to_string())?;
        let open = |stored: Vec<u8>| self.keys[1].decode_value(OWNER.owner(), name.as_bytes(), &stored);
        stored.map(open).transpose().map_err(|_| "does not authenticate".to_owned())
    }

    /// Runs the operation, and records the values that are possible afterwards.
    fn run(&mut self, op: Op) -> std::result::Result<(), String> {
        let attributes = self.attributes();
        let (name, value, done) = match op {
            Op::Set(name, value) => {
                let flags = XattrFlags::empty();
                let done = match attributes.set_on_node(attribute(name), value, flags) {
                    Ok(false) => attributes.set_in_list(attribute(name), value, flags),
                    set => set.map(drop),
                };
                (name, Some(value.to_vec()), done)
            }
            Op::Remove(name) => (name, None, attributes.remove(attribute(name))),
            Op::Sync => {
                if attributes.places.sync_attributes().is_ok() {
                    let confirmed = self.may_be.iter_mut().filter(|(name, _)| !self.failed.contains(*name));
                    confirmed.for_each(|(_, values)| drop(values.drain(..values.len() - 1)));
                }
                return Ok(());
            }
            Op::Renew => {
                // A failed renewal is repeated later.
                let _ = attributes.list().and_then(|list| list.map_or(Ok(()), |list| attributes.put(&list)));
                return Ok(());
            }
        };
        let had = self.may_be[name].last().cloned().flatten();
        if matches!(done, Err(Error::NoAttribute)) && had.is_none() {
            return Ok(());
        }
        let failed = done.is_err();
        if failed && self.store.fault.get().is_none() {
            return Err(format!("{op:?} fails: {}", done.unwrap_err()));
        }
        if let Some(values) = self.may_be.get_mut(name) {
            values.push(value.clone());
        }
        if failed {
            self.failed.insert(name)
        } else {
            self.failed.remove(name)
        };
        if failed {
            if let Some((_, Fault::Stop)) = self.store.fault.replace(None) {
                // The process was killed, and another one starts.
                self.store.uncertain.store(true, Ordering::Relaxed);
            }
            let now = self.get(name)?;
            if now != value && now != had {
                return Err(format!("after {op:?} failed: {now:?}"));
            }
            if let Some(values) = self.may_be.get_mut(name) {
                values.push(now);
            }
        }
        Ok(())
    }

    /// Checks that the present value is the one set last, and that every value after a power cut is a
    /// possible one.
    fn check(&self) -> std::result::Result<(), String> {
        for (name, values) in &self.may_be {
            let now = self.get(name)?;
            if Some(&now) != values.last() {
                return Err(format!("{name} is {now:?}"));
            }
        }
        for store in self.store.after_a_cut() {
            let after = Case { keys: self.keys, store, may_be: BTreeMap::new(), failed: BTreeSet::new() };
            for (name, values) in &self.may_be {
                let now = after.get(name).map_err(|e| format!("after a power cut: {name}: {e}"))?;
                if !values.contains(&now) {
                    return Err(format!("after a power cut {name} is {now:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A vault in the middle of a rotation, after `ops`. Its list is under the former keys if `old`.
fn begin<'a>(keys: &'a [XattrKeys; 2], old: bool, ops: &[Op]) -> Case<'a> {
    let may_be = ["user.a", "user.b"].map(|name| (name, vec![None])).into();
    let mut case = Case { keys, store: Store::default(), may_be, failed: BTreeSet::new() };
    if old {
        let mut list = XattrList::default();
        assert!(list.insert(b"user.a", LARGE));
        let attributes = Attributes {
            places: &case.store,
            keys: &keys[0],
            former: None,
            owner: OWNER,
            uncertain: &case.store.uncertain,
        };
        attributes.put(&list).unwrap();
        case.may_be.insert("user.a", vec![Some(LARGE.to_vec())]);
    }
    ops.iter().for_each(|op| case.run(*op).unwrap());
    case
}

/// Tries every pair of first operations, every fault of a third one, and every fourth one before or
/// after a sync of the node. Returns the first error, and how many cases passed before it.
fn explore() -> (Option<String>, usize) {
    let key = |byte| XattrKeys::derive(&Secret::new_with(|k| k.fill(byte)), Cipher::Aes128);
    let keys = [key(1), key(2)];
    let mut cases = 0;
    for (old, first, second, third) in sequences() {
        let mut case = begin(&keys, old, &[first, second]);
        let before = case.store.calls.get();
        let done = case.run(third);
        let calls = before..case.store.calls.get();
        let tried = done.and_then(|()| case.check());
        let say = |fault: &dyn std::fmt::Debug, e: String| {
            Some(format!("{old} {first:?} {second:?} {third:?} {fault:?}: {e}"))
        };
        if let Err(e) = tried {
            return (say(&"", e), cases);
        }
        for (at, fault) in
            calls.flat_map(|at| [Fault::Before, Fault::After, Fault::Stop].map(|fault| (at, fault)))
        {
            for tail in OPS.map(|op| [op, Op::Sync]).into_iter().chain(OPS.map(|op| [Op::Sync, op])) {
                let mut case = begin(&keys, old, &[first, second]);
                case.store.fault.set(Some((at, fault)));
                let mut tried = case.run(third);
                if let Some((_, Fault::Stop)) = case.store.fault.replace(None) {
                    case.store.uncertain.store(true, Ordering::Relaxed);
                }
                for op in tail {
                    tried = tried.and_then(|()| case.check()).and_then(|()| case.run(op));
                }
                if let Err(e) = tried.and_then(|()| case.check()) {
                    return (say(&(at, fault, tail), e), cases);
                }
                cases += 1;
            }
        }
    }
    (None, cases)
}

fn sequences() -> impl Iterator<Item = (bool, Op, Op, Op)> {
    let pairs = [false, true].into_iter().flat_map(|old| OPS.map(|first| (old, first)));
    pairs.flat_map(|(old, a)| OPS.into_iter().flat_map(move |b| OPS.map(|c| (old, a, b, c))))
}

#[test]
fn nothing_is_lost_and_nothing_comes_back() {
    let (found, cases) = explore();
    assert_eq!(found, None, "after {cases} cases");
    assert!(cases > 1000, "{cases}");
}

#[test]
fn every_broken_rule_is_found() {
    let found: BTreeSet<String> = ALL
        .into_iter()
        .filter(|rule| {
            break_rule(Some(*rule));
            let (found, cases) = explore();
            break_rule(None);
            println!("{rule:?}: {found:?} after {cases} cases");
            found.is_none()
        })
        .map(|rule| format!("{rule:?}"))
        .collect();
    assert_eq!(found, BTreeSet::new(), "rules that can be broken");
}

#[test]
fn the_kernel_can_list_every_name() {
    let keys = XattrKeys::derive(&Secret::new_with(|k| k.fill(1)), Cipher::Aes128);
    let store = Store::default();
    let attributes =
        Attributes { places: &store, keys: &keys, former: None, owner: OWNER, uncertain: &store.uncertain };
    let set = |name: &str| {
        let none = XattrFlags::empty();
        match attributes.set_on_node(attribute(name), b"", none)? {
            true => Ok(()),
            false => attributes.set_in_list(attribute(name), b"", none),
        }
    };
    let names: Vec<String> =
        (0..).map(|n| format!("user.{n:0155}")).take_while(|name| set(name).is_ok()).collect();
    let len: usize = names.iter().map(|name| name.len() + 1).sum();
    assert!((64_000..65_536).contains(&len), "{len}");
    let full = set(&format!("user.{:0155}", names.len()));
    assert!(
        matches!(&full, Err(Error::Store(e)) if Errno::from_io_error(e) == Some(Errno::NOSPC)),
        "{full:?}"
    );
    set(&names[300]).unwrap();
    attributes.remove(attribute(&names[300])).unwrap();
    set(&names[300]).unwrap();
}

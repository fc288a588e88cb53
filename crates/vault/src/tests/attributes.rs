//! Attributes together with content: set, written, synced and closed in every order, with every call
//! failing once, and with power cuts. Everything that fsync confirmed is present. Attributes bound to a
//! salt that a power cut lost count as absent, and opening never fails.

use crate::{cases, ownerless::drop_ownerless};
use content::{
    Background, Context, File, Result,
    testing::{context_over, keys, read_all},
};
use crypto::{cipher::Cipher, integrity::Integrity, secret::Secret};
use format::xattr::{Owner, XattrKeys};
use std::{
    cell::Cell,
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    sync::Arc,
};
use store::{BackingFile, Failure, FaultyFile};

const NAME: &str = "user.a";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// setxattr(2)
    Set,
    Write,
    /// fsync(2)
    Sync,
    /// close(2), and open(2).
    Close,
    /// A power cut, after which the file is opened.
    Cut,
}

const OPS: [Op; 5] = [Op::Set, Op::Write, Op::Sync, Op::Close, Op::Cut];

/// A failing call within one operation.
#[derive(Debug, Clone, Copy)]
struct Fault {
    op: usize,
    call: u64,
    failure: Failure,
}

/// The context for opening files, and the way to make them durable.
struct World {
    context: Arc<Context>,
    keys: XattrKeys,
    sync: fn(&File) -> Result<()>,
    /// Whether the injected fault occurred.
    failed: Cell<bool>,
    /// Number of states checked.
    states: Cell<usize>,
}

impl World {
    fn new(vacate: fn(&dyn BackingFile) -> io::Result<()>, sync: fn(&File) -> Result<()>) -> Self {
        let context = Context {
            keys: keys(Cipher::Aes128, Integrity::TurboShake128x4),
            vacate: Box::new(vacate),
            ..context_over(Background::at_once())
        };
        World {
            context: Arc::new(context),
            keys: XattrKeys::derive(&Secret::new_with(|key| key.fill(8)), Cipher::Aes128),
            sync,
            failed: Cell::default(),
            states: Cell::default(),
        }
    }

    fn stored_name(&self) -> OsString {
        self.keys.encode_name(NAME.as_bytes()).unwrap().into()
    }

    /// Sets the attribute as the vault does.
    fn set(&self, case: &Case, value: &[u8]) -> Result<()> {
        let salt = case.file.salt(true)?.unwrap();
        let value = self.keys.encode_value(Owner::File(&salt), NAME.as_bytes(), value)?;
        Ok(case.store.set_attribute(&self.stored_name(), &value)?)
    }

    /// Reads the attribute as the vault does.
    fn get(&self, case: &Case) -> Told<Option<Vec<u8>>> {
        let salt = case.file.salt(false).map_err(|e| e.to_string())?;
        let sealed = case.store.attributes().remove(&self.stored_name());
        let Some((salt, sealed)) = salt.zip(sealed) else { return Ok(None) };
        let opened = self.keys.decode_value(Owner::File(&salt), NAME.as_bytes(), &sealed);
        opened.map(Some).map_err(|_| "the attribute does not authenticate".to_owned())
    }
}

type Told<T = ()> = std::result::Result<T, String>;

/// The possible values: all since the last confirmed one.
#[derive(Clone)]
struct MayBe<T> {
    values: Vec<T>,
    /// Only the last value is possible, because no change failed.
    certain: bool,
}

impl<T: PartialEq + std::fmt::Debug> MayBe<T> {
    fn changed(&mut self, value: T, done: bool) {
        self.values.push(value);
        self.certain = done;
    }

    fn compare(&self, now: &T) -> Told {
        let fits = if self.certain { self.values.last() == Some(now) } else { self.values.contains(now) };
        if fits { Ok(()) } else { Err(format!("{now:?} is none of {:?}", self.values)) }
    }

    fn confirm(&mut self, now: T) {
        *self = MayBe { values: vec![now], certain: true };
    }
}

struct Case {
    store: Arc<FaultyFile>,
    file: Arc<File>,
    content: MayBe<Vec<u8>>,
    attribute: MayBe<Option<Vec<u8>>>,
}

impl Case {
    /// A newly created file.
    fn new(world: &World) -> Case {
        let store = FaultyFile::new();
        let file = File::fresh(store.clone(), world.context.clone());
        let content = MayBe { values: vec![Vec::new()], certain: true };
        Case { store, file, content, attribute: MayBe { values: vec![None], certain: true } }
    }

    /// Closes and reopens the file. Data lost by a failed sync is read from the disk again.
    fn reopen(&mut self, world: &World) -> Told {
        if self.file.flush().is_err() || self.file.failed() {
            (self.content.certain, self.attribute.certain) = (false, false);
            self.store.evict(|_| 0);
        }
        let open = || File::open(self.store.clone(), world.context.clone());
        // Retry once, because the first attempt may hit the injected fault.
        self.file = open().or_else(|_| open()).map_err(|e| format!("opening: {e}"))?;
        Ok(())
    }

    /// All states that a power cut can leave.
    fn cuts(&self) -> Vec<Arc<FaultyFile>> {
        let (state, mut seen, mut cuts) = (self.store.snapshot(), BTreeSet::new(), Vec::new());
        let mut choices: Vec<(usize, usize)> = Vec::new();
        loop {
            let mut at = 0;
            let cut = state.power_cut(
                |_| false,
                |n| {
                    if at == choices.len() {
                        choices.push((0, n));
                    }
                    at += 1;
                    choices[at - 1].0
                },
            );
            let store = FaultyFile::at(&cut);
            if seen.insert((store.bytes(), store.attributes())) {
                cuts.push(store);
            }
            while choices.last().is_some_and(|(choice, n)| choice + 1 == *n) {
                choices.pop();
            }
            match choices.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => return cuts,
            }
        }
    }

    fn do_one(&mut self, world: &World, op: Op, number: usize) -> Told {
        let new = vec![number as u8 + 1; 5 + number];
        match op {
            Op::Set => {
                let done = world.set(self, &new).is_ok();
                self.attribute.changed(Some(new), done);
            }
            Op::Write => {
                let done = self.file.write(0, &new).and_then(|()| self.file.flush()).is_ok();
                let mut content = new;
                content.extend(self.content.values.last().unwrap().iter().skip(content.len()));
                self.content.changed(content, done);
            }
            Op::Sync => {
                if (world.sync)(&self.file).is_ok() {
                    self.store.calm();
                    self.look(world)?;
                    self.content.confirm(read_all(&self.file).map_err(|e| e.to_string())?);
                    self.attribute.confirm(world.get(self)?);
                }
            }
            Op::Close => self.reopen(world)?,
            Op::Cut => unreachable!(),
        }
        Ok(())
    }

    fn look(&self, world: &World) -> Told {
        world.states.set(world.states.get() + 1);
        let content = read_all(&self.file).map_err(|e| format!("content: {e}"))?;
        self.content.compare(&content).map_err(|e| format!("content: {e}"))?;
        self.attribute.compare(&world.get(self)?).map_err(|e| format!("attribute: {e}"))
    }

    /// Runs `ops`, where the first one has index `number`, then cuts the power and checks the remaining
    /// states.
    fn go(mut self, world: &World, ops: &[Op], number: usize, fault: Option<Fault>) -> Told {
        let Some((op, rest)) = ops.split_first() else {
            return self.each_cut(world, None, |case| case.goes_on(world));
        };
        let fault_here = fault.filter(|fault| fault.op == number);
        if *op == Op::Cut {
            return self.each_cut(world, fault_here, |case| case.go(world, rest, number + 1, fault));
        }
        if let Some(Fault { call, failure, .. }) = fault_here {
            self.store.fail_at(call, 1, failure);
        }
        self.do_one(world, *op, number)?;
        self.calm(world);
        if self.file.failed() {
            self.reopen(world)?;
        }
        self.look(world)?;
        self.go(world, rest, number + 1, fault)
    }

    fn calm(&self, world: &World) {
        self.store.calm();
        world.failed.set(world.failed.get() || self.store.failed() > 0);
    }

    fn each_cut(&self, world: &World, fault: Option<Fault>, mut then: impl FnMut(Case) -> Told) -> Told {
        for store in self.cuts() {
            if let Some(Fault { call, failure, .. }) = fault {
                store.fail_at(call, 1, failure);
            }
            let open = || File::open(store.clone(), world.context.clone());
            let file = open().or_else(|_| open()).map_err(|e| format!("after a power cut: {e}"))?;
            let (mut content, mut attribute) = (self.content.clone(), self.attribute.clone());
            (content.certain, attribute.certain) = (false, false);
            let mut case = Case { store: store.clone(), file, content, attribute };
            case.calm(world);
            if case.file.failed() {
                case.reopen(world)?;
            }
            case.look(world).map_err(|e| format!("after a power cut: {e}"))?;
            // The state after recovery is durable, whatever it is.
            case.content.confirm(read_all(&case.file).map_err(|e| e.to_string())?);
            case.attribute.confirm(world.get(&case)?);
            then(case)?;
        }
        Ok(())
    }

    /// Checks that an attribute can be set, and is present after an fsync.
    fn goes_on(mut self, world: &World) -> Told {
        self.do_one(world, Op::Set, 9)?;
        self.do_one(world, Op::Sync, 10)?;
        self.each_cut(world, None, |case| match world.get(&case)?.as_deref() {
            Some([10, ..]) => Ok(()),
            now => Err(format!("what is set afterwards is {now:?}")),
        })
    }
}

/// Runs all sequences, with every call of each failing once. Returns the first problem found, and the
/// number of states checked.
fn explore(world: &World) -> (Option<String>, usize) {
    for ops in sequences() {
        let run = |fault| {
            let told = Case::new(world).go(world, &ops, 0, fault);
            told.err().map(|e| format!("{ops:?} {fault:?}: {e}"))
        };
        if let Some(found) = run(None) {
            return (Some(found), world.states.get());
        }
        for op in 0..ops.len() {
            let kinds = [Failure::Errno, Failure::Landed, Failure::Lost].map(|kind| kind(libc::EIO));
            for failure in &kinds[..if ops[op] == Op::Sync { 3 } else { 2 }] {
                for call in 0.. {
                    world.failed.set(false);
                    if let Some(found) = run(Some(Fault { op, call, failure: *failure })) {
                        return (Some(found), world.states.get());
                    }
                    if !world.failed.get() {
                        break;
                    }
                }
            }
        }
    }
    (None, world.states.get())
}

/// All sequences of up to three operations, and a sample of those with four. The first operation changes
/// the file, because no other matters for a new file.
fn sequences() -> Vec<Vec<Op>> {
    let longer = |all: &Vec<Vec<Op>>| {
        all.iter().flat_map(|ops| OPS.map(|op| [&ops[..], &[op]].concat())).collect::<Vec<_>>()
    };
    let first = vec![vec![Op::Set], vec![Op::Write]];
    let mut by_length: Vec<_> = std::iter::successors(Some(first), |all| Some(longer(all))).take(4).collect();
    let longest = &mut by_length[3];
    // Coprime to the number of operations, so that each is equally often the last one.
    *longest = longest.iter().step_by(cases(4, 1) as usize).cloned().collect();
    by_length.concat()
}

#[test]
fn no_order_leaves_an_attribute_that_fails_or_takes_a_confirmed_one() {
    let (found, states) = explore(&World::new(drop_ownerless, File::sync_whole));
    println!("{states} states");
    assert_eq!(found, None, "after {states} states");
    assert!(states > 10_000, "{states}");
}

#[test]
fn what_would_leave_one_is_found() {
    let left: fn(&dyn BackingFile) -> io::Result<()> = |_| Ok(());
    let not_durable: fn(&dyn BackingFile) -> io::Result<()> =
        |file| file.attribute_names()?.iter().try_for_each(|name: &OsString| file.remove_attribute(name));
    let synced_once: fn(&dyn BackingFile) -> io::Result<()> = |file| {
        let names = file.attribute_names()?;
        names.iter().try_for_each(|name: &OsString| file.remove_attribute(OsStr::new(name)))?;
        if names.is_empty() { Ok(()) } else { file.sync_whole() }
    };
    let content_alone: fn(&File) -> Result<()> = File::sync;
    for (vacate, sync, what) in [
        (left, File::sync_whole as fn(&File) -> Result<()>, "does not authenticate"),
        (not_durable, File::sync_whole, "does not authenticate"),
        (synced_once, File::sync_whole, "does not authenticate"),
        (drop_ownerless, content_alone, "attribute: None is none of"),
    ] {
        let (found, states) = explore(&World::new(vacate, sync));
        println!("{found:?} after {states} states");
        assert!(found.as_ref().is_some_and(|found| found.contains(what)), "{what}: {found:?}");
    }
}

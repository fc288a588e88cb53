//! Rewrites a file under another key. Nothing is lost, whichever call fails and whenever the machine
//! stops.

use super::*;
use crate::{
    Rewrite, Rewrites, Sectors,
    rules::{Rule, break_rule},
};
use format::record::RECORD;
use parking_lot::Mutex;
use std::{
    ffi::OsString,
    io,
    sync::atomic::{AtomicBool, AtomicU64},
};

/// The fault injected at a changing call of the store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    /// This call fails, but the next one does not.
    Failure(i32),
    /// The machine stops before the call.
    Stop,
}

/// Everything that a rotation changes. Counts the calls and injects the fault.
#[derive(Default)]
struct Machine {
    calls: AtomicU64,
    trouble: Mutex<Option<(u64, Trouble)>>,
    stopped: AtomicBool,
}

impl Machine {
    fn change(&self) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match *self.trouble.lock() {
            _ if self.stopped.load(Ordering::Relaxed) => Err(io::Error::from_raw_os_error(libc::EIO)),
            Some((at, Trouble::Failure(errno))) if at == call => Err(io::Error::from_raw_os_error(errno)),
            Some((at, Trouble::Stop)) if at == call => {
                self.stopped.store(true, Ordering::Relaxed);
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            _ => Ok(()),
        }
    }
}

/// A file of the machine.
struct Part {
    file: Arc<FaultyFile>,
    machine: Arc<Machine>,
}

impl BackingFile for Part {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.machine.change()?;
        self.file.write_at(buf, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.machine.change()?;
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.machine.change()?;
        self.file.sync_data()
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.machine.change()?;
        self.file.punch(offset, len)
    }
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.file.next_data(offset)
    }
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.reserve(offset, len)
    }
    fn mtime(&self) -> io::Result<(i64, u32)> {
        self.file.mtime()
    }
    fn set_mtime(&self, seconds: i64, nanoseconds: u32) -> io::Result<()> {
        self.file.set_mtime(seconds, nanoseconds)
    }
}

/// A name in the directory of new forms.
#[derive(Clone)]
struct Name {
    name: OsString,
    file: Arc<FaultyFile>,
    shown: bool,
    durable: bool,
}

/// The directory of new forms.
#[derive(Clone, Default)]
struct Forms {
    names: Arc<Mutex<Vec<Name>>>,
    machine: Arc<Machine>,
}

impl Rewrites for Forms {
    fn begin(&self) -> io::Result<Rewrite> {
        self.machine.change()?;
        let mut names = self.names.lock();
        let name = OsString::from(format!("{}", names.len()));
        let file = FaultyFile::new();
        names.push(Name { name: name.clone(), file: file.clone(), shown: true, durable: false });
        Ok(Rewrite { name, store: Arc::new(Part { file, machine: self.machine.clone() }) })
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.change()?;
        self.names.lock().iter_mut().for_each(|name| name.durable = name.shown);
        Ok(())
    }

    fn remove(&self, rewrite: &Rewrite) -> io::Result<()> {
        self.machine.change()?;
        self.names.lock().iter_mut().filter(|n| n.name == rewrite.name).for_each(|n| n.shown = false);
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        unreachable!("one file does not end a rotation")
    }

    fn left(&self, wanted: &dyn Fn(&Sectors) -> bool) -> io::Result<Option<Rewrite>> {
        let names = self.names.lock();
        let found = names.iter().filter(|name| name.shown).find(|name| {
            let mut own = [[0; RECORD]; 2];
            let read = name.file.read_at(own.as_flattened_mut(), 0).unwrap();
            read == 2 * RECORD && wanted(&own)
        });
        let store =
            |file: &Arc<FaultyFile>| Arc::new(Part { file: file.clone(), machine: self.machine.clone() });
        Ok(found.map(|name| Rewrite { name: name.name.clone(), store: store(&name.file) }))
    }
}

fn kdf(byte: u8) -> FileKdf {
    FileKdf::new(Secret::new_with(|key| key.fill(byte)), Cipher::Aes128, Integrity::TurboShake128x4)
}

/// A vault whose key was changed.
fn rotating(forms: &Forms, read_only: bool) -> Arc<Context> {
    let keys = ContentKeys::after((0, kdf(7)), (1, kdf(8)));
    let rewrites: Option<Box<dyn Rewrites>> = Some(Box::new(forms.clone()));
    Arc::new(Context { keys, rewrites, read_only, ..context_over(Background::at_once()) })
}

/// The state left by a stop.
#[derive(Clone)]
struct World {
    file: Arc<FaultyFile>,
    forms: Forms,
}

impl World {
    /// A durable file with this content under the first key.
    fn of(content: &[u8], hole: bool) -> World {
        let keys = ContentKeys::new(0, kdf(7));
        let context = Arc::new(Context { keys, ..context_over(Background::at_once()) });
        let file = FaultyFile::new();
        let old = open(&file, &context);
        old.write(0, content).unwrap();
        if hole {
            old.truncate(content.len() as u64 + (1 << 20)).unwrap();
        }
        old.sync().unwrap();
        clean(&old);
        file.sync_data().unwrap();
        World { file, forms: Forms::default() }
    }

    fn part(&self) -> Arc<dyn BackingFile> {
        Arc::new(Part { file: self.file.clone(), machine: self.forms.machine.clone() })
    }

    fn open(&self) -> Result<Arc<File>, Error> {
        File::open(self.part(), rotating(&self.forms, false))
    }

    /// The state after a restart, following a kill or a power cut.
    fn again(&self, rng: &mut Rng, power: bool) -> World {
        let left = |file: &FaultyFile, rng: &mut Rng| match power {
            false => FaultyFile::killed(&file.snapshot()),
            true => {
                FaultyFile::at(&file.snapshot().power_cut(|page| page == 0, |n| rng.below(n as u64) as usize))
            }
        };
        let file = left(&self.file, rng);
        let names = self.forms.names.lock();
        let names = names.iter().map(|name| {
            let shown = if power && rng.below(2) == 0 { name.durable } else { name.shown };
            Name { file: left(&name.file, rng), shown, durable: shown, ..name.clone() }
        });
        let names = Arc::new(Mutex::new(names.collect::<Vec<_>>()));
        World { file, forms: Forms { names, machine: Arc::default() } }
    }
}

/// The contents that may be read: the last confirmed one, and all written since.
struct Contents(Vec<Vec<u8>>);

/// The change that a program makes to the file.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write,
    /// Truncation to this size.
    Cut(usize),
}

impl Contents {
    /// Changes the file. A failed change is not visible in the open file, but the store may have it.
    fn change(&mut self, file: &Arc<File>, change: Change, number: u8) {
        let now = self.0.last().unwrap().clone();
        let mut next = now.clone();
        let done = match change {
            Change::Write => {
                next[10..14].fill(number);
                file.write(10, &next[10..14])
            }
            Change::Cut(size) => {
                next.truncate(size);
                file.truncate(size as u64)
            }
        };
        self.0.push(next);
        if done.is_err() {
            self.0.push(now);
        }
    }
}

/// Runs a program until the stop. Each round opens the file again and retries what failed.
fn run(world: &World, change: Change, rounds: u64, contents: &mut Contents) -> Result<(), String> {
    let mut number = 0;
    for _ in 0..rounds {
        let Ok(file) = world.open() else { continue };
        if read_all(&file).is_ok_and(|read| !contents.0.contains(&read)) {
            return Err("opened again, it has neither the old content nor a newer one".into());
        }
        number += 1;
        let _ = file.rekey(&|| true);
        contents.change(&file, change, 100 + number);
        if file.sync().is_ok() {
            contents.0.drain(..contents.0.len() - 1);
        }
        let _ = file.rekey(&|| true);
    }
    Ok(())
}

fn judge(world: &World, contents: &Contents, what: &str) -> Result<(), String> {
    let look = |read_only| {
        let file = File::open(world.part(), rotating(&world.forms, read_only)).map_err(|e| e.to_string())?;
        let read = read_all(&file).map_err(|e| e.to_string())?;
        if contents.0.contains(&read) {
            Ok(file)
        } else {
            Err("neither the old content nor a newer one".into())
        }
    };
    let fail = |e: String| format!("{what}: {e}");
    look(true).map_err(|e| fail(format!("read-only: {e}")))?;
    let file = look(false).map_err(fail)?;
    file.rekey(&|| true).map_err(|e| fail(e.to_string()))?;
    drop(file);
    let again = look(false).map_err(|e| fail(format!("rewritten again: {e}")))?;
    if again.has_former_key() { Err(fail("under the former key still".into())) } else { Ok(()) }
}

/// Size of the content, whether a hole follows it, and the change.
type Start = (usize, bool, Change);

/// Truncation to 0, or to the end of a chunk, writes a durable record but no slot.
const STARTS: [Start; 6] = [
    (100, false, Change::Write),
    (100, false, Change::Cut(0)),
    (5000, true, Change::Write),
    (9000, false, Change::Cut(4096)),
    (70 * 4096, true, Change::Write),
    (70 * 4096, false, Change::Cut(50 * 4096)),
];

/// Injects the fault at each call in turn, and checks the states left after this many rounds.
fn explore((len, hole, change): Start, trouble: Trouble, rounds: u64, cuts: u64) -> Result<u64, String> {
    let content = &content(len);
    let mut whole = content.to_vec();
    whole.resize(content.len() + if hole { 1 << 20 } else { 0 }, 0);
    let mut judged = 0;
    for at in 0.. {
        let world = World::of(content, hole);
        *world.forms.machine.trouble.lock() = Some((at, trouble));
        let mut contents = Contents(vec![whole.clone()]);
        run(&world, change, rounds, &mut contents)
            .map_err(|e| format!("{change:?}, {trouble:?} at call {at}: {e}"))?;
        let over = world.forms.machine.calls.load(Ordering::Relaxed) <= at;
        let mut rng = Rng(at);
        for cut in 0..=cuts {
            let left = world.again(&mut rng, cut > 0);
            judge(&left, &contents, &format!("{change:?}, {trouble:?} at call {at}, cut {cut}"))?;
            judged += 1;
        }
        if over {
            return Ok(judged);
        }
    }
    unreachable!("some run meets no trouble")
}

fn content(len: usize) -> Vec<u8> {
    Rng(len as u64).bytes(len)
}

#[test]
fn a_file_gets_another_key_and_keeps_salt_and_content() {
    for (len, hole) in [(0, false), (1, true), (5000, false), (60 * 4096 + 1, true), (200 * 4096, false)] {
        let world = World::of(&content(len), hole);
        let file = world.open().unwrap();
        let (salt, before) = (file.salt(false).unwrap(), read_all(&file).unwrap());
        assert_eq!(file.has_former_key(), len > 0, "{len}");
        let time = (12, 34);
        world.file.set_mtime(time.0, time.1).unwrap();
        assert_eq!(file.rekey(&|| true).unwrap(), len > 0);
        assert_eq!((file.salt(false).unwrap(), read_all(&file).unwrap()), (salt, before.clone()), "{len}");
        assert!(!file.has_former_key() && !file.rekey(&|| true).unwrap() && file.is_clean());
        assert_eq!(world.file.mtime().unwrap(), if len > 0 { time } else { world.file.mtime().unwrap() });
        assert!(world.forms.names.lock().iter().all(|name| !name.shown));
        if len > 0 {
            file.write(3, b"more").unwrap();
            file.sync().unwrap();
        }
        drop(file);
        let only_new = ContentKeys::new(1, kdf(8));
        let context = Arc::new(Context { keys: only_new, ..context_over(Background::at_once()) });
        let again = open(&world.file, &context);
        assert_eq!(read_all(&again).unwrap().get(7..), before.get(7..), "{len}");
    }
}

/// A write comes after the rewrite. Until it is durable, a crash leaves the previous content.
#[test]
fn what_is_not_stored_yet_is_kept() {
    let before = content(5000);
    for synced in [false, true] {
        let world = World::of(&before, false);
        let file = world.open().unwrap();
        file.write(4000, &[1; 9000]).unwrap();
        assert!(!file.has_former_key() && !file.rekey(&|| true).unwrap());
        let mut now = before.clone();
        now.truncate(4000);
        now.extend([1; 9000]);
        assert!(read_all(&file).unwrap() == now);
        if synced {
            file.sync().unwrap();
        }
        let again = world.again(&mut Rng(1), true).open().unwrap();
        let kept = read_all(&again).unwrap();
        assert!(!again.has_former_key() && kept == if synced { now } else { before.clone() }, "{synced}");
    }
}

#[test]
fn a_damaged_file_stays_as_it_is() {
    let world = World::of(&content(50_000), false);
    world.file.tamper(|bytes| bytes[8192] ^= 1);
    let before = world.file.bytes();
    assert!(world.open().unwrap().rekey(&|| true).is_err());
    assert_eq!(world.file.bytes(), before);
    assert!(world.forms.names.lock().iter().all(|name| !name.shown));
}

#[test]
fn one_that_is_told_to_stop_stays_as_it_is() {
    let world = World::of(&content(50_000), false);
    let file = world.open().unwrap();
    let before = (world.file.bytes(), read_all(&file).unwrap());
    assert!(file.rekey(&|| false).is_err());
    assert_eq!((world.file.bytes(), read_all(&file).unwrap()), before);
    assert!(file.has_former_key() && world.forms.names.lock().iter().all(|name| !name.shown));
    assert!(file.rekey(&|| true).unwrap());
    assert_eq!(read_all(&file).unwrap(), before.1);
}

#[test]
fn no_stop_loses_anything() {
    for start in STARTS {
        let judged = explore(start, Trouble::Stop, 2, 20).unwrap();
        println!("{start:?}: {judged} states");
    }
}

#[test]
fn no_failure_loses_anything() {
    for start in STARTS {
        for (errno, rounds) in [(libc::EIO, 1), (libc::EIO, 2), (libc::ENOSPC, 1), (libc::ENOSPC, 2)] {
            let judged = explore(start, Trouble::Failure(errno), rounds, 5).unwrap();
            println!("{start:?}: {judged} states");
        }
    }
}

/// Putting a form in place again would undo file times that the application has set since.
fn a_new_form_comes_back() -> Result<(), String> {
    let world = World::of(&content(5000), false);
    world.open().unwrap().rekey(&|| true).unwrap();
    for seed in 0..20 {
        let left = world.again(&mut Rng(seed), true);
        left.open().unwrap();
        if left.forms.machine.calls.load(Ordering::Relaxed) > 0 {
            return Err(format!("power cut {seed}: put in place again"));
        }
    }
    Ok(())
}

#[test]
fn no_new_form_comes_back() {
    a_new_form_comes_back().unwrap();
}

#[test]
fn each_rule_of_it_is_needed() {
    let [write, cut] = [(100, false, Change::Write), (9000, false, Change::Cut(4096))];
    for (rule, start, trouble, rounds) in [
        (Rule::NewFormDurable, write, Trouble::Stop, 2),
        (Rule::NewRecordsFirst, write, Trouble::Stop, 2),
        (Rule::NoNewerRecord, cut, Trouble::Failure(libc::EIO), 1),
    ] {
        break_rule(Some(rule));
        let found = explore(start, trouble, rounds, 40);
        break_rule(None);
        assert!(found.is_err(), "{rule:?} is broken, and nothing is lost");
    }
    break_rule(Some(Rule::RemovalDurable));
    let found = a_new_form_comes_back();
    break_rule(None);
    assert!(found.is_err(), "a removal is not durable, and nothing comes back");
}

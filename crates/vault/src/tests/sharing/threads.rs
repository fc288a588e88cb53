//! Three processes that work at the same time. Every write covers a whole file and has a unique number.

use super::{super::node, Draw, alone, break_rules, broken, check, fails_without, name, new_vault, share};
use crate::{Dir, OpenFile, Vault};
use content::{Error, LeaseRule};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const CHUNK: usize = 4096;
const FILES: [&str; 2] = ["one", "two"];
/// Longer than anything that the others do meanwhile.
const PATIENCE: Duration = Duration::from_secs(20);

/// Times at which a write began and was closed, on a logical clock.
#[derive(Clone, Copy)]
struct Written {
    file: usize,
    began: u64,
    closed: Option<u64>,
}

#[derive(Default)]
struct Journal {
    clock: AtomicU64,
    writes: Mutex<Vec<Written>>,
}

impl Journal {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn begin(&self, file: usize) -> u64 {
        let mut writes = self.writes.lock();
        let number = writes.len() as u64 + 1;
        writes.push(Written { file, began: self.now(), closed: None });
        number
    }

    fn close(&self, number: u64) {
        self.writes.lock()[number as usize - 1].closed = Some(self.now());
    }

    /// Whether a reader that opened the file at `opened` may see this write. It may not if another write
    /// that began after this one was closed had itself been closed by then.
    fn may_be_read(&self, file: usize, number: u64, opened: u64) -> bool {
        let writes = self.writes.lock();
        let of_file = |write: &&Written| write.file == file;
        let ended = match number {
            0 => Some(0),
            number => match writes.get(number as usize - 1).filter(of_file) {
                Some(write) => write.closed,
                None => return false,
            },
        };
        let newer = |write: &Written| {
            write.closed.is_some_and(|closed| closed < opened)
                && ended.is_some_and(|ended| ended < write.began)
        };
        !writes.iter().filter(of_file).any(newer)
    }
}

/// Content of a write: its number, repeated every eight bytes. The number also determines how many
/// chunks there are.
fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(CHUNK / 8 * (1 + number as usize % 5 * 30))
}

fn open(vault: &Vault, root: &Dir, file: usize, write: bool) -> Arc<OpenFile> {
    let (stored, _) = vault.lookup(root, name(FILES[file])).unwrap();
    vault.open_file(root, &stored, write).unwrap()
}

fn write(vault: &Vault, journal: &Journal, file: usize) {
    let root = vault.root();
    let opened = open(vault, &root, file, true);
    let number = journal.begin(file);
    let new = content(number);
    let written = opened.file.write(0, &new).and_then(|()| opened.file.truncate(new.len() as u64));
    let closed = written.and_then(|()| vault.files().flush_at_close(&opened));
    vault.files().release(opened);
    closed.unwrap();
    journal.close(number);
}

fn read(vault: &Vault, journal: &Journal, file: usize) {
    let at = journal.now();
    let opened = open(vault, &vault.root(), file, false);
    let mut out = vec![0; CHUNK * 130];
    // Read in parts, so that writers can come in between.
    let mut done = 0;
    while done < out.len() {
        let end = out.len().min(done + 3 * CHUNK);
        let read = opened.file.read(done as u64, &mut out[done..end]).unwrap();
        if read == 0 {
            break;
        }
        done += read;
    }
    vault.files().release(opened);
    for chunk in out[..done].chunks(CHUNK) {
        let number = u64::from_le_bytes(chunk[..8].try_into().unwrap());
        assert!(chunk.chunks(8).all(|part| part == &chunk[..8]), "a chunk of two writes");
        assert!(journal.may_be_read(file, number, at), "write {number} was read of {}", FILES[file]);
    }
}

/// Uses names that others create and remove at the same time.
fn names(vault: &Vault, draw: &mut Draw) {
    let root = vault.root();
    let long = "l".repeat(200);
    let inner = || -> Result<Arc<Dir>, Error> {
        let (stored, _) = vault.lookup(&root, name("d"))?;
        vault.open_dir(&root, &stored)
    };
    let done = match draw.below(6) {
        0 => vault.mkdir(&root, name("d"), node(0o755)).map(drop),
        1 => vault.rmdir_name(&root, name("d")),
        2 => {
            inner().and_then(|dir| vault.mknod(&dir, name("x"), node(0o644), super::Kind::File, 0)).map(drop)
        }
        3 => inner().and_then(|dir| vault.unlink_name(&dir, name("x"))).map(drop),
        4 => vault.mknod(&root, name(&long), node(0o644), super::Kind::File, 0).map(drop),
        _ => vault.unlink_name(&root, name(&long)).map(drop),
    };
    let usual = [Errno::EXIST, Errno::NOENT, Errno::NOTEMPTY, Errno::NOTDIR, Errno::ISDIR];
    match done {
        Err(Error::Store(e)) if Errno::from_io_error(&e).is_some_and(|e| usual.contains(&e)) => {}
        done => done.unwrap(),
    }
}

fn together(seed: u64, steps: usize) {
    let dir = new_vault();
    let first = share(dir.path(), PATIENCE);
    for file in FILES {
        let (_, _, open) = first.create(&first.root(), name(file), node(0o644)).unwrap();
        first.files().release(open);
    }
    drop(first);
    let journal = Journal::default();
    let rule = broken();
    let work = |number: u64, path: &Path| {
        break_rules(rule);
        let mut draw = Draw::new(3 * seed + number);
        let mut vault = share(path, PATIENCE);
        for _ in 0..steps {
            let file = draw.below(FILES.len());
            match draw.below(12) {
                0..=3 => write(&vault, &journal, file),
                4..=7 => read(&vault, &journal, file),
                8..=10 => names(&vault, &mut draw),
                _ => {
                    let opened = open(&vault, &vault.root(), file, true);
                    let number = journal.begin(file);
                    vault.files().life.end_after(draw.below(9) as i64);
                    let _ = opened.file.write(0, &content(number)).and_then(|()| opened.file.sync());
                    vault.files().life.end_after(0);
                    drop(opened);
                    vault.files().end_flusher(); // otherwise it runs on for a moment, with the locks
                    vault = share(path, PATIENCE);
                }
            }
        }
        vault.shut_down().unwrap();
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (work, path) = (&work, dir.path());
                scope.spawn(move || work(number, path))
            })
            .collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter().for_each(|end| end.unwrap());
    });
    let vault = alone(dir.path());
    for file in 0..FILES.len() {
        read(&vault, &journal, file);
    }
    check(&vault, &vault.root());
    vault.shut_down().unwrap();
}

#[test]
fn what_happens_at_the_same_time_is_seen_in_an_order() {
    let rounds = std::env::var("SHARING_ROUNDS").map_or(6, |text| text.parse().expect("a number"));
    (0..rounds).for_each(|seed| together(seed, 60));
}

/// Long names are created and removed concurrently; each has a sidecar.
fn names_together(seed: u64) {
    let dir = new_vault();
    let rule = broken();
    thread::scope(|scope| {
        for number in 0..4 {
            let path = dir.path();
            scope.spawn(move || {
                break_rules(rule);
                let mut draw = Draw::new(4 * seed + number);
                let vault = share(path, PATIENCE);
                (0..300).for_each(|_| names(&vault, &mut draw));
                vault.shut_down().unwrap();
            });
        }
    });
    let vault = alone(dir.path());
    check(&vault, &vault.root());
    vault.shut_down().unwrap();
}

#[test]
fn names_that_come_and_go_at_the_same_time_stay_whole() {
    (0..3).for_each(names_together);
}

#[test]
fn threads_find_rules_that_are_broken() {
    for rule in [LeaseRule::LeaseBeforeChange, LeaseRule::ReadAgainLocked, LeaseRule::RecoverLocked] {
        assert!(fails_without(rule, || (0..40).for_each(|seed| together(seed, 60))), "{rule:?}");
    }
}

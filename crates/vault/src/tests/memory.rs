//! Memory used for content while many streams read and write at once.

use super::*;
use crate::OpenFile;
use content::Budget;
use crypto::chunk::CHUNK;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const MEMORY: usize = 64 << 20;
const STREAMS: usize = 16;
const REQUEST: usize = 1 << 20;
/// Requests per stream: together, the streams move several times the memory.
const REQUESTS: usize = 6;

fn file(vault: &Vault, name: &str) -> Arc<OpenFile> {
    let (_, _, file) = vault.create(&vault.root(), OsStr::new(name), node(0o644)).unwrap();
    file
}

fn request(stream: usize, number: usize) -> Vec<u8> {
    (0..REQUEST).map(|at| (at * 31 + at / 4096 + stream * 7 + number) as u8).collect()
}

fn write_all(file: &OpenFile, stream: usize) {
    for number in 0..REQUESTS {
        file.file.write((number * REQUEST) as u64, &request(stream, number)).unwrap();
    }
    file.file.flush().unwrap();
}

#[test]
fn streams_stay_within_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    Vault::init(dir.path(), settings(NameMode::Encrypted), &slot()).unwrap();
    let options = OpenOptions { memory: MEMORY, ..OpenOptions::default() };
    let vault = Vault::open(dir.path(), &unlock(), options).unwrap();
    let readable: Vec<_> = (0..STREAMS).map(|stream| file(&vault, &format!("read {stream}"))).collect();
    for (stream, file) in readable.iter().enumerate() {
        write_all(file, stream);
    }
    let writable: Vec<_> = (0..STREAMS).map(|stream| file(&vault, &format!("write {stream}"))).collect();
    let ended = AtomicBool::new(false);
    let single = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(vault.files().context().buffered.single.load(Ordering::Relaxed));
                thread::yield_now();
            }
            most * CHUNK
        });
        let streams: Vec<_> = (0..STREAMS)
            .flat_map(|stream| {
                let (from, to) = (&readable[stream], &writable[stream]);
                let read = scope.spawn(move || {
                    for number in 0..REQUESTS {
                        let want = request(stream, number);
                        let at = (number * REQUEST) as u64;
                        let same = from.file.read_to(at, REQUEST, &mut Vec::new(), |got| got == want);
                        assert!(same.unwrap(), "stream {stream}, request {number}");
                    }
                });
                [read, scope.spawn(move || write_all(to, stream))]
            })
            .collect();
        let outcomes: Vec<_> = streams.into_iter().map(|stream| stream.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(|outcome| outcome.is_ok()));
        watch.join().unwrap()
    });
    let (budget, now) = (Budget::of(MEMORY), vault.memory());
    assert!(now.peak > 0 && now.peak <= budget.buffers, "{} of {}", now.peak, budget.buffers);
    let beyond = STREAMS * REQUEST; // each stream may be about to add a request
    assert!(single <= 2 * budget.behind + beyond, "{single} of {}", budget.behind);
}

//! Kills and power cuts at every step (guarantee G2): confirmed data reads as confirmed, or newer.

use super::*;

const U: usize = 1024;

/// The contents that are allowed after a crash.
#[derive(Clone, Default)]
struct Oracle {
    /// All contents since the last confirmed one, inclusive.
    since: Vec<Vec<u8>>,
    /// Index in `since` of the last flushed content.
    flushed: usize,
}

impl Oracle {
    fn note(&mut self, content: &[u8]) {
        self.since.push(content.to_vec());
    }

    fn flush(&mut self) {
        self.flushed = self.since.len() - 1;
    }

    fn confirm(&mut self) {
        self.since.drain(..self.since.len() - 1);
        self.flushed = 0;
    }

    /// Each unit must match one of the versions, or be zeros past the end of one. The size must be that
    /// of a version.
    fn allows(&self, out: &[u8], kill: bool) -> Result<(), String> {
        let versions = &self.since[if kill { self.flushed } else { 0 }..];
        // An append may end at any chunk.
        let sizes = || versions.iter().map(Vec::len);
        let (smallest, largest) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let within = out.len().is_multiple_of(4096) && (smallest..largest).contains(&out.len());
        if !within && !sizes().any(|size| size == out.len()) {
            return Err(format!(
                "size {} is none of {:?}",
                out.len(),
                versions.iter().map(Vec::len).collect::<Vec<_>>()
            ));
        }
        for (at, unit) in out.chunks(U).enumerate() {
            let range = at * U..at * U + unit.len();
            let fits = |v: &Vec<u8>| {
                let mut want = v.get(range.start..range.end.min(v.len())).unwrap_or_default().to_vec();
                want.resize(unit.len(), 0);
                // If a shorter version of the last chunk survives, a longer file reads as zeros past it.
                want == unit
            };
            let zeros = unit.iter().all(|b| *b == 0) && versions.iter().any(|v| v.len() < range.end);
            if !zeros && !versions.iter().any(fits) {
                return Err(format!("unit {at} is as in none of {} versions", versions.len()));
            }
        }
        Ok(())
    }
}

/// A power cut may tear header and leaf pages. Data pages are the documented exception.
fn torn(page: u64) -> bool {
    page == 0 || page * 4096 == layout::entries_offset(1)
}

fn check(
    before: &Snapshot,
    oracle: &Oracle,
    context: &Arc<Context>,
    rng: &mut Rng,
    cuts: u64,
    log: &[String],
) {
    let look = |store: Arc<FaultyFile>, kill: bool, what: &str| {
        let outcome =
            File::open(store.clone(), context.clone()).and_then(|file| Ok((read_all(&file)?, file)));
        let verdict = outcome.map_err(|e| e.to_string()).and_then(|(out, file)| {
            oracle.allows(&out, kill)?;
            goes_on(&store, &file, out, context)
        });
        assert!(verdict.is_ok(), "{what}: {} after {log:?}", verdict.unwrap_err());
    };
    look(killed(before), true, "kill");
    if !before.unsynced() {
        return;
    }
    for cut in 0..cuts {
        let style = rng.below(3);
        let pick = |n: usize| match style {
            0 => rng.below(n as u64) as usize,
            1 if rng.below(8) > 0 => n - 1,
            2 if rng.below(8) > 0 => 0,
            _ => rng.below(n as u64) as usize,
        };
        let after = before.power_cut(torn, pick);
        look(FaultyFile::at(&after), false, &format!("power cut {cut}"));
        if cut == 0 {
            again(&after, oracle, context, rng);
        }
    }
}

/// Checks that the file can still be written after a crash, and then has the written data.
fn goes_on(
    store: &Arc<FaultyFile>,
    file: &Arc<File>,
    mut content: Vec<u8>,
    context: &Arc<Context>,
) -> Result<(), String> {
    const MORE: &[u8] = b"what comes after the crash";
    let write = || {
        file.write(0, MORE)?;
        file.sync()?;
        read_all(&open(store, context))
    };
    content.resize(content.len().max(MORE.len()), 0);
    content[..MORE.len()].copy_from_slice(MORE);
    match write().map_err(|e| format!("going on: {e}"))? == content {
        true => Ok(()),
        false => Err("what is written after the crash is not what is read".into()),
    }
}

/// Checks crashes during recovery.
fn again(after: &Snapshot, oracle: &Oracle, context: &Arc<Context>, rng: &mut Rng) {
    let store = FaultyFile::at(after);
    // Recovery rewrites a large file in many calls.
    store.record_every(1 + store.bytes().len() as u64 / 50_000);
    let _ = File::open(store.clone(), context.clone());
    for state in store.recorded() {
        for _ in 0..2 {
            let cut = state.power_cut(torn, |n| rng.below(n as u64) as usize);
            let file = File::open(FaultyFile::at(&cut), context.clone()).unwrap();
            oracle.allows(&read_all(&file).unwrap(), false).unwrap();
        }
    }
}

struct Run {
    store: Arc<FaultyFile>,
    context: Arc<Context>,
    file: Arc<File>,
    model: Vec<u8>,
    oracle: Oracle,
    log: Vec<String>,
    rng: Rng,
    cuts: u64,
    /// Number of calls between crashes.
    every: u64,
}

impl Run {
    fn new(seed: u64, cuts: u64) -> Self {
        Run::over(context(), seed, cuts)
    }

    fn over(context: Arc<Context>, seed: u64, cuts: u64) -> Self {
        let store = FaultyFile::new();
        let file = open(&store, &context);
        let mut oracle = Oracle::default();
        oracle.note(&[]);
        Run {
            store,
            context,
            file,
            model: Vec::new(),
            oracle,
            log: vec![format!("seed {seed}")],
            rng: Rng(seed),
            cuts,
            every: 1,
        }
    }

    /// Runs one operation, then checks a crash at each of its steps.
    fn act(&mut self, op: &str, arg: u64) {
        self.log.push(format!("{op}{arg}"));
        self.store.record_every(self.every);
        let before = self.oracle.clone();
        match op {
            "write" => self.write(arg as usize * U, U),
            "chunk" => self.write(arg as usize * 4096, 4096),
            "append" => self.write(self.model.len(), arg as usize * U / 2),
            "truncate" => {
                let size = arg as usize * U / 2;
                self.model.resize(size, 0);
                self.oracle.note(&self.model);
                self.file.truncate(size as u64).unwrap();
            }
            "punch" => {
                let range = (arg as usize * 4096).min(self.model.len())
                    ..(arg as usize * 4096 + 4096).min(self.model.len());
                self.model[range].fill(0);
                self.oracle.note(&self.model);
                self.file.punch(arg * 4096, 4096).unwrap();
            }
            "stream" => self.stream(arg * layout::CHUNK),
            "scatter" => self.scatter(arg as usize),
            "flush" => self.file.flush().unwrap(),
            "sync" => self.file.sync().unwrap(),
            "clean" => clean(&self.file),
            _ => unreachable!(),
        }
        // During the operation, the old promise still applies, and the new content is also allowed.
        let mut during = before.clone();
        during.since = self.oracle.since.clone();
        for state in self.store.recorded() {
            check(&state, &during, &self.context, &mut self.rng, self.cuts, &self.log);
        }
        match op {
            "flush" => self.oracle.flush(),
            "sync" | "clean" => self.oracle.confirm(),
            _ => {}
        }
    }

    fn write(&mut self, offset: usize, len: usize) {
        let data = self.rng.bytes(len);
        if self.model.len() < offset + len {
            self.model.resize(offset + len, 0);
        }
        self.model[offset..offset + len].copy_from_slice(&data);
        self.oracle.note(&self.model);
        self.file.write(offset as u64, &data).unwrap();
    }

    /// Writes two extents in one call.
    fn stream(&mut self, offset: u64) {
        let data = self.rng.bytes((48 + 64) * 4096 + 1000);
        let (before, end) = (self.model.len() as u64, offset + data.len() as u64);
        self.model.resize(self.model.len().max(end as usize), 0);
        self.model[offset as usize..end as usize].copy_from_slice(&data);
        // Background writes extend the file extent by extent.
        let extents = (0..).map(|group| layout::first_chunk(group + 1) * layout::CHUNK);
        let sizes = [before.next_multiple_of(layout::CHUNK)].into_iter().chain(extents);
        for size in sizes.take_while(|size| *size < end).filter(|size| *size > before) {
            self.oracle.note(&self.model[..size as usize]);
        }
        self.oracle.note(&self.model);
        self.file.write(offset, &data).unwrap();
    }

    /// Writes every second chunk from `first`, individually.
    fn scatter(&mut self, first: usize) {
        let whole = self.model.len() / 4096;
        for chunk in (first..whole).step_by(2) {
            let data = self.rng.bytes(4096);
            self.model[chunk * 4096..][..4096].copy_from_slice(&data);
            self.file.write(chunk as u64 * layout::CHUNK, &data).unwrap();
        }
        // Each chunk is either old or new.
        self.oracle.note(&self.model);
    }

    /// Crashes, and continues with the remaining state.
    fn crash(&mut self, kill: bool) {
        self.log.push(if kill { "killed" } else { "cut off" }.into());
        let now = self.store.snapshot();
        let rng = &mut self.rng;
        self.store = if kill {
            killed(&now)
        } else {
            FaultyFile::at(&now.power_cut(torn, |n| rng.below(n as u64) as usize))
        };
        self.file = open(&self.store, &self.context);
        self.model = read_all(&self.file).unwrap();
        self.oracle.allows(&self.model, kill).unwrap();
        // The outcome of recovery is durable.
        self.oracle = Oracle::default();
        self.oracle.note(&self.model);
    }
}

/// The sequences that motivated the protocol's rules, each a past or potential bug.
#[test]
fn named_sequences() {
    let cases: &[&[(&str, u64)]] = &[
        &[("chunk", 0), ("sync", 0), ("chunk", 0), ("sync", 0)],
        &[("chunk", 0), ("flush", 0), ("chunk", 0), ("flush", 0), ("sync", 0)],
        &[("chunk", 0), ("chunk", 1), ("sync", 0), ("chunk", 0), ("flush", 0), ("chunk", 0), ("sync", 0)],
        &[("append", 1), ("sync", 0), ("append", 1), ("sync", 0), ("append", 9), ("sync", 0)],
        &[("chunk", 0), ("append", 3), ("sync", 0), ("clean", 0), ("write", 0), ("flush", 0), ("clean", 0)],
        &[
            ("chunk", 0),
            ("chunk", 1),
            ("sync", 0),
            ("truncate", 3),
            ("truncate", 9),
            ("write", 1),
            ("sync", 0),
        ],
        &[("chunk", 0), ("chunk", 1), ("clean", 0), ("truncate", 1), ("sync", 0), ("append", 5), ("sync", 0)],
        &[
            ("chunk", 0),
            ("sync", 0),
            ("truncate", 0),
            ("append", 3),
            ("sync", 0),
            ("truncate", 0),
            ("clean", 0),
        ],
        &[("chunk", 0), ("flush", 0), ("truncate", 0), ("chunk", 0), ("flush", 0), ("sync", 0)],
        &[("chunk", 0), ("chunk", 1), ("sync", 0), ("punch", 0), ("flush", 0), ("chunk", 0), ("sync", 0)],
        &[
            ("chunk", 47),
            ("chunk", 48),
            ("sync", 0),
            ("chunk", 48),
            ("chunk", 113),
            ("flush", 0),
            ("clean", 0),
        ],
        &[
            ("chunk", 0),
            ("chunk", 120),
            ("clean", 0),
            ("truncate", 385),
            ("sync", 0),
            ("truncate", 8),
            ("clean", 0),
        ],
        &[
            ("append", 1),
            ("flush", 0),
            ("append", 1),
            ("flush", 0),
            ("append", 1),
            ("flush", 0),
            ("clean", 0),
        ],
        &[("chunk", 2), ("chunk", 0), ("sync", 0), ("truncate", 0), ("truncate", 17), ("sync", 0)],
    ];
    for (at, case) in cases.iter().enumerate() {
        let mut run = Run::new(at as u64, 12);
        for (op, arg) in *case {
            run.act(op, *arg);
        }
    }
}

/// Streams, whose extents are stored in the background: of new data, over synced data, and over data in
/// flight.
fn streams(context: &dyn Fn() -> Arc<Context>, cuts: u64) {
    let cases: &[&[(&str, u64)]] = &[
        &[("stream", 0), ("sync", 0), ("stream", 0), ("flush", 0), ("sync", 0)],
        &[("append", 3), ("sync", 0), ("stream", 48), ("stream", 0), ("clean", 0), ("truncate", 385)],
        &[("append", 3), ("flush", 0), ("stream", 1), ("chunk", 70), ("punch", 80), ("sync", 0)],
    ];
    for (at, case) in cases.iter().enumerate() {
        let mut run = Run { every: 7, ..Run::over(context(), at as u64, cuts) };
        for (op, arg) in *case {
            run.act(op, *arg);
        }
    }
}

#[test]
fn streams_step_by_step() {
    streams(&|| Arc::new(context_over(Background::at_once())), 1);
}

#[test]
fn streams_behind_the_application() {
    streams(&context, 1);
}

/// Scattered overwrites of synced data, with two writes in flight at once.
#[test]
fn scattered_overwrites() {
    let (background, _jobs) = Background::by_hand();
    let mut run = Run { every: 199, ..Run::over(Arc::new(context_over(background)), 1, 1) };
    run.model = run.rng.bytes(600 * 4096 + 1000);
    run.file.write(0, &run.model).unwrap();
    run.file.sync().unwrap();
    run.oracle = Oracle::default();
    run.oracle.note(&run.model);
    run.oracle.confirm();
    for (op, arg) in [
        ("scatter", 0),
        ("scatter", 1),
        ("flush", 0),
        ("scatter", 0),
        ("sync", 0),
        ("scatter", 1),
        ("clean", 0),
    ] {
        run.act(op, arg);
    }
}

#[test]
fn random_sequences() {
    let ops = [
        "write", "write", "chunk", "chunk", "append", "truncate", "punch", "flush", "flush", "sync", "sync",
        "clean",
    ];
    for seed in 0..120 {
        let mut run = Run::new(seed, 4);
        for _ in 0..14 {
            let op = ops[run.rng.below(ops.len() as u64) as usize];
            let arg = match op {
                "write" => run.rng.below(20),
                "truncate" => run.rng.below(40),
                "append" => 1 + run.rng.below(9),
                _ => run.rng.below(5),
            };
            run.act(op, arg);
            if run.rng.below(8) == 0 {
                let kill = run.rng.below(2) == 0;
                run.crash(kill);
            }
        }
    }
}

/// Tests the oracle itself: without the barrier before an overwrite (relaxed durability), it must find
/// damage.
#[test]
fn without_the_barrier_an_overwrite_is_lost() {
    let relaxed =
        Arc::new(Context { durability: Durability::Relaxed, ..context_over(Background::default()) });
    let store = FaultyFile::new();
    let file = open(&store, &relaxed);
    file.write(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    // The first overwrite after a commit makes that commit's record durable.
    for chunk in [0, 4096] {
        file.write(chunk, &[2; 4096]).unwrap();
        file.flush().unwrap();
    }
    let now = store.snapshot();
    let mut rng = Rng(1);
    let damaged = (0..200).any(|_| {
        let cut = now.power_cut(torn, |n| rng.below(n as u64) as usize);
        read_all(&open(&FaultyFile::at(&cut), &relaxed)).is_err()
    });
    assert!(damaged);
}

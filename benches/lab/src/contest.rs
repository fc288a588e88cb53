//! The CPU, the first GPU and the router's choice, compared on the same batches.

use crate::batches::batch;
use crypto::chunk::CHUNK;
use engine::{Batch, Engine, EngineError, Function, Router};
use std::time::{Duration, Instant};

/// Times of consecutive batches on one contestant. An uncounted batch ran before them, because the first
/// one depends on which threads are awake, and in which caches, from earlier runs.
pub type Series = [Duration; 3];

/// If this time is not over after the requested runs, more runs are made, up to `MOST_TIMES` times as many.
const LITTLE: Duration = Duration::from_millis(100);
const MOST_TIMES: usize = 4;
/// The order of the contestants by round. Each follows each of the others equally often.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2]];

/// Open engines, and the router that chooses among them.
pub struct Contest {
    router: Router,
}

/// Times of each contestant for the same batch, by series.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// The CPU engine.
    pub cpu: Vec<Series>,
    /// The first GPU.
    pub gpu: Vec<Series>,
    /// The router.
    pub auto: Vec<Series>,
    /// Share of the router's batches that went to a GPU.
    pub on_gpu: f64,
}

impl Contest {
    /// Opens the engines.
    ///
    /// # Errors
    /// Why there is no GPU to compare with.
    pub fn new() -> Result<Self, String> {
        Ok(Contest { router: Router::joined(usize::MAX)? })
    }

    /// Runs one batch of `bytes`, a multiple of 4096, in short series on each contestant in turn, until
    /// each has `runs` counted runs, or more if that takes little time. Before each run the CPU writes the
    /// batch's buffers, as it does when it reads from a store, so that no contestant benefits from
    /// another's cache contents.
    ///
    /// # Errors
    /// If an engine fails.
    pub fn run(&self, function: Function, bytes: usize, runs: usize) -> Result<Times, EngineError> {
        let router = &self.router;
        router.measure(function)?;
        let mut batch = batch(function, &*router.cpu, &router.buffers, bytes / CHUNK)?;
        let content = batch.input.to_vec();
        let gpu = router.gpu().ok_or_else(|| EngineError::Failed {
            engine: "gpu".to_owned(),
            cause: "it is gone".to_owned(),
        })?;
        let runs_on = |turn: usize, batch: &mut Batch| match turn {
            0 => router.cpu.run(batch),
            1 => gpu.run(batch),
            _ => router.run(batch),
        };
        let on_gpus = || router.counters()[1..].iter().map(|counters| counters.batches).sum::<u64>();
        let before = on_gpus();
        let mut timed = |turn: usize| {
            batch.input.copy_from_slice(&content);
            batch.output.fill(0);
            let start = Instant::now();
            runs_on(turn, &mut batch).map(|()| start.elapsed())
        };
        let (mut times, end) = ([const { Vec::new() }; 3], Instant::now() + LITTLE);
        for round in 0.. {
            for turn in ORDERS[round % ORDERS.len()] {
                timed(turn)?;
                let mut series = Series::default();
                for time in &mut series {
                    *time = timed(turn)?;
                }
                times[turn].push(series);
            }
            let done = times[0].as_flattened().len();
            if done >= runs && (Instant::now() > end || done >= MOST_TIMES * runs) {
                break;
            }
        }
        let [cpu, gpu, auto] = times;
        let asked = auto.len() + auto.as_flattened().len();
        let on_gpu = (on_gpus() - before) as f64 / asked as f64;
        Ok(Times { cpu, gpu, auto, on_gpu })
    }
}

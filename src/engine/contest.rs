//! The CPU, the first GPU and the router's choice on the same batches, side by side.

use super::{Batch, Engine, EngineError, Router, measure, profile::Function};
use std::time::{Duration, Instant};

/// More than the wanted runs are made during this time, up to so many times as many.
const LITTLE: Duration = Duration::from_millis(150);
const MOST: usize = 10;

/// Open engines, and the router that chooses among them.
pub struct Contest {
    router: Router,
}

/// What each took for the same batch, by run.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// The CPU engine.
    pub cpu: Vec<Duration>,
    /// The first GPU.
    pub gpu: Vec<Duration>,
    /// The router.
    pub auto: Vec<Duration>,
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

    /// Runs one batch of `bytes`, a multiple of 4096, on each in turn, `runs` times or more while that takes little
    /// time. Before each run the CPU writes the batch's buffers, as it does when it reads from a store: so
    /// none finds in the caches what another left there. Each runs twice in a row, and the second time counts: which
    /// threads are still awake, and in which caches, depends on what ran before, and for all of them that
    /// is then the same as in a series of their own.
    ///
    /// # Errors
    /// If an engine fails.
    pub fn run(&self, function: Function, bytes: usize, runs: usize) -> Result<Times, EngineError> {
        let router = &self.router;
        router.measure(function)?;
        let mut batch = measure::batch(function, &router.cpu, &router.buffers, bytes)?;
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
        let (mut times, end) = ([const { Vec::new() }; 3], Instant::now() + LITTLE);
        for run in 0.. {
            for place in 0..3 {
                let turn = if run % 2 == 0 { place } else { 2 - place };
                for counts in [false, true] {
                    batch.input.copy_from_slice(&content);
                    batch.output.fill(0);
                    let start = Instant::now();
                    runs_on(turn, &mut batch)?;
                    if counts {
                        times[turn].push(start.elapsed());
                    }
                }
            }
            if run + 1 >= runs && (Instant::now() > end || run + 1 >= MOST * runs) {
                break;
            }
        }
        let [cpu, gpu, auto] = times;
        let on_gpu = (on_gpus() - before) as f64 / (2 * auto.len()) as f64;
        Ok(Times { cpu, gpu, auto, on_gpu })
    }
}

//! A real device: the same batches, in larger numbers.

use crate::{
    batches::{SMALL, all_keys, round},
    support::{command::ok, mounted::program_path, random::Random, say, setting},
};
use engine::{BufferPool, CpuEngine, GpuEngine, Shape, Timeouts, TransferModes, gpus, start_gpus_with};
use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Whether there is a device. Without one the test is skipped with a message, or fails with
/// `REQUIRE_GPU=1`.
pub fn ready() -> bool {
    start_gpus_with(program_path());
    let Err(why) = gpus() else { return true };
    assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|v| v != "1"), "REQUIRE_GPU=1, but {why}");
    say(format_args!("SKIPPED: a real GPU: {why}"));
    false
}

/// Path of the system's driver library.
pub fn driver() -> PathBuf {
    let listed = ok(Command::new("ldconfig").arg("-p"), 60);
    let line =
        listed.lines().find(|line| line.trim_start().starts_with("libcuda.so.1 ") && line.contains("x86-64"));
    line.and_then(|line| line.rsplit(" => ").next())
        .map(PathBuf::from)
        .expect("a driver in the loader's cache")
}

/// Whether there are several devices, so that one may fail. Otherwise the test is skipped with a
/// message.
pub fn several() -> bool {
    let several = ready() && gpus().is_ok_and(|count| count > 1);
    if !several {
        say("SKIPPED: several real GPUs: there are not two");
    }
    several
}

/// Runs `GPU_BATCHES` batches (300 by default), for at most `GPU_SECONDS` (20).
#[test]
fn random_batches_agree_with_the_cpu() {
    if !ready() {
        return;
    }
    let most = setting("GPU_BATCHES").unwrap_or(300);
    let end = Instant::now() + Duration::from_secs(setting("GPU_SECONDS").unwrap_or(20));
    let done = AtomicU64::new(0);
    // Under compute-sanitizer a piece takes a long time.
    let shape = Shape {
        timeouts: Timeouts { base: Duration::from_secs(60), ..Timeouts::default() },
        ..Shape::default()
    };
    let narrow = Shape { modes: TransferModes { wide: 0, ..SMALL.modes }, ..SMALL };
    for (number, shape) in [shape, SMALL, narrow].into_iter().enumerate() {
        let gpu = GpuEngine::with_shape(0, shape, Duration::from_secs(1)).expect("a device");
        let (keys, pool) = (all_keys(), BufferPool::new(usize::MAX));
        let heap = BufferPool::new(usize::MAX);
        gpu.supply(&pool);
        let share = most * (number as u64 + 1) / 3;
        thread::scope(|scope| {
            for worker in 0..thread::available_parallelism().map_or(1, usize::from).min(16) {
                let (gpu, keys, pool, heap, done) = (&gpu, &keys, &pool, &heap, &done);
                scope.spawn(move || {
                    let (cpu, mut random) =
                        (CpuEngine::with_threads(1), Random::new(&format!("real {worker}")));
                    while done.load(Relaxed) < share && Instant::now() < end {
                        let pool = if random.below(4) == 0 { heap } else { pool };
                        let long = if random.below(50) == 0 { 3000 } else { 40 };
                        round(gpu, &cpu, &mut random, keys, pool, long);
                        done.fetch_add(2, Relaxed);
                    }
                });
            }
        });
        assert!(gpu.in_service());
    }
    say(format_args!("{} random batches were the same on the GPU and on the CPU", done.into_inner()));
}

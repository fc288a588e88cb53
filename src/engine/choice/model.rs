//! A machine as far as the choice goes: processors that threads share, a GPU that does batches one after another, and
//! streams that work on their own (copying, answering) and then wait for a batch. The choice must bring them forward
//! as fast as the better engine alone would, whatever the machine.

use super::{
    super::{
        Op,
        demand::Mean,
        line::{Line, Turn, Work},
        profile::{Curve, Function, Profile},
    },
    price, takes_second,
};
use crate::crypto::{cipher::Cipher, mac::Integrity};
use std::{collections::VecDeque, time::Duration};

const FUNCTION: Function = Function { cipher: Cipher::Aes256, integrity: Integrity::Kmac128, op: Op::Open };
/// Microseconds of a step, and of a run.
const STEP: f64 = 5.0;
const RUN: f64 = 60_000.0;

/// Times in microseconds.
#[derive(Debug, Clone, Copy)]
struct Machine {
    processors: usize,
    /// Of all threads of the CPU together, for a batch.
    sealing: f64,
    /// Of a GPU, until it takes the next batch, and from its arrival to its end.
    gpu_each: f64,
    gpu_all: f64,
    streams: usize,
    /// Of a processor, that a stream spends on each batch besides sealing.
    own: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Policy {
    Cpu,
    Gpu,
    Choice,
}

enum Stage<'a> {
    Own { left: f64 },
    OnCpu { left: f64, _turn: Turn<'a> },
    OnGpu { until: f64, _turn: Turn<'a> },
}

const BYTES: usize = 1 << 20;

fn line(micros: f64) -> Line {
    let mut profile = Profile::new();
    let nanoseconds = (micros * 1000.0) as u64;
    profile.put(FUNCTION, Curve { points: vec![(BYTES, nanoseconds), (2 * BYTES, 2 * nanoseconds)] });
    Line::new(&profile)
}

impl Machine {
    /// Batches in a run.
    fn batches(&self, policy: Policy) -> u64 {
        let (cpu, gpu) = (line(self.sealing / self.processors as f64), self.gpu_line());
        let work = Work { function: FUNCTION, bytes: BYTES };
        let (mut done, mut gpu_free, mut now) = (0, 0.0f64, 0.0);
        let (mut others, mut looked) = (Mean::default(), 0.0);
        let mut stages: VecDeque<Stage> = (0..self.streams)
            .map(|stream| Stage::Own { left: self.own * (stream + 1) as f64 / self.streams as f64 })
            .collect();
        while now < RUN {
            let own = stages.iter().filter(|stage| matches!(stage, Stage::Own { .. })).count();
            let sealing = cpu.active();
            let helpers = if sealing > 0 { self.processors - 1 } else { 0 };
            let speed = (self.processors as f64 / (own + sealing + helpers).max(1) as f64).min(1.0);
            let sealed = STEP * speed * (1.0 + helpers as f64 / sealing.max(1) as f64);
            for _ in 0..stages.len() {
                let Some(stage) = stages.pop_front() else { break };
                stages.push_back(match stage {
                    Stage::Own { left } if left > 0.0 => Stage::Own { left: left - STEP * speed },
                    Stage::OnCpu { left, _turn } if left > 0.0 => Stage::OnCpu { left: left - sealed, _turn },
                    Stage::OnGpu { until, _turn } if until > now => Stage::OnGpu { until, _turn },
                    Stage::OnCpu { .. } | Stage::OnGpu { .. } => {
                        done += 1;
                        Stage::Own { left: self.own }
                    }
                    Stage::Own { .. } => {
                        // Those at work without the one that asks, as the router counts them.
                        if now - looked >= 1000.0 {
                            others.add((own - 1) as f64, Duration::from_secs_f64((now - looked) / 1e6));
                            looked = now;
                        }
                        let processors = self.processors as f64;
                        let price = price(
                            self.sealing * 1000.0,
                            (others.value / processors).min(1.0),
                            self.processors,
                        );
                        let on_cpu = cpu.offer(work).raised(price);
                        let on_gpu = match policy {
                            Policy::Cpu => false,
                            Policy::Gpu => true,
                            Policy::Choice => takes_second(on_cpu, gpu.offer(work), cpu.asked(work)),
                        };
                        if on_gpu {
                            gpu_free = gpu_free.max(now) + self.gpu_each;
                            let until = gpu_free - self.gpu_each + self.gpu_all;
                            Stage::OnGpu { until, _turn: gpu.begin(work) }
                        } else {
                            Stage::OnCpu { left: self.sealing, _turn: cpu.begin(work) }
                        }
                    }
                });
            }
            now += STEP;
        }
        done
    }

    /// A GPU's rate shows with large batches only.
    fn gpu_line(&self) -> Line {
        let mut profile = Profile::new();
        let large = self.gpu_all + 15.0 * self.gpu_each;
        let points = vec![(BYTES, (self.gpu_all * 1000.0) as u64), (16 * BYTES, (large * 1000.0) as u64)];
        profile.put(FUNCTION, Curve { points });
        Line::new(&profile)
    }
}

#[test]
fn as_fast_as_the_better_engine_on_any_machine() {
    let (mut all, mut close) = (0, 0);
    for processors in [2, 16, 64] {
        for sealing in [300.0, 1500.0] {
            for gpu_all in [60.0, 150.0, 600.0] {
                for own in [50.0, 600.0] {
                    for streams in [1, 4, 16, 48] {
                        let gpu_each = (gpu_all / 4.0f64).max(33.0);
                        let machine = Machine { processors, sealing, gpu_each, gpu_all, streams, own };
                        let [cpu, gpu, choice] =
                            [Policy::Cpu, Policy::Gpu, Policy::Choice].map(|policy| machine.batches(policy));
                        let better = cpu.max(gpu) as f64;
                        assert!(choice as f64 > 0.85 * better, "{choice} of {cpu} and {gpu}: {machine:?}");
                        (all, close) = (all + 1, close + usize::from(choice as f64 > 0.95 * better));
                    }
                }
            }
        }
    }
    assert!(close * 20 > all * 19, "{close} of {all} are within a twentieth");
}

/// What was measured beside an H200: sealing there leaves the processors to the streams.
#[test]
fn streams_on_a_busy_machine_gain_by_the_gpu() {
    let machine =
        Machine { processors: 16, sealing: 700.0, gpu_each: 37.5, gpu_all: 150.0, streams: 32, own: 600.0 };
    let [cpu, choice] = [Policy::Cpu, Policy::Choice].map(|policy| machine.batches(policy));
    assert!(choice as f64 > 1.5 * cpu as f64, "{choice} instead of {cpu}");
}

/// An idle machine's processors are at nobody's expense.
#[test]
fn a_lone_stream_without_other_work_goes_to_the_sooner_engine() {
    for gpu_all in [40.0, 60.0] {
        let machine =
            Machine { processors: 16, sealing: 800.0, gpu_each: 20.0, gpu_all, streams: 1, own: 20.0 };
        let [cpu, gpu, choice] =
            [Policy::Cpu, Policy::Gpu, Policy::Choice].map(|policy| machine.batches(policy));
        assert!(choice as f64 > 0.98 * cpu.max(gpu) as f64, "{choice} of {cpu} and {gpu}");
    }
}

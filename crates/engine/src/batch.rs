//! A batch: chunk jobs from any number of files, over two contiguous buffers.

use super::Buffer;
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys, Tag},
    listed,
    secret::ct_eq,
    tags::{Sealed, tags},
};
use std::sync::Arc;

listed! {
    /// Operation that a batch applies to its chunks.
    pub enum Op {
        /// Plaintext to ciphertext and tag.
        Seal,
        /// Ciphertext and tag to plaintext, or a failure.
        Open,
    }
}

impl Op {
    /// Name used in output, for people and for machines.
    pub fn name(self) -> &'static str {
        match self {
            Op::Seal => "seal",
            Op::Open => "open",
        }
    }
}

/// One chunk of a batch.
#[derive(Debug, Clone)]
pub struct ChunkJob {
    /// Index into `Batch::keys`.
    pub key: usize,
    /// Index, epoch and nonce.
    pub id: ChunkId,
    /// Bytes: 1 to 4096.
    pub len: usize,
    /// Offset of the chunk in the batch's buffers, the same in input and output.
    pub offset: usize,
    /// Set by a seal; checked by an open.
    pub tag: Tag,
    /// Whether the job succeeded; set by the engine. An open may fail; a seal does not.
    pub ok: bool,
}

/// Chunk jobs over one input buffer and one output buffer.
pub struct Batch {
    /// Seal or open.
    pub op: Op,
    /// Keys that the jobs refer to.
    pub keys: Vec<Arc<ChunkKeys>>,
    /// The chunks, in any order; their ranges do not overlap.
    pub jobs: Vec<ChunkJob>,
    /// Bytes that the jobs read.
    pub input: Buffer,
    /// Bytes that the jobs write; at least as long as `input`. The chunk of a failed open is zeroed.
    pub output: Buffer,
}

impl Batch {
    /// Clears every job's `ok` and checks all jobs. Returns their indices in `jobs`, sorted by offset.
    ///
    /// # Errors
    /// `EngineError::BadJob` if a key, offset, length or chunk index is out of range, or if two jobs
    /// overlap.
    pub(super) fn check(&mut self) -> Result<Vec<usize>, EngineError> {
        self.jobs.iter_mut().for_each(|job| job.ok = false);
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        order.sort_by_key(|job| self.jobs[*job].offset);
        let mut end = 0;
        for &number in &order {
            let job = &self.jobs[number];
            let bad = |cause| EngineError::BadJob { job: number, cause };
            self.keys.get(job.key).ok_or(bad("its key is not in the batch"))?;
            check_place(job, self.input.len(), self.output.len()).map_err(bad)?;
            if job.offset < end {
                return Err(bad("it overlaps another"));
            }
            end = job.offset + job.len;
        }
        Ok(order)
    }

    /// The jobs with their keys and bytes, sorted by offset, each with `ok` cleared.
    ///
    /// # Errors
    /// As `check`.
    pub(super) fn tasks(&mut self) -> Result<Vec<Task<'_>>, EngineError> {
        self.check()?;
        let mut jobs: Vec<&mut ChunkJob> = self.jobs.iter_mut().collect();
        jobs.sort_by_key(|job| job.offset);
        let (mut end, mut rest) = (0, &mut self.output[..]);
        Ok(jobs
            .into_iter()
            .map(|job| {
                let (_, from) = std::mem::take(&mut rest).split_at_mut(job.offset - end);
                let (output, after) = from.split_at_mut(job.len);
                (end, rest) = (job.offset + job.len, after);
                let input = &self.input[job.offset..][..job.len];
                Task { op: self.op, keys: &self.keys[job.key], job, input, output }
            })
            .collect())
    }
}

fn check_place(job: &ChunkJob, input: usize, output: usize) -> Result<(), &'static str> {
    if !(1..=CHUNK).contains(&job.len) {
        return Err("its length is not 1 to 4096");
    }
    if job.id.index >= ChunkId::INDEX_END {
        return Err("its index is out of range");
    }
    let end = job.offset.checked_add(job.len).ok_or("it starts beyond the input")?;
    if end > input {
        return Err("it ends beyond the input");
    }
    if end > output { Err("it ends beyond the output") } else { Ok(()) }
}

/// Chunks that a thread processes together: as many as the widest vector of states holds.
const TOGETHER: usize = 8;

/// One checked job with its bytes.
pub(super) struct Task<'a> {
    op: Op,
    keys: &'a ChunkKeys,
    job: &'a mut ChunkJob,
    input: &'a [u8],
    output: &'a mut [u8],
}

impl Task<'_> {
    /// Seals or opens the chunks, a few at a time while they are in the cache.
    pub(super) fn run_all(tasks: &mut [Task]) {
        tasks.chunks_mut(TOGETHER).for_each(|some| match some[0].op {
            Op::Seal => Task::seal(some),
            Op::Open => Task::open(some),
        });
    }

    fn seal(tasks: &mut [Task]) {
        for task in &mut *tasks {
            task.keys.apply_keystream(&task.job.id, task.input, task.output);
        }
        let made = tags_of(tasks, |t| Sealed { keys: t.keys, id: &t.job.id, ciphertext: t.output });
        for (task, tag) in tasks.iter_mut().zip(made) {
            task.job.tag = tag;
            task.job.ok = true;
        }
    }

    fn open(tasks: &mut [Task]) {
        let found = tags_of(tasks, |t| Sealed { keys: t.keys, id: &t.job.id, ciphertext: t.input });
        for (task, tag) in tasks.iter_mut().zip(found) {
            task.job.ok = ct_eq(&tag, &task.job.tag);
            if task.job.ok {
                task.keys.apply_keystream(&task.job.id, task.input, task.output);
            } else {
                task.output.fill(0);
            }
        }
    }
}

fn tags_of<'a>(tasks: &'a [Task], sealed: impl Fn(&'a Task) -> Sealed<'a>) -> [Tag; TOGETHER] {
    let mut made = [[0; 16]; TOGETHER];
    let first = sealed(&tasks[0]);
    let mut chunks = [first; TOGETHER];
    for (chunk, task) in chunks.iter_mut().zip(tasks) {
        *chunk = sealed(task);
    }
    tags(&chunks[..tasks.len()], &mut made);
    made
}

/// Why an engine could not run a batch. The batch's input is intact.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The engine is gone or failed.
    #[error("engine {engine}: {cause}")]
    Failed {
        /// The engine's name.
        engine: String,
        /// The engine's error message.
        cause: String,
    },
    /// A job that no engine could run. None of the batch was run.
    #[error("chunk job {job}: {cause}")]
    BadJob {
        /// Index in `Batch::jobs`.
        job: usize,
        /// The check that failed.
        cause: &'static str,
    },
}

/// Runs batches. Every engine produces the same bytes.
pub trait Engine: Send + Sync {
    /// Name for people and logs.
    fn name(&self) -> &str;

    /// Runs the batch and returns when every job has its result.
    ///
    /// # Errors
    /// If the engine as a whole failed; the router then passes the batch to another.
    fn run(&self, batch: &mut Batch) -> Result<(), EngineError>;
}

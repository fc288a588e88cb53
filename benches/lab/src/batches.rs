//! Batches that engines can run repeatedly.

use crypto::chunk::{CHUNK, ChunkId, ChunkKeys};
use engine::{Batch, BufferPool, ChunkJob, Engine, EngineError, Function, Op};
use std::{mem, sync::Arc};

/// A batch of `chunks` whole chunks. If `function` opens, the chunks verify, because `engine` has sealed
/// them.
///
/// # Errors
/// If the engine fails.
pub fn batch(
    function: Function,
    engine: &dyn Engine,
    pool: &BufferPool,
    chunks: usize,
) -> Result<Batch, EngineError> {
    let Function { cipher, integrity, op } = function;
    let key = Arc::new(ChunkKeys::new(cipher, integrity, &[0x5a; 32][..cipher.key_len()], &[0xa5; 32]));
    let (input, output) = pool.get_pair(chunks * CHUNK);
    let job = |n: usize| {
        let id = ChunkId { index: n as u64, epoch: 1, nonce: [7; 10] };
        ChunkJob { key: 0, id, len: CHUNK, offset: n * CHUNK, tag: [0; 16], ok: false }
    };
    let jobs = (0..chunks).map(job).collect();
    let mut batch = Batch { op: Op::Seal, keys: vec![key], jobs, input, output };
    if op == Op::Open {
        engine.run(&mut batch)?;
        mem::swap(&mut batch.input, &mut batch.output);
        batch.op = Op::Open;
    }
    Ok(batch)
}

//! Test that a device must pass before it gets work: every kernel, at the lengths where behaviour changes,
//! compared with the CPU.

use super::{device::GpuDevice, fault::Fault, pipeline, transfer_modes::TransferModes};
use crate::{Batch, BufferPool, ChunkJob, Op};
use crypto::{
    chunk::{CHUNK, ChunkId, ChunkKeys, Tag},
    cipher::Cipher,
    integrity::Integrity,
};
use std::sync::Arc;

/// Lengths around a cipher's block and around a sponge's first block, and the longest.
const LENGTHS: [usize; 8] = [1, 16, 105, 106, 137, 138, 4095, CHUNK];

/// Seals and opens with every kernel.
///
/// # Errors
/// The first failure.
pub(super) fn self_test(device: &Arc<GpuDevice>) -> Result<(), Fault> {
    let pool = BufferPool::new(usize::MAX);
    for modes in TransferModes::FORCED.into_iter().rev() {
        check_seal(device, &pool, modes)?;
        check_open(device, &pool, modes)?;
        // From now on without the CPU's copies.
        let source = device.clone();
        pool.set_source(Arc::new(move |len| source.lend_memory(len)));
    }
    Ok(())
}

fn check_seal(device: &GpuDevice, pool: &BufferPool, modes: TransferModes) -> Result<(), Fault> {
    let mut sealed = batch(pool);
    run(device, &mut sealed, modes)?;
    for job in &sealed.jobs {
        let (ciphertext, tag) = by_cpu(&sealed, job);
        if !job.ok || tag != job.tag || ciphertext != sealed.output[job.offset..][..job.len] {
            return Err(Fault::Wrong("a chunk sealed in the self-test"));
        }
    }
    Ok(())
}

/// Opens chunks of which every fourth is corrupted.
fn check_open(device: &GpuDevice, pool: &BufferPool, modes: TransferModes) -> Result<(), Fault> {
    let mut opened = batch(pool);
    let plain = opened.input.to_vec();
    opened.op = Op::Open;
    for number in 0..opened.jobs.len() {
        let (ciphertext, tag) = by_cpu(&opened, &opened.jobs[number]);
        let job = &mut opened.jobs[number];
        opened.input[job.offset..][..job.len].copy_from_slice(&ciphertext);
        job.tag = tag;
        job.tag[number % 16] ^= u8::from(number % 4 == 3);
    }
    run(device, &mut opened, modes)?;
    for (number, job) in opened.jobs.iter().enumerate() {
        let (good, output) = (number % 4 != 3, &opened.output[job.offset..][..job.len]);
        let expected = |(at, byte): (usize, &u8)| *byte == if good { plain[job.offset + at] } else { 0 };
        if job.ok != good || !output.iter().enumerate().all(expected) {
            return Err(Fault::Wrong("a chunk opened in the self-test"));
        }
    }
    Ok(())
}

fn run(device: &GpuDevice, batch: &mut Batch, modes: TransferModes) -> Result<(), Fault> {
    let order = batch.check().map_err(|_| Fault::Wrong("the self-test's own batch"))?;
    pipeline::run(device, batch, &order, modes)
}

fn by_cpu(batch: &Batch, job: &ChunkJob) -> (Vec<u8>, Tag) {
    let mut ciphertext = vec![0; job.len];
    let tag = batch.keys[job.key].seal(&job.id, &batch.input[job.offset..][..job.len], &mut ciphertext);
    (ciphertext, tag)
}

/// Chunks of every length with every cipher and integrity function.
fn batch(pool: &BufferPool) -> Batch {
    let pairs = Cipher::ALL.into_iter().flat_map(|c| Integrity::ALL.into_iter().map(move |i| (c, i)));
    let keys: Vec<Arc<ChunkKeys>> = pairs
        .zip(1_u8..)
        .map(|((cipher, integrity), n)| {
            let key: [u8; 32] = std::array::from_fn(|i| n ^ (i as u8).wrapping_mul(7));
            Arc::new(ChunkKeys::new(cipher, integrity, &key[..cipher.key_len()], &key))
        })
        .collect();
    let (mut jobs, mut offset) = (Vec::new(), 0);
    for len in LENGTHS {
        for key in 0..keys.len() {
            let n = jobs.len() as u64;
            let id = ChunkId { index: n << 31 | n, epoch: n << 40 | 1, nonce: [n as u8 ^ 0x5a; 10] };
            jobs.push(ChunkJob { key, id, len, offset, tag: [0; 16], ok: false });
            offset += len;
        }
    }
    let (mut input, mut output) = pool.get_pair(offset);
    input.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + (i >> 8)) as u8);
    output.fill(0xee);
    Batch { op: Op::Seal, keys, jobs, input, output }
}

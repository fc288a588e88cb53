//! Short files: many are read into one buffer and hashed as one batch, on the CPU or a GPU. Files that turn
//! out to be long return to the queue.

use super::{
    gpu::MessageSlot,
    in_flight::{Messages, gpu_function},
    queue::HashJob,
    source::{Content, Source},
    walk::FoundFile,
    worker::{HashRecord, Hashed, Results, Worker},
};
use crypto::hash::{Digest, md6::Md6};
use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

/// Bytes of a file that are read before its size is queried. Few files are longer; for those, a query is
/// cheaper than reading the data twice.
const PROBE: usize = 16 << 10;

/// The result of reading a file that may be short.
enum Short<C> {
    /// The whole file was read: its length.
    All(usize),
    /// The file is longer: its size.
    Longer(u64, C),
}

impl<S: Source> Worker<'_, S> {
    /// Reads and hashes a batch of files, on the CPU or a GPU.
    pub(super) fn batch(&mut self, jobs: Vec<HashJob<S::Place>>) {
        match gpu_function(self.functions()) {
            Some(md6) => match self.slot() {
                Some(slot) => self.batch_on_gpu(slot, md6, jobs),
                None => self.batch_on_cpu(jobs),
            },
            None => self.batch_on_cpu(jobs),
        }
    }

    /// As `batch`, on a GPU for as long as it has slots.
    fn batch_on_gpu(&mut self, mut slot: MessageSlot, md6: &Md6, jobs: Vec<HashJob<S::Place>>) {
        let (mut messages, mut failed) = (Messages::new(md6), Vec::new());
        let mut jobs = jobs.into_iter();
        while let Some((number, FoundFile { path, place })) = jobs.next() {
            if self.stopped() {
                break;
            }
            let at = messages.end();
            match self.read_short(&path, place, &mut slot.input()[at..at + self.small + 1]) {
                Ok(Short::All(len)) => messages.add_file(number, path, len),
                Ok(Short::Longer(size, content)) => self.add_large(number, path, content, size),
                Err(e) => failed.push((number, HashRecord { path, result: Err(e) })),
            }
            if !messages.has_room(self.small + 1) {
                self.submit(slot, std::mem::replace(&mut messages, Messages::new(md6)));
                let Some(next) = self.slot() else {
                    let _ = self.results.send(failed);
                    return self.batch_on_cpu(jobs.collect());
                };
                slot = next;
            }
        }
        let _ = self.results.send(failed);
        self.submit(slot, messages);
    }

    /// Reads a file if it is not longer than `self.small`, which is one byte less than `out`.
    fn read_short(
        &self,
        path: &Path,
        place: io::Result<S::Place>,
        out: &mut [u8],
    ) -> io::Result<Short<S::Content>> {
        let content = self.source.open(path, &place?)?;
        let probe = PROBE.min(out.len());
        let mut len = content.read_full(&mut out[..probe], 0)?;
        if len == probe {
            let size = content.size()?;
            if size > self.small as u64 {
                return Ok(Short::Longer(size, content));
            }
            len += content.read_full(&mut out[probe..], probe as u64)?;
        }
        if len <= self.small {
            return Ok(Short::All(len));
        }
        match content.size()? {
            size if size >= len as u64 => Ok(Short::Longer(size, content)),
            _ => Err(io::Error::other("its size is not known before it is read")),
        }
    }

    /// Reads files and hashes as many at once as fit into the buffer.
    fn batch_on_cpu(&mut self, jobs: Vec<HashJob<S::Place>>) {
        let mut results = Vec::with_capacity(jobs.len());
        let mut held: Vec<(u64, PathBuf, usize)> = Vec::with_capacity(jobs.len());
        let mut used = 0;
        for (number, FoundFile { path, place }) in jobs {
            if self.stopped() {
                break;
            }
            if self.buffer.len() - used <= self.small {
                self.flush(&mut held, &mut used, &mut results);
            }
            let room = used..used + self.small + 1;
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.read_short(&path, place, &mut buffer[room]);
            self.buffer = buffer;
            match read {
                Ok(Short::All(len)) => {
                    held.push((number, path, len));
                    used += len;
                }
                Ok(Short::Longer(size, content)) => self.add_large(number, path, content, size),
                Err(e) => results.push((number, HashRecord { path, result: Err(e) })),
            }
        }
        self.flush(&mut held, &mut used, &mut results);
        let _ = self.results.send(results);
    }

    fn flush(&self, held: &mut Vec<(u64, PathBuf, usize)>, used: &mut usize, results: &mut Results) {
        let mut rest = &self.buffer[..*used];
        let mut messages = Vec::with_capacity(held.len());
        for (_, _, len) in held.iter() {
            let (message, others) = rest.split_at(*len);
            messages.push(message);
            rest = others;
        }
        let digests: Vec<Vec<Digest>> = self.functions().iter().map(|f| f.digests(&messages)).collect();
        for (at, (number, path, len)) in held.drain(..).enumerate() {
            let digests = digests.iter().map(|of_function| of_function[at]).collect();
            results.push((number, HashRecord { path, result: Ok(Hashed { size: len as u64, digests }) }));
        }
        self.options.progress.bytes.fetch_add(*used as u64, Ordering::Relaxed);
        if gpu_function(self.functions()).is_some() {
            self.announce(*used as u64);
        }
        *used = 0;
    }
}

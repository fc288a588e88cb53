//! Reading: from the write buffer, from windows opened ahead, or from the store.

use super::{
    File,
    few::Wanted,
    rules::{Rule, holds},
    span::Span,
    state::State,
    tree::current,
    window::Window,
};
use crate::{
    crypto::chunk::{CHUNK, ChunkId},
    format::{
        entry::{Entry, Slot},
        layout,
    },
    metrics::{self, Cache},
    vault::{Damage, Error, Result, sync::RwLockReadGuard},
};
use std::{ops::Range, sync::Arc};

/// Bytes up to which a read goes chunk by chunk on the caller's thread; more go through a batch.
const FEW: usize = 7 * CHUNK;
/// Chunks of a run from which on the slots of the groups behind it are brought along, and how many groups that are
/// (8 MiB). Who reads a long run often goes on, and whoever brings slots into memory keeps the file's other readers
/// waiting until those before have the chunks that they read.
const LONG: u64 = layout::GROUP;
const ALONG: u64 = 32;
/// Bytes that a long read opens at once.
const SPAN: usize = 4 << 20;

/// A request, as far as there is something to read, and what was opened before it came.
pub(super) struct Foreseen {
    bytes: Range<u64>,
    /// Which content of the file it is for.
    content: u64,
    /// Those that hold parts of it, in their order in the file.
    pub(super) windows: Vec<Arc<Window>>,
}

impl Foreseen {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        (self.bytes.end - self.bytes.start) as usize
    }

    fn chunks(&self) -> Range<u64> {
        self.bytes.start / layout::CHUNK..layout::chunks(self.bytes.end)
    }
}

impl File {
    /// Reads up to `len` bytes, fewer only at the end of the file, and lends them to `give`: out of a window
    /// that was opened ahead, out of the buffer that they were opened in, or, if there are few, out of `few`.
    ///
    /// # Errors
    /// `Damaged` if a chunk of the range, or what leads to it, does not authenticate; then nothing of the
    /// range is given. Else the store's errors.
    pub fn read_to<T>(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        few: &mut Vec<u8>,
        give: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let found = self.foresee(offset, len)?;
        let (len, chunks) = (found.len(), found.chunks());
        match &found.windows[..] {
            [] => {}
            [window] if window.chunks.start <= chunks.start && chunks.end <= window.chunks.end => {
                let span = window.content(|chunks| self.open_span(chunks));
                if let Some(span) = span.filter(|span| is_of(span, found.content)) {
                    return Ok(give(span.part(offset, len)));
                }
            }
            some => {
                // First, so that nobody holds a buffer while waiting for those who want one.
                some.iter().for_each(|window| drop(window.content(|chunks| self.open_span(chunks))));
                let mut gathered = self.context.router.buffers.get(len);
                let read = self.gather(&found, &mut gathered)?;
                return Ok(give(&gathered[..read]));
            }
        }
        if len > FEW {
            let span = self.open_span(chunks)?;
            return Ok(give(span.part(offset, len)));
        }
        few.resize(len, 0);
        let read = self.read(offset, few)?;
        Ok(give(&few[..read]))
    }

    /// Notes a request for `len` bytes, has windows opened ahead of it, and says which hold parts of it.
    ///
    /// # Errors
    /// `Damaged` if the stored file has not the right length for it.
    pub(super) fn foresee(self: &Arc<Self>, offset: u64, len: usize) -> Result<Foreseen> {
        let (size, len, content) = {
            let st = self.state.read();
            st.check_readable(offset.saturating_add(len as u64))?;
            (st.size, st.available(offset, len), st.content)
        };
        let bytes = offset..offset.saturating_add(len as u64);
        if bytes.is_empty() {
            return Ok(Foreseen { bytes, content, windows: Vec::new() });
        }
        let found = self.ahead.lock().note(bytes.clone(), size, content);
        for window in found.begun {
            let file = self.clone();
            self.context.background.run(move || window.open(|chunks| file.open_span(chunks)));
        }
        let mut windows = found.windows;
        windows.sort_unstable_by_key(|window| window.chunks.start);
        metrics::asked(Cache::Ahead, !windows.is_empty());
        Ok(Foreseen { bytes, content, windows })
    }

    /// Copies a request together from the windows that hold parts of it, and reads the rest. Returns how many
    /// bytes there are: fewer only where the file was cut meanwhile.
    pub(super) fn gather(&self, found: &Foreseen, out: &mut [u8]) -> Result<usize> {
        let Foreseen { bytes, content, windows } = found;
        let mut done = 0;
        for window in windows {
            let from = (window.chunks.start * layout::CHUNK).clamp(bytes.start, bytes.end);
            let before = (from - bytes.start) as usize;
            let Some(span) = window.content(|chunks| self.open_span(chunks)) else { continue };
            if before < done || !is_of(&span, *content) {
                continue;
            }
            done += self.read(bytes.start + done as u64, &mut out[done..before])?;
            if done < before {
                return Ok(done);
            }
            let part = span.part(from, out.len() - before);
            out[before..before + part.len()].copy_from_slice(part);
            done = before + part.len();
        }
        Ok(done + self.read(bytes.start + done as u64, &mut out[done..])?)
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// As `read_to`; the content of `out` is then unspecified.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if out.len() > FEW {
            return self.read_much(offset, out);
        }
        let end = offset.saturating_add(out.len() as u64);
        let st = self.read_state(offset / layout::CHUNK..end.div_ceil(layout::CHUNK))?;
        st.check_readable(end)?;
        let len = st.available(offset, out.len());
        self.read_loaded(&st, offset, &mut out[..len])?;
        Ok(len)
    }

    /// The same through spans.
    fn read_much(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let size = {
                let st = self.state.read();
                st.check_readable(offset.saturating_add(out.len() as u64))?;
                st.size
            };
            let end = size.min(at.saturating_add((out.len() - done).min(SPAN) as u64));
            if at >= end {
                break;
            }
            let span = self.open_span(at / layout::CHUNK..layout::chunks(end))?;
            let part = span.part(at, (end - at) as usize);
            if part.is_empty() {
                break; // cut meanwhile
            }
            out[done..done + part.len()].copy_from_slice(part);
            done += part.len();
        }
        Ok(done)
    }

    /// The file's state with the groups of these chunks loaded, as far as they exist.
    pub(super) fn read_state(&self, chunks: Range<u64>) -> Result<RwLockReadGuard<'_, State>> {
        let st = self.state.read();
        if File::is_at_hand(&st, &chunks) {
            return Ok(st);
        }
        drop(st);
        let mut st = self.state.write();
        if holds(Rule::LandBeforeReading) {
            self.land(&mut st, chunks.clone());
        }
        if let Some((groups, identity)) = missing(&st, &chunks).zip(st.identity.clone()) {
            st.tree.trim_cache();
            let source = self.source(&identity);
            st.tree.load_all(source, groups.clone())?;
            if chunks.end - chunks.start >= LONG {
                let end = layout::groups(st.tree.size()).min(groups.end + ALONG);
                st.tree.load_along(source, groups.end..end);
            }
        }
        Ok(st.downgrade())
    }

    /// Whether chunks can be read with this state as it is: their groups are loaded, as far as they exist, and
    /// none is on its way to the store.
    pub(super) fn is_at_hand(st: &State, chunks: &Range<u64>) -> bool {
        missing(st, chunks).is_none() && !(File::in_flight(st, chunks) && holds(Rule::LandBeforeReading))
    }

    fn read_loaded(&self, st: &State, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut wanted = Vec::new();
        self.read_unstored(st, offset, out, &mut wanted)?;
        self.open_wanted(st, &mut wanted)
    }

    /// Reads what is not in the store, and adds what is to `wanted`.
    pub(super) fn read_unstored<'a>(
        &self,
        st: &State,
        offset: u64,
        out: &'a mut [u8],
        wanted: &mut Vec<Wanted<'a>>,
    ) -> Result<()> {
        let mut rest = out;
        for Piece { index, start, out } in pieces(offset, rest.len()) {
            let (out, after) = std::mem::take(&mut rest).split_at_mut(out.len());
            rest = after;
            if let Some(plain) = st.buffer.get(index) {
                out.copy_from_slice(&plain[start..][..out.len()]);
            } else if let Some(slot) = self.stored_slot(st, index)? {
                wanted.push(Wanted { index, slot, start, out });
            } else {
                out.fill(0);
            }
        }
        Ok(())
    }

    /// Opens chunks that the flushed version has.
    pub(super) fn open_wanted(&self, st: &State, wanted: &mut [Wanted]) -> Result<()> {
        match &st.identity {
            Some(identity) if !wanted.is_empty() => {
                self.open_few(st.tree.size(), &identity.keys.chunk, wanted)
            }
            _ => Ok(()),
        }
    }

    /// The slot of a chunk whose content is in the store; `None` for zeros.
    pub(super) fn stored_slot(&self, st: &State, index: u64) -> Result<Option<Slot>> {
        if index >= layout::chunks(st.tree.size()) {
            return Ok(None);
        }
        self.slot_to_open(st, index, &st.tree.entry(index)?)
    }

    /// The same, where its entry is known.
    pub(super) fn slot_to_open(&self, st: &State, index: u64, entry: &Entry) -> Result<Option<Slot>> {
        let Some(slot) = current(entry).filter(|_| !st.buffer.is_punched(index)) else { return Ok(None) };
        if !slot.is_hole() {
            return Ok(Some(slot));
        }
        let id = ChunkId { index, epoch: slot.epoch, nonce: slot.nonce };
        match &st.identity {
            Some(identity) if identity.keys.chunk.verify_hole(&id, &slot.tag).is_ok() => Ok(None),
            _ => Err(damaged_chunk(index)),
        }
    }

    /// Reads the stored bytes of a chunk, `out.len()` of them.
    pub(super) fn read_ciphertext(&self, index: u64, out: &mut [u8]) -> Result<()> {
        if self.store.read_at(out, layout::chunk_offset(index))? < out.len() {
            return Err(damaged_chunk(index));
        }
        Ok(())
    }

    /// The content of a chunk as an application sees it, zeros past the end of the file.
    pub(super) fn read_chunk(&self, st: &mut State, index: u64) -> Result<super::buffer::Plain> {
        self.land_to_change(st, index..index + 1);
        let mut plain = super::buffer::Plain::zeros();
        if index < layout::chunks(st.tree.size())
            && let Some(identity) = st.identity.clone()
        {
            st.tree.load(self.source(&identity), layout::group_of(index))?;
        }
        self.read_loaded(st, index * layout::CHUNK, &mut plain[..])?;
        Ok(plain)
    }
}

/// Whether what was opened ahead is of this content.
fn is_of(span: &Span, content: u64) -> bool {
    span.content == content || !holds(Rule::SameContent)
}

/// The groups of chunks, if one of them is not loaded.
fn missing(st: &State, chunks: &Range<u64>) -> Option<Range<u64>> {
    let end = chunks.end.min(layout::chunks(st.tree.size()));
    let first = layout::group_of(chunks.start);
    let groups = first..if chunks.start < end { layout::group_of(end - 1) + 1 } else { first };
    groups.clone().any(|g| !st.tree.is_loaded(g)).then_some(groups)
}

/// The part of one chunk that a range covers.
pub(super) struct Piece {
    pub(super) index: u64,
    /// Where in the chunk it starts.
    pub(super) start: usize,
    /// Where in the caller's buffer it is.
    pub(super) out: Range<usize>,
}

/// The pieces of `len` bytes from `offset` on.
pub(super) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % layout::CHUNK) as usize;
        let next = len.min(done + CHUNK - start);
        let piece = Piece { index: at / layout::CHUNK, start, out: done..next };
        done = next;
        Some(piece)
    })
}

pub(super) fn damaged_chunk(index: u64) -> Error {
    Damage { what: format!("chunk {index}"), reason: "does not authenticate" }.into()
}

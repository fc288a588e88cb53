//! What a thread has the device hash while it reads on: slots on their way, and their landing.

use super::{
    gpu::{self, Failed, Flying, Gpu, Slot},
    source::{Content, Source},
    tree::Tree,
    work::Worker,
};
use crate::{
    crypto::hash::{
        Function,
        md6::{self, Md6, VALUE, forest},
    },
    engine::Fault,
};
use std::{collections::VecDeque, ops::Range, path::PathBuf, sync::Arc};

/// One of so many slots has a message hashed on the CPU too, to be compared.
const SAMPLE: u64 = 16;

/// A thread's part of the device.
pub(super) struct Hangar<'a, C: Content> {
    gpu: &'a Gpu,
    free: Vec<Slot>,
    flights: VecDeque<(Flying, Cargo<C>)>,
    landed: u64,
}

/// The messages in a slot.
pub(super) struct Cargo<C: Content> {
    md6: Md6,
    items: Vec<Item<C>>,
}

/// A message, or a part of one.
struct Item<C: Content> {
    place: Range<usize>,
    whose: Whose<C>,
}

enum Whose<C: Content> {
    /// A part of a long file.
    Part(Arc<Tree<C>>, u64),
    /// A short file: its number in the order of the output, and its path.
    File(u64, PathBuf),
}

impl<'a, C: Content> Hangar<'a, C> {
    pub(super) fn new(gpu: &'a Gpu) -> Self {
        Hangar { gpu, free: Vec::new(), flights: VecDeque::new(), landed: 0 }
    }
}

impl<C: Content> Cargo<C> {
    pub(super) fn new(md6: &Md6) -> Self {
        Cargo { md6: md6.clone(), items: Vec::new() }
    }

    /// Where the next message goes.
    pub(super) fn end(&self) -> usize {
        self.items.last().map_or(0, |item| item.place.end.next_multiple_of(16))
    }

    /// Whether there is room for one of so many bytes more.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.items.len() < gpu::TREES && self.end() + len <= gpu::BYTES
    }

    /// Takes in a short file that was read to `end`.
    pub(super) fn add_file(&mut self, number: u64, path: PathBuf, len: usize) {
        let at = self.end();
        self.items.push(Item { place: at..at + len, whose: Whose::File(number, path) });
    }

    fn trees(&self) -> Vec<forest::Tree> {
        let tree = |item: &Item<C>| forest::Tree {
            data: item.place.start as u64,
            bits: 8 * item.place.len() as u64,
            part: item.whose.part(),
        };
        self.items.iter().map(tree).collect()
    }
}

impl<C: Content> Whose<C> {
    /// The number of a part of several.
    fn part(&self) -> Option<u64> {
        match self {
            Whose::Part(tree, index) if tree.parts() > 1 => Some(*index),
            _ => None,
        }
    }
}

/// The value at the top of a message's tree, by the CPU.
fn value(md6: &Md6, message: &[u8], part: Option<u64>) -> md6::Value {
    match part {
        Some(index) => md6.part(index, message),
        None => md6.root(message),
    }
}

impl<S: Source> Worker<'_, S> {
    /// A slot to read into, if the device is to hash what comes next.
    pub(super) fn slot(&mut self) -> Option<Slot> {
        if !self.hangar.as_ref()?.gpu.serves() {
            self.retire();
            return None;
        }
        loop {
            let hangar = self.hangar.as_mut()?;
            if let Some(slot) = hangar.free.pop() {
                return Some(slot);
            }
            if hangar.flights.len() < gpu::OWN
                && let Some(slot) = hangar.gpu.slot()
            {
                return Some(slot);
            }
            let over = hangar.flights.front().is_some_and(|(flying, _)| flying.is_over());
            if !over && (hangar.flights.is_empty() || !hangar.gpu.is_waited_for()) {
                return None;
            }
            self.land();
        }
    }

    /// Reads a part and those that follow into a slot and has the device hash them.
    pub(super) fn fly(&mut self, mut slot: Slot, md6: &Md6, tree: Arc<Tree<S::Content>>, index: u64) {
        let mut cargo = Cargo::new(md6);
        let part_len = tree.part_len();
        let room = gpu::BYTES / part_len;
        let more = self.queue.more_parts(tree.function(), room - 1);
        for (tree, index) in [(tree, index)].into_iter().chain(more) {
            let at = cargo.end();
            let len = tree.len(index);
            match self.read(&tree, index, &mut slot.input()[at..at + len]) {
                Ok(()) => cargo.items.push(Item { place: at..at + len, whose: Whose::Part(tree, index) }),
                Err(e) => self.take_part(&tree, index, Err(e)),
            }
        }
        self.send(slot, cargo);
    }

    /// Sends a slot off; what cannot be sent is hashed here.
    pub(super) fn send(&mut self, slot: Slot, cargo: Cargo<S::Content>) {
        let Some(hangar) = &mut self.hangar else { return };
        if cargo.items.is_empty() {
            hangar.free.push(slot);
            return;
        }
        match slot.submit(&cargo.md6, &cargo.trees()) {
            Ok(flying) => hangar.flights.push_back((flying, cargo)),
            Err(failed) => self.redo(*failed, cargo),
        }
    }

    /// Waits for the flight that began first and takes its results.
    fn land(&mut self) {
        let Some((flying, cargo)) = self.hangar.as_mut().and_then(|hangar| hangar.flights.pop_front()) else {
            return;
        };
        match flying.wait() {
            Err(failed) => self.redo(*failed, cargo),
            Ok(slot) if !self.is_right(&slot, &cargo) => {
                let fault = Fault::Wrong("a value of MD6");
                self.redo(Failed { slot, fault }, cargo);
            }
            Ok(slot) => {
                let values = slot.values().to_vec();
                if let Some(hangar) = &mut self.hangar {
                    hangar.free.push(slot);
                }
                self.deliver(cargo, &values);
            }
        }
    }

    /// Lands all that is on its way.
    pub(super) fn land_all(&mut self) {
        while self.hangar.as_ref().is_some_and(|hangar| !hangar.flights.is_empty()) {
            self.land();
        }
    }

    /// Gives the slots back: there is nothing to do any more.
    pub(super) fn leave(&mut self) {
        self.land_all();
        if let Some(hangar) = &mut self.hangar {
            hangar.gpu.put(std::mem::take(&mut hangar.free));
        }
    }

    /// Takes what a device out of service still gives.
    fn retire(&mut self) {
        self.land_all();
        if let Some(hangar) = &mut self.hangar {
            hangar.free.clear();
        }
    }

    /// Compares a message of some slots with what the CPU makes of it.
    fn is_right(&mut self, slot: &Slot, cargo: &Cargo<S::Content>) -> bool {
        let Some(hangar) = &mut self.hangar else { return true };
        let number = hangar.landed;
        hangar.landed += 1;
        if !number.is_multiple_of(SAMPLE) {
            return true;
        }
        let at = (number / SAMPLE) as usize % cargo.items.len();
        let item = &cargo.items[at];
        value(&cargo.md6, &slot.messages()[item.place.clone()], item.whose.part()) == slot.values()[at]
    }

    /// Has the CPU hash what the device did not.
    fn redo(&mut self, failed: Failed, cargo: Cargo<S::Content>) {
        if let Some(hangar) = &mut self.hangar {
            hangar.gpu.fail(&failed.fault);
            hangar.free.clear();
        }
        let of = |item: &Item<S::Content>| {
            value(&cargo.md6, &failed.slot.messages()[item.place.clone()], item.whose.part())
        };
        let values: Vec<md6::Value> = cargo.items.iter().map(of).collect();
        self.deliver(cargo, &values);
    }

    /// Takes the values of a slot's messages as results.
    fn deliver(&mut self, cargo: Cargo<S::Content>, values: &[[u8; VALUE]]) {
        let mut files = Vec::new();
        for (item, value) in cargo.items.into_iter().zip(values) {
            let len = item.place.len() as u64;
            match item.whose {
                Whose::Part(tree, index) => {
                    self.progress_in(tree.function(), len);
                    let hashed = match tree.parts() {
                        1 => (Vec::new(), Some(cargo.md6.of_root(value))),
                        _ => (value.to_vec(), None),
                    };
                    self.take_part(&tree, index, Ok(hashed));
                }
                Whose::File(number, path) => {
                    self.progress_in(0, len);
                    files.push((number, path, len, cargo.md6.of_root(value)));
                }
            }
        }
        self.emit_files(files);
    }
}

/// The device's function among `functions`, if it is the only one: then short files are hashed there too.
pub(super) fn only(functions: &[Function]) -> Option<&Md6> {
    match functions {
        [Function::Md6(md6)] => Some(md6),
        _ => None,
    }
}

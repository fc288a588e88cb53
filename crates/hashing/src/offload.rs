//! Hashing on a GPU while the thread continues reading: slots are filled, submitted and completed. The CPU
//! checks samples, and hashes the messages that a failed device did not.

use super::{
    gpu::{self, Failed, MessageSlot},
    in_flight::{HashItem, ItemOrigin, Messages},
    source::Source,
    tree::HashTree,
    worker::Worker,
};
use crypto::hash::md6::{self, Md6, VALUE};
use engine::Fault;
use std::sync::Arc;

/// The CPU checks one message in one of this many slots.
const SAMPLE: u64 = 16;

/// The value at the top of a message's tree, computed by the CPU.
fn value(md6: &Md6, message: &[u8], part: Option<u64>) -> md6::Value {
    match part {
        Some(index) => md6.part(index, message),
        None => md6.root(message),
    }
}

impl<S: Source> Worker<'_, S> {
    /// A slot to read into, if the device should hash the next messages.
    pub(super) fn slot(&mut self) -> Option<MessageSlot> {
        if !self.gpu_slots.as_ref()?.gpu.serves() {
            self.drop_slots();
            return None;
        }
        loop {
            let slots = self.gpu_slots.as_mut()?;
            if let Some(slot) = slots.free.pop() {
                return Some(slot);
            }
            if slots.in_flight.len() < gpu::OWN
                && let Some(slot) = slots.gpu.slot()
            {
                return Some(slot);
            }
            let over = slots.in_flight.front().is_some_and(|(in_flight, _)| in_flight.is_over());
            if !over && (slots.in_flight.is_empty() || !slots.gpu.is_waited_for()) {
                return None;
            }
            self.complete_oldest();
        }
    }

    /// Reads a part and the following ones into a slot and submits it.
    pub(super) fn submit_parts(
        &mut self,
        mut slot: MessageSlot,
        md6: &Md6,
        tree: Arc<HashTree<S::Content>>,
        index: u64,
    ) {
        let mut messages = Messages::new(md6);
        let part_len = tree.part_len();
        let room = gpu::BYTES / part_len;
        let more = self.queue.more_parts(tree.function(), room - 1);
        for (tree, index) in [(tree, index)].into_iter().chain(more) {
            let at = messages.end();
            let len = tree.len(index);
            match tree.read(index, &mut slot.input()[at..at + len], self.stop()) {
                Ok(()) => messages
                    .items
                    .push(HashItem { place: at..at + len, origin: ItemOrigin::Part(tree, index) }),
                Err(e) => self.take_part(&tree, index, Err(e)),
            }
        }
        self.submit(slot, messages);
    }

    /// Submits a slot to the device. If that fails, the CPU hashes its messages.
    pub(super) fn submit(&mut self, slot: MessageSlot, messages: Messages<S::Content>) {
        let Some(slots) = &mut self.gpu_slots else { return };
        if messages.items.is_empty() {
            slots.free.push(slot);
            return;
        }
        match slot.submit(&messages.md6, &messages.trees()) {
            Ok(in_flight) => slots.in_flight.push_back((in_flight, messages)),
            Err(failed) => self.fall_back_to_cpu(*failed, messages),
        }
    }

    /// Waits for the oldest slot in flight and takes its results.
    fn complete_oldest(&mut self) {
        let Some((in_flight, messages)) =
            self.gpu_slots.as_mut().and_then(|slots| slots.in_flight.pop_front())
        else {
            return;
        };
        match in_flight.wait() {
            Err(failed) => self.fall_back_to_cpu(*failed, messages),
            Ok(slot) if !self.verify_sample(&slot, &messages) => {
                let fault = Fault::Wrong("a value of MD6");
                self.fall_back_to_cpu(Failed { slot, fault }, messages);
            }
            Ok(slot) => {
                let values = slot.values().to_vec();
                if let Some(slots) = &mut self.gpu_slots {
                    slots.free.push(slot);
                }
                self.deliver(messages, &values);
            }
        }
    }

    /// Completes everything in flight.
    pub(super) fn complete_all(&mut self) {
        while self.gpu_slots.as_ref().is_some_and(|slots| !slots.in_flight.is_empty()) {
            self.complete_oldest();
        }
    }

    /// Completes everything in flight and returns the slots, at the end of the work.
    pub(super) fn return_slots(&mut self) {
        self.complete_all();
        if let Some(slots) = &mut self.gpu_slots {
            slots.gpu.put(std::mem::take(&mut slots.free));
        }
    }

    /// Completes the slots in flight on a device that is out of service, and drops the slots.
    fn drop_slots(&mut self) {
        self.complete_all();
        if let Some(slots) = &mut self.gpu_slots {
            slots.free.clear();
        }
    }

    /// Hashes one message of every `SAMPLE`th slot on the CPU as well, and compares the values.
    fn verify_sample(&mut self, slot: &MessageSlot, messages: &Messages<S::Content>) -> bool {
        let Some(slots) = &mut self.gpu_slots else { return true };
        let number = slots.completed;
        slots.completed += 1;
        if !number.is_multiple_of(SAMPLE) {
            return true;
        }
        let at = (number / SAMPLE) as usize % messages.items.len();
        let item = &messages.items[at];
        value(&messages.md6, &slot.messages()[item.place.clone()], item.origin.part()) == slot.values()[at]
    }

    /// Takes the device out of service and hashes the slot's messages on the CPU.
    fn fall_back_to_cpu(&mut self, failed: Failed, messages: Messages<S::Content>) {
        if let Some(slots) = &mut self.gpu_slots {
            slots.gpu.fail(&failed.fault);
            slots.free.clear();
        }
        let of = |item: &HashItem<S::Content>| {
            value(&messages.md6, &failed.slot.messages()[item.place.clone()], item.origin.part())
        };
        let values: Vec<md6::Value> = messages.items.iter().map(of).collect();
        self.deliver(messages, &values);
    }

    /// Delivers the values as the results of the messages.
    fn deliver(&mut self, messages: Messages<S::Content>, values: &[[u8; VALUE]]) {
        let mut files = Vec::new();
        for (item, value) in messages.items.into_iter().zip(values) {
            let len = item.place.len() as u64;
            match item.origin {
                ItemOrigin::Part(tree, index) => {
                    self.progress_in(tree.function(), len);
                    let hashed = match tree.parts() {
                        1 => (Vec::new(), Some(messages.md6.of_root(value))),
                        _ => (value.to_vec(), None),
                    };
                    self.take_part(&tree, index, Ok(hashed));
                }
                ItemOrigin::File(number, path) => {
                    self.progress_in(0, len);
                    files.push((number, path, len, messages.md6.of_root(value)));
                }
            }
        }
        self.emit_files(files);
    }
}

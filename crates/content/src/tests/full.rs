//! A nearly full store: a write without room is rejected as a whole, and everything that was accepted is
//! stored.

use super::{super::space::Space, *};

/// Random files for each kind of store.
const FILES: u64 = 400;
const STEPS: usize = 60;
/// One in `LONG` files is long enough for two levels of nodes. The others have a few groups.
const LONG: u64 = 10;
const LARGEST: [u64; 2] = [140 * 64 * 4096, 10 * 64 * 4096];

/// A random program on a file: the expected content, and the number of rejected operations.
struct Program {
    store: Arc<FaultyFile>,
    file: Arc<File>,
    content: Vec<u8>,
    largest: u64,
    /// Whether space is reserved.
    reserves: bool,
    rng: Rng,
    refused: usize,
}

impl Program {
    /// Records the result of a change, which must be applied or rejected as a whole.
    fn note(&mut self, changed: Result<(), Error>, change: impl FnOnce(&mut Vec<u8>)) {
        match changed {
            Ok(()) => change(&mut self.content),
            Err(Error::Store(e)) if e.raw_os_error() == Some(libc::EDQUOT) => self.refused += 1,
            Err(e) => panic!("{e}"),
        }
    }

    fn step(&mut self) {
        let size = self.content.len() as u64;
        let anywhere = if self.rng.below(8) == 0 { self.largest } else { size + 20_000 };
        let offset = self.rng.below(anywhere.min(self.largest));
        let offset = if self.rng.below(2) == 0 { offset / 4096 * 4096 } else { offset };
        let longest = if self.rng.below(4) == 0 { 500_000 } else { 20_000 };
        let len = 1 + self.rng.below(longest) as usize;
        match self.rng.below(16) {
            0..=5 => {
                let data = self.rng.bytes(len);
                let written = self.file.write(offset, &data);
                self.note(written, |content| {
                    content.resize(content.len().max(offset as usize + len), 0);
                    content[offset as usize..][..len].copy_from_slice(&data);
                });
            }
            6..=8 => {
                let data = self.rng.bytes(len);
                let written = self.file.append(&data).map(drop);
                self.note(written, |content| content.extend(&data));
            }
            9 => {
                let grown = self.file.truncate(size + len as u64);
                self.note(grown, |content| content.resize(content.len() + len, 0));
            }
            10 => {
                let size = self.rng.below(size + 1);
                self.file.truncate(size).expect("a cut takes no room");
                self.content.truncate(size as usize);
            }
            11 => {
                self.file.punch(offset, len as u64).expect("a hole takes no room");
                let end = self.content.len().min(offset as usize + len);
                if let Some(hole) = self.content.get_mut(offset as usize..end) {
                    hole.fill(0);
                }
            }
            12 => self.file.flush().expect("what was taken has a place"),
            13 => self.file.flush_at_close().expect("what was taken has a place"),
            14 => self.file.sync().expect("what was taken has a place"),
            _ if self.reserves => clean(&self.file),
            // No space is reserved for nodes. A file without them is recovered.
            _ => drop(self.file.cleaner().flush()),
        }
        assert_eq!(self.file.size(), self.content.len() as u64);
    }
}

/// Runs random programs. Returns how many operations were rejected for lack of room.
fn run(context: &Arc<Context>) -> usize {
    let program = |seed: u64| {
        let store = FaultyFile::new();
        let file = open(&store, context);
        let mut rng = Rng(seed);
        // A file has always room for something besides its header.
        store.leave(libc::EDQUOT, 2 + rng.below(400));
        let largest = LARGEST[usize::from(!seed.is_multiple_of(LONG))];
        let reserves = context.overwrites_in_place;
        let content = Vec::new();
        let mut program = Program { store, file, content, largest, reserves, rng, refused: 0 };
        for _ in 0..STEPS {
            program.step();
        }
        assert!(read_all(&program.file).unwrap() == program.content, "seed {seed}");
        program.file.sync().expect("what was taken has a place");
        if !reserves {
            program.store.free();
        }
        clean(&program.file);
        let left = open(&killed(&program.store.snapshot()), context);
        assert!(read_all(&left).unwrap() == program.content, "seed {seed}, opened again");
        program.refused
    };
    (0..FILES).map(program).sum()
}

/// A context whose store reports that it has no free space.
fn scarce(overwrites_in_place: bool) -> Arc<Context> {
    let space = Space::of(Box::new(|| Ok(0)));
    Arc::new(Context { space, overwrites_in_place, ..context_over(Background::at_once()) })
}

#[test]
fn where_places_are_reserved_a_write_is_stored_or_refused() {
    assert!(run(&scarce(true)) > 1000);
}

#[test]
fn where_none_can_be_a_write_is_stored_or_refused() {
    assert!(run(&scarce(false)) > 1000);
}

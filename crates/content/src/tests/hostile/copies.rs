//! Two copies of a file are written separately, and parts of both are combined. Anything read must come
//! from the copy to which the newest record belongs, or the read fails.

use super::*;

/// Number of pairs of copies.
const PAIRS: u64 = 16;
/// Images combined from each pair.
const SPLICED: usize = 160;
/// Operations on each copy.
const OPERATIONS: u64 = 14;
/// Chunks to write, in two groups.
const CHUNKS: [u64; 6] = [0, 1, 2, 46, 48, 49];

impl History {
    /// The same file in a copy of the store. Everything must be stored.
    fn copy(&self, seed: u64) -> History {
        let store = FaultyFile::at(&self.store.snapshot());
        store.record();
        let file = open(&store, &self.context);
        let (content, mut versions) = (self.content.clone(), self.versions.clone());
        versions.push(Version::of(&file, &content));
        let (context, rng, states, bases) = (self.context.clone(), Rng(seed), Vec::new(), Vec::new());
        History { context, store, file, rng, content, versions, states, bases }
    }

    fn at_random(&mut self) {
        let chunk = CHUNKS[self.rng.below(CHUNKS.len() as u64) as usize];
        match self.rng.below(14) {
            0..=3 => self.chunks([chunk]).flush(),
            4 => self.chunks(CHUNKS).flush(),
            5 => {
                let (within, len) = (self.rng.below(4000), 1 + self.rng.below(300) as usize);
                self.write(chunk * 4096 + within, len).flush()
            }
            6 => {
                let size = chunk * 4096 + [0, 700, 4096][self.rng.below(3) as usize];
                self.resize(size)
            }
            7 if chunk * 4096 < self.content.size => self.punch(chunk..chunk + 1).flush(),
            8..=10 => self.sync(),
            11 => self.clean(),
            12 => self.reopen(),
            _ => self.chunks([chunk]).sync(),
        };
    }
}

/// One of these states, with later ones more likely.
fn late<'a>(rng: &mut Rng, states: &'a [Arc<FaultyFile>]) -> &'a FaultyFile {
    let most = 1 + rng.below(states.len() as u64);
    let back = rng.below(most);
    &states[states.len() - 1 - back as usize]
}

/// A state with records, slots and data of others copied over its own.
fn splice(rng: &mut Rng, pasts: &[Past]) -> (Arc<FaultyFile>, Edit) {
    let all: Vec<&FaultyFile> = [0, 1, rng.below(2) as usize].map(|of| late(rng, &pasts[of].states)).to_vec();
    let mut writes = Vec::new();
    let mut put =
        |at: u64, len: usize, of: &FaultyFile| writes.push((at, Part::new("", Kind::Chunk, at, len).of(of)));
    let header = rng.below(4);
    let which = |rng: &mut Rng| all[rng.below(3) as usize];
    if header == 0 {
        put(0, 512, which(rng));
        put(512, 512, which(rng));
    }
    for chunk in CHUNKS {
        let entry =
            layout::entries_offset(layout::group_of(chunk)) + layout::place_in_group(chunk) as u64 * 64;
        let (one, other) = (which(rng), which(rng));
        let (first, second, data) = match rng.below(6) {
            0 | 1 => continue,
            2 => (one, one, one),
            3 => (one, other, other),
            4 => (one, other, one),
            _ => (one, one, other),
        };
        put(entry, 32, first);
        put(entry + 32, 32, second);
        put(layout::chunk_offset(chunk), 4096, data);
    }
    let image = FaultyFile::at(&all[rng.below(2) as usize].snapshot());
    let mut edit = Edit::new("spliced", writes);
    edit.len = (rng.below(4) == 0).then(|| which(rng).len().unwrap());
    (image, edit)
}

#[test]
fn what_one_copy_was_given_never_reads_in_another() {
    let contexts = contexts();
    let (mut tally, mut wrong) = (Tally::default(), Vec::new());
    for seed in 0..PAIRS {
        let mut common = History::new(&contexts[0], seed);
        common.write(0, 30_000).chunks(CHUNKS).flush();
        match seed % 4 {
            0 => common.clean(),
            1 => common.sync(),
            2 => common.sync().chunks([1, 49]).flush(),
            _ => &mut common,
        };
        let pasts = [1, 2].map(|number| {
            let mut copy = common.copy(1000 * number + seed);
            (0..OPERATIONS).for_each(|_| copy.at_random());
            copy.end()
        });
        let mut rng = Rng(seed);
        for number in 0..SPLICED {
            let (image, edit) = splice(&mut rng, &pasts);
            edit.apply(&image);
            let what = format!("copies {seed}, image {number}");
            let checked =
                catch_unwind(AssertUnwindSafe(|| check(&pasts, &contexts, &image, &what, &mut tally)));
            wrong.extend(checked.err().map(|_| what));
        }
    }
    println!("{tally:?}");
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tally.whole > 100 && tally.partly > 100, "{tally:?}");
}

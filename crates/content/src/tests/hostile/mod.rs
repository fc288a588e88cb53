//! Edits by an attacker who knows the format and has every state that the store ever showed, but no key.
//! Reads must return what the records in the file allow, or fail.

use super::*;
use past::{Allowed, Content, History, Past, Version, allowed};
use std::{
    ops::AddAssign,
    panic::{AssertUnwindSafe, catch_unwind},
};

mod copies;
mod past;

/// Maximum distinct earlier and later contents of a structure that are tried in its place.
const VARIANTS: usize = 5;
/// States of a history that are mixed with each other.
const MIXED: usize = 7;
/// Chunks of the sparse file that are read in addition to the first one of each group.
const SPARSE: [u64; 7] = [0, 1, 5000, 5001, 8175, 8176, 9000];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Record,
    Slot,
    Entry,
    Entries,
    Leaf,
    Node,
    Chunk,
}

/// A structure in a stored file.
#[derive(Clone)]
struct Part {
    what: String,
    kind: Kind,
    at: u64,
    len: usize,
}

/// Bytes to write over a state of the store, and its new length.
#[derive(Clone)]
struct Edit {
    what: String,
    writes: Vec<(u64, Vec<u8>)>,
    len: Option<u64>,
}

/// Selects parts.
type Which<'a> = &'a dyn Fn(&Part) -> bool;

/// A chunk and its content, `None` if reading it failed.
type Seen = (u64, Option<Vec<u8>>);

/// Results of edits.
#[derive(Default, Debug)]
struct Tally {
    edits: usize,
    /// Files that failed to open.
    refused: usize,
    /// Files in which some chunks failed.
    partly: usize,
    /// Files that read as one of the allowed versions.
    whole: usize,
    emptied: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.edits += other.edits;
        self.refused += other.refused;
        self.partly += other.partly;
        self.whole += other.whole;
        self.emptied += other.emptied;
    }
}

impl Part {
    fn new(what: impl ToString, kind: Kind, at: u64, len: usize) -> Part {
        Part { what: what.to_string(), kind, at, len }
    }

    /// Its bytes in a file; zeros past the end.
    fn of(&self, file: &FaultyFile) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        file.read_at(&mut bytes, self.at).unwrap();
        bytes
    }

    /// Offsets of the last byte of each field, and some others.
    fn fields(&self) -> Vec<usize> {
        let slot = [9, 15, 31];
        match self.kind {
            Kind::Record => vec![7, 9, 11, 15, 23, 24, 55, 63, 71, 103, 111, 119, 151, 152, 479, 480, 511],
            Kind::Slot => slot.to_vec(),
            Kind::Entry => slot.into_iter().chain(slot.map(|at| at + 32)).collect(),
            Kind::Entries | Kind::Leaf | Kind::Node => vec![15, 47, self.len / 2 + 15, self.len - 1],
            Kind::Chunk => vec![0, 99, self.len - 1],
        }
    }
}

/// The structures for these chunks in a file, up to this length.
fn parts(chunks: &[u64], len: u64) -> Vec<Part> {
    let mut parts =
        vec![Part::new("record A", Kind::Record, 0, 512), Part::new("record B", Kind::Record, 512, 512)];
    let mut groups: Vec<u64> = chunks.iter().map(|index| layout::group_of(*index)).collect();
    groups.dedup();
    for index in chunks {
        let entry =
            layout::entries_offset(layout::group_of(*index)) + layout::place_in_group(*index) as u64 * 64;
        parts.push(Part::new(format!("first slot of {index}"), Kind::Slot, entry, 32));
        parts.push(Part::new(format!("second slot of {index}"), Kind::Slot, entry + 32, 32));
        parts.push(Part::new(format!("entry of {index}"), Kind::Entry, entry, 64));
        parts.push(Part::new(format!("chunk {index}"), Kind::Chunk, layout::chunk_offset(*index), 4096));
    }
    for group in &groups {
        let at = layout::entries_offset(*group);
        let entries = layout::entries_in(*group) * 64;
        parts.push(Part::new(format!("half of leaf {group}"), Kind::Entries, at, entries / 2));
        parts.push(Part::new(format!("leaf {group}"), Kind::Leaf, at, entries));
    }
    for (level, k) in [(1, 0), (1, 1), (2, 0)] {
        parts.push(Part::new(format!("node {level} {k}"), Kind::Node, layout::node_offset(level, k), 4096));
    }
    parts.retain(|part| part.at < len);
    parts.iter_mut().for_each(|part| part.len = part.len.min((len - part.at) as usize));
    parts
}

impl Edit {
    fn new(what: impl ToString, writes: Vec<(u64, Vec<u8>)>) -> Edit {
        Edit { what: what.to_string(), writes, len: None }
    }

    /// Applies the edit. Returns false if nothing changed.
    fn apply(&self, file: &FaultyFile) -> bool {
        let before = file.len().unwrap();
        let mut changed = self.len.is_some_and(|len| len != before);
        if let Some(len) = self.len {
            file.set_len(len).unwrap();
        }
        let end = file.len().unwrap();
        for (at, bytes) in self.writes.iter().filter(|(at, _)| *at < end) {
            let bytes = &bytes[..bytes.len().min((end - at) as usize)];
            let mut old = vec![0; bytes.len()];
            file.read_at(&mut old, *at).unwrap();
            if old != bytes {
                changed = true;
                file.write_at(bytes, *at).unwrap();
            }
        }
        changed
    }

    /// Restores the bytes from before.
    fn undo(&self, file: &FaultyFile, before: &FaultyFile) {
        let len = before.len().unwrap();
        let mut bytes = vec![0; 4096];
        let mut at = self.len.unwrap_or(len).min(file.len().unwrap());
        file.set_len(len).unwrap();
        while let Some(data) = before.next_data(at).unwrap() {
            let end = (data / 4096 + 1) * 4096;
            let read = before.read_at(&mut bytes[..(end - data) as usize], data).unwrap();
            file.write_at(&bytes[..read], data).unwrap();
            at = end;
        }
        for (at, written) in self.writes.iter().filter(|(at, _)| *at < len) {
            let mut bytes = vec![0; written.len()];
            let read = before.read_at(&mut bytes, *at).unwrap();
            file.write_at(&bytes[..read], *at).unwrap();
        }
    }

    fn and(&self, other: &Edit) -> Edit {
        let writes = self.writes.iter().chain(&other.writes).cloned().collect();
        Edit { what: format!("{} and {}", self.what, other.what), writes, len: self.len.or(other.len) }
    }
}

/// The distinct contents of a structure at different times, including the oldest and the newest.
fn variants(part: &Part, states: &[Arc<FaultyFile>], most: usize) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for state in states {
        let bytes = part.of(state);
        if !all.contains(&bytes) {
            all.push(bytes);
        }
    }
    spread(&all, most)
}

/// Up to `most` of these, including the first and the last.
fn spread<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    let last = all.len().saturating_sub(1);
    let steps = most.min(all.len());
    (0..steps).map(|step| all[step * last / steps.saturating_sub(1).max(1)].clone()).collect()
}

/// Edits of a single structure.
fn single_edits(parts: &[Part], base: &FaultyFile, past: &Past, other: &Past) -> Vec<Edit> {
    let mut edits = Vec::new();
    for part in parts {
        let present = part.of(base);
        let mut put = |how: &str, bytes: Vec<u8>| {
            edits.push(Edit::new(format!("{} {how}", part.what), vec![(part.at, bytes)]));
        };
        put("blanked", vec![0; part.len]);
        put("of ones", vec![0xff; part.len]);
        for (number, bytes) in variants(part, &past.states, VARIANTS).into_iter().enumerate() {
            put(&format!("as once, {number}"), bytes);
        }
        for (what, foreign) in &other.bases {
            put(&format!("of another file, {what}"), part.of(foreign));
        }
        for field in part.fields().into_iter().filter(|field| *field < part.len) {
            let mut bytes = present.clone();
            bytes[field] ^= 1;
            put(&format!("with bit {field}.0 flipped"), bytes);
        }
        if part.kind == Kind::Record {
            for state in [&other.states[other.states.len() - 1], &past.states[past.states.len() - 1]] {
                let mut bytes = present.clone();
                bytes[24..56].copy_from_slice(&part.of(state)[24..56]);
                put("with another salt", bytes);
            }
        }
        let siblings: Vec<&Part> =
            parts.iter().filter(|sibling| sibling.kind == part.kind && sibling.at != part.at).collect();
        for sibling in spread(&siblings, 2) {
            let theirs = sibling.of(base);
            let copy = Edit::new(
                format!("{} in the place of {}", sibling.what, part.what),
                vec![(part.at, theirs.clone())],
            );
            let back = Edit::new("exchanged", vec![(sibling.at, present.clone())]);
            edits.extend([copy.and(&back), copy]);
        }
    }
    // Exchange entries together with their chunks.
    let entries: Vec<&Part> = parts.iter().filter(|part| part.kind == Kind::Entry).collect();
    let chunks: Vec<&Part> = parts.iter().filter(|part| part.kind == Kind::Chunk).collect();
    for (a, b) in (0..chunks.len()).zip(1..chunks.len()) {
        let swap = |parts: &[&Part]| {
            Edit::new(
                format!("{} and {} exchanged", parts[a].what, parts[b].what),
                vec![(parts[a].at, parts[b].of(base)), (parts[b].at, parts[a].of(base))],
            )
        };
        edits.push(swap(&entries).and(&swap(&chunks)));
    }
    edits
}

/// Edits of the length.
fn lengths(parts: &[Part], base: &FaultyFile, past: &Past) -> Vec<Edit> {
    let len = base.len().unwrap();
    let mut all = vec![0, 1, 512, 1024, 4095, len - 1, len + 1, len + 4096, len + 100_000];
    all.extend(parts.iter().flat_map(|part| [part.at, part.at + part.len as u64]));
    let mut once: Vec<u64> = past.states.iter().map(|state| state.len().unwrap()).collect();
    once.sort_unstable();
    once.dedup();
    all.extend(spread(&once, 12));
    all.sort_unstable();
    all.dedup();
    all.into_iter()
        .map(|to| Edit { what: format!("length {to}"), writes: Vec::new(), len: Some(to) })
        .collect()
}

/// Records from another time, alone or combined with other structures from that time or a third one.
fn replays(parts: &[Part], past: &Past) -> Vec<Edit> {
    let records = Part::new("records", Kind::Record, 0, 1024);
    let sector = Part::new("", Kind::Record, 0, 512);
    let slots = || parts.iter().filter(|part| part.kind == Kind::Slot);
    let blanks = |kinds: &[Kind]| {
        let blank = |part: &Part| (part.at, vec![0; part.len]);
        parts.iter().filter(|part| kinds.contains(&part.kind)).map(blank).collect()
    };
    let mut edits = Vec::new();
    let mut all = variants(&records, &past.states, usize::MAX);
    // Either sector alone, in both positions.
    for one in variants(&sector, &past.states, usize::MAX) {
        let blank = vec![0; 512];
        all.extend(
            [[one.clone(), blank.clone()], [blank, one.clone()], [one.clone(), one]].map(|x| x.concat()),
        );
    }
    for (number, bytes) in spread(&all, 24).into_iter().enumerate() {
        let replay = Edit::new(format!("records {number}"), vec![(0, bytes)]);
        edits.push(replay.clone());
        for kinds in [&[Kind::Slot][..], &[Kind::Leaf], &[Kind::Node], &[Kind::Slot, Kind::Chunk]] {
            edits.push(replay.and(&Edit::new("blanks", blanks(kinds))));
        }
        for slot in spread(&slots().collect::<Vec<_>>(), 6) {
            edits.push(replay.and(&Edit::new(format!("no {}", slot.what), vec![(slot.at, vec![0; 32])])));
        }
        // Slots from another time under these records, in one position of all entries or in both; or with
        // their nodes.
        for (other, state) in spread(&past.states, 4).iter().enumerate() {
            let put = |keep: Which| {
                parts.iter().filter(|part| keep(part)).map(|part| (part.at, part.of(state))).collect()
            };
            let first = slots().next().map_or(0, |part| part.at);
            let some: [(&str, Which); 4] = [
                ("first slots", &|part| part.kind == Kind::Slot && (part.at - first) % 64 == 0),
                ("second slots", &|part| part.kind == Kind::Slot && (part.at - first) % 64 == 32),
                ("leaves", &|part| part.kind == Kind::Leaf),
                ("leaves and nodes", &|part| matches!(part.kind, Kind::Leaf | Kind::Node)),
            ];
            for (what, keep) in some {
                edits.push(replay.and(&Edit::new(format!("{what} of {other}"), put(keep))));
            }
            let data = put(&|part| part.kind == Kind::Chunk);
            edits.push(replay.and(&Edit::new(format!("data of {other}"), data)));
        }
    }
    edits
}

/// Records of one state, leaves and nodes of another, data of a third, and the length of any of them.
fn mixes(chunks: &[u64], past: &Past) -> Vec<(Arc<FaultyFile>, Edit)> {
    let mut states = spread(&past.states, MIXED);
    states.extend(past.bases.iter().map(|(_, base)| base.clone()));
    let longest = past.states.iter().map(|state| state.len().unwrap()).max().unwrap();
    let tree: Vec<Part> = parts(chunks, longest)
        .into_iter()
        .filter(|part| matches!(part.kind, Kind::Leaf | Kind::Node))
        .collect();
    let records = Part::new("records", Kind::Record, 0, 1024);
    let mut mixed = Vec::new();
    for (a, first) in states.iter().enumerate() {
        for (b, second) in states.iter().enumerate() {
            for (c, third) in states.iter().enumerate() {
                let mut writes = vec![(0, records.of(first))];
                writes.extend(tree.iter().map(|part| (part.at, part.of(second))));
                let what = format!("records of {a}, leaves of {b}, data of {c}");
                let mut edit = Edit::new(what, writes);
                edit.len = Some([first, second, third][(a + b + c) % 3].len().unwrap());
                mixed.push((third.clone(), edit));
            }
        }
    }
    mixed
}

/// The chunks of a file, or a selection of them if it is large: `None` if reading one fails.
fn look(file: &Arc<File>, what: &str) -> Vec<Seen> {
    let chunks = layout::chunks(file.size());
    let wanted = |index: &u64| {
        chunks < 1000 || layout::place_in_group(*index) == 0 || SPARSE.contains(index) || index + 1 == chunks
    };
    let read = |index: u64| {
        let mut out = vec![0x77; 4096];
        let chunk = match file.read(index * 4096, &mut out) {
            Ok(len) => Some(out[..len].to_vec()),
            Err(Error::Damaged(_)) => None,
            Err(error) => panic!("{what}: chunk {index}: {error}"),
        };
        (index, chunk)
    };
    (0..chunks).filter(wanted).map(read).collect()
}

/// Checks that the content of a file is allowed.
fn judge(file: &Arc<File>, allowed: &Allowed, what: &str) -> Vec<Seen> {
    let size = file.size();
    let seen = look(file, what);
    let versions = match allowed {
        Allowed::Refused => panic!("{what}: opens"),
        Allowed::Empty => {
            assert_eq!(size, 0, "{what}: nothing was committed");
            return seen;
        }
        Allowed::One(version) => {
            assert_eq!(size, version.size(), "{what}: the size");
            vec![*version]
        }
        Allowed::Between(versions) => {
            let sizes = || versions.iter().map(|version| version.size());
            let (least, most) = (sizes().min().unwrap(), sizes().max().unwrap());
            assert!(least <= size && size <= most, "{what}: {size} bytes, not {least} to {most}");
            let end = size.is_multiple_of(4096) || sizes().any(|other| other == size);
            assert!(end, "{what}: ends at {size}, {:?}", sizes().collect::<Vec<_>>());
            versions.clone()
        }
    };
    for (index, chunk) in &seen {
        let Some(chunk) = chunk else { continue };
        assert_eq!(chunk.len(), layout::chunk_len(size, *index), "{what}: chunk {index} is short");
        let known = versions.iter().any(|version| version.content.chunk_is(*index, chunk));
        assert!(
            known,
            "{what}: chunk {index} reads as none of {} versions: {:?}",
            versions.len(),
            &chunk[..8]
        );
    }
    // Compare with a single read of the whole file.
    if !seen.is_empty() && size < 4 << 20 {
        let parts: Option<Vec<&[u8]>> = seen.iter().map(|(_, chunk)| chunk.as_deref()).collect();
        match (read_all(file), parts) {
            (Ok(all), Some(parts)) => assert!(all == parts.concat(), "{what}: read at once"),
            (Ok(_), None) => panic!("{what}: a damaged file reads at once"),
            (Err(error), Some(_)) => panic!("{what}: only at once {error}"),
            (Err(_), None) => {}
        }
    }
    seen
}

/// Reads an image in every way, and counts the results.
fn check(
    pasts: &[Past],
    contexts: &[Arc<Context>; 2],
    image: &Arc<FaultyFile>,
    what: &str,
    tally: &mut Tally,
) {
    tally.edits += 1;
    let allowed = allowed(pasts, &contexts[0], image);
    let [writer, reader] = contexts;
    let seen = match File::open(image.clone(), reader.clone()) {
        Ok(file) => judge(&file, &allowed, what),
        Err(Error::Damaged(_)) => {
            assert!(!matches!(allowed, Allowed::Empty), "{what}: an empty file fails");
            tally.refused += 1;
            return;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    match seen {
        _ if seen.is_empty() => tally.emptied += 1,
        _ if seen.iter().all(|(_, chunk)| chunk.is_some()) => tally.whole += 1,
        _ => tally.partly += 1,
    }
    if let Allowed::Between(_) = allowed {
        let file = open(image, writer);
        let recovered = judge(&file, &allowed, what);
        // If truncation removed a zero byte from the end, recovery restores the length, which makes the
        // chunk whole.
        let same = |(seen, recovered): (&(_, Option<Vec<u8>>), &(_, _))| {
            seen == recovered || seen.0 == recovered.0 && seen.1.is_none()
        };
        let same = seen.len() == recovered.len() && seen.iter().zip(&recovered).all(same);
        assert!(same, "{what}: recovers in another way than it reads");
        let again = open(image, writer);
        assert!(again.is_clean() && again.size() == file.size());
        assert!(recovered == look(&again, what), "{what}: reads in another way than it was recovered");
    }
}

/// The histories, each with the chunks whose structures are edited.
fn histories(context: &Arc<Context>, seed: u64) -> Vec<(&'static str, Vec<u64>, Past)> {
    let begin = || History::new(context, seed);
    let small = {
        let mut h = begin();
        h.write(0, 100).flush().keep("flushed").sync().keep("synced").clean().keep("resting");
        h.write(10, 50).flush().keep("overwritten").write(20, 5).sync().clean().keep("resting again");
        h.write(5000, 3000).flush().keep("grown").sync().clean().resize(6000).keep("cut").clean();
        h.resize(0).clean().write(0, 4097).flush().clean().keep("emptied and written");
        h.end()
    };
    let inline = {
        let mut h = begin();
        h.write(0, 50 * 4096 + 77).clean().keep("resting");
        h.chunks([2, 47, 48, 49]).flush().keep("flushed").sync().keep("synced");
        h.chunks([2, 48]).flush().chunks([3, 49]).flush().keep("twice").reopen().keep("recovered");
        h.write(51 * 4096, 100).flush().keep("grown").clean();
        h.end()
    };
    let sparse = {
        let mut h = begin();
        h.resize(40 << 20).chunks([0, 8175, 8176, 9000]).clean().keep("resting");
        h.chunks([0, 9000]).flush().keep("flushed").sync().clean().keep("resting again");
        h.chunks([5000]).flush().punch(9000..9001).flush().keep("filled and punched").clean();
        h.end()
    };
    let often = {
        let mut h = begin();
        h.chunks(0..6).clean().keep("resting");
        for round in 0..9u64 {
            h.chunks([round % 6, 3]).flush();
            match round {
                2 => h.keep("dirty"),
                4 => h.sync().keep("synced"),
                5 => h.clean().keep("in the middle"),
                7 => h.sync().chunks([1, 2]).flush().keep("over a commit"),
                _ => &mut h,
            };
        }
        h.reopen().keep("recovered");
        h.end()
    };
    let regrown = {
        let mut h = begin();
        h.write(0, 70 * 4096).clean().keep("resting");
        h.resize(20 * 4096 + 100).keep("cut").chunks([74]).flush().keep("regrown").sync().keep("synced");
        h.clean().resize(5 * 4096).write(5 * 4096, 3 * 4096).flush().keep("cut and written");
        h.sync().resize(66 * 4096).keep("with a hole").clean().keep("resting with it");
        h.end()
    };
    let punched = {
        let mut h = begin();
        h.write(0, 56 * 4096 + 5).clean().keep("resting");
        h.punch(3..6).punch(50..51).flush().keep("flushed").sync().keep("synced").clean().keep("punched");
        h.chunks([4]).flush().keep("filled").sync().punch(4..5).flush().keep("again").reopen();
        h.end()
    };
    let crashed = {
        let mut h = begin();
        h.write(0, 10 * 4096).clean().chunks([1, 2]).flush().chunks([3, 9, 10, 11]).crash(2);
        h.keep("recovered").chunks([1, 5]).flush().keep("dirty").chunks([5, 6]).crash(4);
        h.keep("recovered again").write(2 * 4096 + 5, 9).sync().keep("synced").reopen().keep("and again");
        h.end()
    };
    let appended = {
        let mut h = begin();
        h.write(0, 5000).flush().keep("new").write(5000, 3 * 4096).flush().keep("longer");
        h.write(5000 + 3 * 4096, 50 * 4096).flush().keep("longest").sync().keep("synced").write(4096, 10);
        h.flush().keep("overwritten").reopen();
        h.end()
    };
    vec![
        ("small", vec![0, 1], small),
        ("inline", vec![2, 47, 48, 49, 50], inline),
        ("sparse", vec![0, 48, 5000, 8175, 8176, 9000], sparse),
        ("often", vec![0, 1, 3], often),
        ("regrown", vec![0, 5, 20, 65, 74], regrown),
        ("punched", vec![3, 4, 50, 56], punched),
        ("crashed", vec![1, 3, 9, 10], crashed),
        ("appended", vec![0, 1, 4, 50], appended),
    ]
}

fn contexts() -> [Arc<Context>; 2] {
    [false, true].map(|read_only| context_with(Cipher::Aes256, Integrity::Kmac128, read_only))
}

/// Up to `most` of these edits, evenly spaced; all with `HOSTILE=all`.
fn some<T: Clone>(edits: Vec<T>, most: usize) -> Vec<T> {
    if std::env::var_os("HOSTILE").is_some_and(|all| all == "all") { edits } else { spread(&edits, most) }
}

#[test]
fn whoever_knows_the_format_gets_what_was_written_or_an_error() {
    let contexts = contexts();
    let all = histories(&contexts[0], 11).into_iter().zip(histories(&contexts[0], 12));
    let (mut total, mut wrong) = (Tally::default(), Vec::new());
    for ((name, chunks, past), (.., other)) in all {
        let pasts = [past, other];
        let mut tally = Tally::default();
        let mut try_on = |base: &FaultyFile, edit: &Edit, when: &str| {
            let image = FaultyFile::at(&base.snapshot());
            if edit.apply(&image) {
                let what = format!("{name}, {when}: {}", edit.what);
                let checked =
                    catch_unwind(AssertUnwindSafe(|| check(&pasts, &contexts, &image, &what, &mut tally)));
                wrong.extend(checked.err().map(|_| what));
            }
        };
        for (when, base) in &pasts[0].bases {
            let parts = parts(&chunks, base.len().unwrap());
            let edits = [
                single_edits(&parts, base, &pasts[0], &pasts[1]),
                lengths(&parts, base, &pasts[0]),
                replays(&parts, &pasts[0]),
            ];
            for edit in edits.into_iter().flat_map(|edits| some(edits, 120)) {
                try_on(base, &edit, when);
            }
        }
        for (base, edit) in some(mixes(&chunks, &pasts[0]), 300) {
            try_on(&base, &edit, "mixed");
        }
        println!("{name}: {tally:?}");
        total += tally;
    }
    println!("{total:?}");
    assert!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(total.edits >= 1000 && total.refused > 100 && total.partly > 100 && total.whole > 100);
}

/// A file is truncated, blanked or replaced while a program has it open, and then restored.
#[test]
fn an_open_file_withstands_edits_that_come_and_go() {
    let contexts = contexts();
    let (mut edits, mut failed) = (0, 0);
    for (name, chunks, past) in histories(&contexts[0], 13) {
        let noted = past.noted();
        let mut pasts = [past];
        for base in 0..pasts[0].bases.len() {
            let (when, base) = pasts[0].bases[base].clone();
            let parts = parts(&chunks, base.len().unwrap());
            let mut all = single_edits(&parts, &base, &pasts[0], &pasts[0]);
            all.extend(lengths(&parts, &base, &pasts[0]));
            for (number, edit) in some(all, 25).into_iter().enumerate() {
                let what = format!("{name}, {when}, open: {}", edit.what);
                let image = FaultyFile::at(&base.snapshot());
                let file = open(&image, &contexts[0]);
                let right = look(&file, &what);
                let mut content = Content::default();
                for (index, chunk) in &right {
                    chunk.iter().for_each(|chunk| content.write(index * 4096, chunk));
                }
                content.size = file.size();
                let before = FaultyFile::at(&image.snapshot());
                // A file that was read earlier has some of its state cached. A freshly opened one has
                // not.
                let file = if number % 2 == 0 { file } else { open(&image, &contexts[0]) };
                if !edit.apply(&image) {
                    continue;
                }
                edits += 1;
                let honest = |file: &Arc<File>, content: &Content, what: &str| {
                    assert_eq!(file.size(), content.size, "{what}: the size");
                    let seen = look(file, what);
                    for (index, chunk) in &seen {
                        let is = chunk.as_ref().is_none_or(|chunk| content.chunk_is(*index, chunk));
                        assert!(is, "{what}: chunk {index}");
                    }
                    seen.iter().all(|(_, chunk)| chunk.is_some())
                };
                failed += usize::from(!honest(&file, &content, &what));
                edit.undo(&image, &before);
                assert!(look(&file, &what) == right, "{what}: put back, it does not read as before");
                // Repeat, and now write something in between.
                edit.apply(&image);
                let at = chunks[number % chunks.len()].min(layout::chunks(content.size)) * 4096 + 7;
                let wrote = file.write(at, b"new words").and_then(|()| file.sync());
                let mut newer = content.clone();
                newer.write(at, b"new words");
                pasts[0].note(&file, &newer);
                if wrote.is_ok() {
                    honest(&file, &newer, &what);
                }
                drop(file);
                let mut tally = Tally::default();
                check(&pasts, &contexts, &image, &format!("{what}, {wrote:?}"), &mut tally);
                pasts[0].forget(noted);
            }
        }
    }
    println!("{edits} edits, {failed} of them were noticed");
    assert!(failed > 100 && failed < edits);
}

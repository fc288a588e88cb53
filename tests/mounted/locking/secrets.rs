//! Recomputes the secrets of a vault from its key file, and searches the memory of processes for them.

use crate::support::mounted::Vault;
use crypto::{
    aes_keys::AesRoundKeys,
    integrity::{Integrity, IntegrityKey},
    kdf::subkey,
    mac::{Mac, MacKey},
    secret::Secret,
};
use format::{
    keys::{self, contents_key},
    record::{RECORD, Record},
};
use rustix::process::Pid;
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use vault::{Unlock, Vault as Open};

/// Bytes read at once.
const PIECE: usize = 4 << 20;
/// Length of the longest needle in bytes.
const LONGEST: usize = 64;

/// Named byte strings that only a holder of the key can know.
pub struct Secrets(Vec<(String, Vec<u8>)>);

impl Secrets {
    /// The keys of a vault with AES-256, in every form in which its process holds them.
    pub fn of(vault: &Vault) -> Secrets {
        let content = fs::read(&vault.key).expect("key file");
        let mut all = Secrets(vec![("key file".into(), content.clone())]);
        let unlock = Unlock::KeyFile(content.into());
        let (_, _, master) = Open::unlock_config(&vault.store, &unlock).expect("the vault opens");
        all.add_key("master key", master.expose());
        let labels = [
            keys::CONTENTS,
            keys::CONFIG,
            keys::NAMES,
            keys::LONG_NAMES,
            keys::DIR_IDS,
            keys::LINKS,
            keys::XATTR_NAMES,
            keys::XATTR_VALUES,
            keys::CHANGE_TIMES,
        ];
        for label in labels {
            all.add_key(&format!("sub-key {label}"), subkey(&master, label).expose());
        }
        for (number, file) in files(&vault.store).iter().enumerate() {
            all.add_file(&format!("file {number}"), &contents_key(&master), file);
        }
        all
    }

    /// Adds other bytes that must not be found.
    pub fn add(&mut self, name: &str, bytes: &[u8]) {
        self.0.push((name.to_owned(), bytes[..bytes.len().min(LONGEST)].to_vec()));
        // Data that is moved, or stored register by register, may be left in parts, so search for every
        // word.
        for (number, word) in bytes.chunks_exact(8).enumerate().filter(|(_, word)| **word != [0; 8]) {
            self.0.push((format!("{name}, word {number}"), word.to_vec()));
        }
    }

    fn add_key(&mut self, name: &str, key: &[u8; 32]) {
        self.add(name, key);
        let rounds = AesRoundKeys::new(key);
        self.add(&format!("{name}, to encrypt"), rounds.encryption_keys()[3..6].as_flattened());
        for (number, round_key) in rounds.encryption_keys().iter().enumerate().skip(2) {
            self.add(&format!("{name}, round key {number}"), round_key);
        }
        self.add(&format!("{name}, to decrypt"), rounds.decryption_keys()[3..6].as_flattened());
    }

    /// Adds the keys of a stored file, or none if nothing was committed to it.
    fn add_file(&mut self, name: &str, contents: &Secret<32>, stored: &Path) {
        let mut sector = [0; RECORD];
        let read = File::open(stored).and_then(|file| file.read_exact_at(&mut sector, 0));
        let Some(id) = read.ok().and_then(|()| Record::peek_key(&sector).ok()) else { return };
        let mut keys = [[0; 32]; 3];
        let kdf = MacKey::new(Mac::Kmac256, contents.expose(), b"warpcrypt v2 file keys");
        kdf.mac(&[&id.salt], keys.as_flattened_mut());
        self.add_key(&format!("{name}: encryption key"), &keys[0]);
        self.add(&format!("{name}: chunk key"), &keys[1]);
        self.add(&format!("{name}: tree key"), &keys[2]);
        for (key, custom) in [
            (&keys[1], "warpcrypt v2 chunk"),
            (&keys[1], "warpcrypt v2 hole"),
            (&keys[2], "warpcrypt v2 leaf"),
            (&keys[2], "warpcrypt v2 node"),
            (&keys[2], "warpcrypt v2 record"),
        ] {
            let tags = IntegrityKey::new(Integrity::TurboShake128x4, key, custom.as_bytes());
            let lane = tags.lane().expect("it has lanes");
            for (sponge, of) in [(tags.whole(), ""), (lane, ", lanes")] {
                let state: Vec<u8> = sponge.state().iter().flat_map(|word| word.to_le_bytes()).collect();
                self.add(&format!("{name}: state of {custom}{of}"), &state);
            }
        }
    }

    /// Number of needles.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Searches a process and its children. Maps the name of each secret found to one location.
    pub fn found_in(&self, process: Pid) -> BTreeMap<String, String> {
        let mut by_start: HashMap<[u8; 4], Vec<usize>> = HashMap::new();
        for (number, (_, bytes)) in self.0.iter().enumerate() {
            by_start.entry(*bytes.first_chunk().expect("no short secret")).or_default().push(number);
        }
        let mut begins = vec![false; 1 << 16];
        by_start
            .keys()
            .for_each(|start| begins[usize::from(u16::from_le_bytes([start[0], start[1]]))] = true);
        let mut found = BTreeMap::new();
        for process in with_children(process) {
            each_piece(&process, |mapping, start, piece| {
                for at in 0..piece.len().saturating_sub(4) {
                    if !begins[usize::from(u16::from_le_bytes([piece[at], piece[at + 1]]))] {
                        continue;
                    }
                    let Some(numbers) = by_start.get(&piece[at..at + 4]) else { continue };
                    for (name, bytes) in numbers.iter().map(|number| &self.0[*number]) {
                        if piece[at..].starts_with(bytes) {
                            found
                                .entry(name.clone())
                                .or_insert_with(|| place(&process, mapping, start + at as u64));
                        }
                    }
                }
            });
        }
        found
    }
}

/// The stored files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("the store").flatten() {
        match entry.file_type().expect("type") {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// The /proc directories of a process and of its children.
fn with_children(process: Pid) -> Vec<PathBuf> {
    let own = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
    let tasks = fs::read_dir(own.join("task")).expect("a process").flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    [own].into_iter().chain(children.iter().map(|pid| Path::new("/proc").join(pid))).collect()
}

/// Describes an address by its mapping, and by the thread whose stack pointer is the next one above it.
fn place(process: &Path, mapping: &str, address: u64) -> String {
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let ends = tasks.filter_map(|task| {
        let read = |name| fs::read_to_string(task.path().join(name)).ok();
        // The last two numbers are the stack pointer and the instruction pointer.
        let call = read("syscall")?;
        let pointer = call.split_whitespace().rev().nth(1)?.strip_prefix("0x")?.to_owned();
        Some((u64::from_str_radix(&pointer, 16).ok()?, read("comm")?, call))
    });
    let next = ends.filter(|(pointer, ..)| *pointer >= address).min();
    let thread = next.map(|(pointer, name, call)| {
        format!("{} bytes below the stack of {} in call {}", pointer - address, name.trim(), call.trim())
    });
    format!("{address:x} in {mapping}, {}", thread.unwrap_or_default())
}

/// Passes all readable memory of a process to `look` in overlapping pieces: the mapping, the piece's
/// start address, and its bytes.
fn each_piece(process: &Path, mut look: impl FnMut(&str, u64, &[u8])) {
    let maps = fs::read_to_string(process.join("maps")).expect("its mappings");
    let memory = File::open(process.join("mem")).expect("its memory");
    let mut bytes = vec![0; PIECE + LONGEST];
    let mut seen = 0;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').expect("a range");
        // The kernel's own pages cannot be read this way.
        if !rest.starts_with('r') || rest.ends_with("[vvar]") || rest.ends_with("[vsyscall]") {
            continue;
        }
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).expect("an address"));
        for at in (start..end).step_by(PIECE) {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
            // Pages of truncated files, and of devices, cannot be read.
            if memory.read_exact_at(&mut bytes[..len], at).is_ok() {
                seen += len;
                look(line, at, &bytes[..len]);
            }
        }
    }
    assert!(seen > 1 << 20, "{}: only {seen} bytes of memory could be read", process.display());
}

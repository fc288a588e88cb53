//! Stored files that are truncated, blanked or replaced between a program's calls, and then put back: a
//! program sees the right bytes or an error, and never a shorter file without an error.

use crate::support::{
    CACHES,
    images::take,
    mounted::Vault,
    random::Random,
    raw::Mapping,
    ready, say,
    store::{by_inode, inode},
};
use format::layout;
use rustix::io::Errno;
use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const CHUNK: usize = 4096;
/// File size in bytes: two groups and a partial last chunk.
const SIZE: usize = 53 * CHUNK + 77;
/// The range that programs write.
const WRITTEN: Range<usize> = 49 * CHUNK + 5..49 * CHUNK + 105;

/// Number of edits that `edits` returns.
const EDITS: usize = 21;

/// The call that a program makes while the stored file is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Stat,
    Open,
    /// After the file was read and closed.
    OpenAgain,
    /// After the file was read and closed. The handle stays open after the stored file is put back.
    OpenAndKeep,
    /// On a file that was opened before.
    Read,
    /// On a file that was opened and read before.
    ReadAgain,
    MapRead,
    MapWrite,
    Write,
    /// Of data written before.
    Fsync,
}

impl Call {
    const ALL: [Call; 10] = [
        Call::Stat,
        Call::Open,
        Call::OpenAgain,
        Call::OpenAndKeep,
        Call::Read,
        Call::ReadAgain,
        Call::MapRead,
        Call::MapWrite,
        Call::Write,
        Call::Fsync,
    ];
}

/// A change to a stored file.
struct Edit {
    what: &'static str,
    /// The new bytes; `None` moves the file away.
    bytes: Option<Vec<u8>>,
    /// Whether a new file replaces the old one, instead of being written in place.
    replaces: bool,
}

fn edits(image: &[u8], old: &[u8], other: &[u8]) -> Vec<Edit> {
    let leaf = layout::entries_offset(1) as usize..layout::entries_offset(1) as usize + 4096;
    let with = |range: Range<usize>, from: &[u8]| {
        let mut bytes = image.to_vec();
        bytes[range.clone()].copy_from_slice(&from[range]);
        bytes
    };
    let blank = vec![0; image.len()];
    let in_place = [
        ("cut to nothing", Vec::new()),
        ("cut inside the records", image[..700].to_vec()),
        ("cut to the header", image[..4096].to_vec()),
        ("cut inside a chunk", image[..40_000].to_vec()),
        ("cut before the leaf", image[..leaf.start].to_vec()),
        ("cut by a byte", image[..image.len() - 1].to_vec()),
        ("grown", [image, &[0; 9000]].concat()),
        ("blanked", blank.clone()),
        ("records blanked", with(0..1024, &blank)),
        ("a record blanked", with(512..1024, &blank)),
        ("entries blanked", with(1024..4096, &blank)),
        ("leaf blanked", with(leaf.clone(), &blank)),
        ("data blanked", with(4096..leaf.start, &blank)),
        ("old leaf", with(leaf.clone(), old)),
        ("old data", with(leaf.end..image.len(), old)),
        ("records of another file", with(0..1024, other)),
        ("data of another file", with(4096..leaf.start, other)),
    ];
    let in_place = in_place.map(|(what, bytes)| Edit { what, bytes: Some(bytes), replaces: false });
    let replacing = [
        ("moved away", None),
        ("an empty one instead", Some(Vec::new())),
        ("a shorter one instead", Some(image[..leaf.start].to_vec())),
        ("one with old data instead", Some(with(leaf.end..image.len(), old))),
    ];
    let replacing = replacing.map(|(what, bytes)| Edit { what, bytes, replaces: true });
    in_place.into_iter().chain(replacing).collect()
}

impl Edit {
    fn apply(&self, stored: &Path, aside: &Path) {
        if self.replaces {
            fs::rename(stored, aside).expect("move away");
        }
        match &self.bytes {
            Some(bytes) if self.replaces => fs::write(stored, bytes).expect("another file"),
            Some(bytes) => put(stored, bytes),
            None => {}
        }
    }

    fn undo(&self, stored: &Path, aside: &Path, image: &[u8]) {
        if self.replaces {
            fs::rename(aside, stored).expect("move back");
        }
        put(stored, image);
    }

    /// Whether a program that opens the file now may find it empty, which is the documented limitation.
    fn empties(&self) -> bool {
        self.bytes.as_ref().is_some_and(|b| b.len() < 4096 || b[..1024].iter().all(|byte| *byte == 0))
    }
}

/// Overwrites a stored file in place.
fn put(stored: &Path, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(stored).expect("open the store");
    file.write_all_at(bytes, 0).expect("write the store");
    file.set_len(bytes.len() as u64).expect("cut the store");
}

/// Collects faults in the file as programs see it. All `versions` have the same size.
struct Judge<'a> {
    what: String,
    versions: Vec<&'a [u8]>,
    wrong: Vec<String>,
    right: usize,
    errors: usize,
}

impl Judge<'_> {
    fn say(&mut self, when: &str, what: impl std::fmt::Display) {
        self.wrong.push(format!("{}, {when}: {what}", self.what));
    }

    fn error(&mut self, when: &str, error: &io::Error) {
        self.errors += 1;
        let errno = Errno::from_io_error(error);
        if ![Some(Errno::IO), Some(Errno::NOENT), Some(Errno::STALE)].contains(&errno) {
            self.say(when, error);
        }
    }

    /// Reads to the end of a file, which may be empty if `empty`. Returns whether everything is right.
    fn read(&mut self, when: &str, file: &File, empty: bool) -> bool {
        let errors = self.errors;
        for index in 0..SIZE.div_ceil(CHUNK) {
            let mut out = vec![0; CHUNK];
            match file.read_at(&mut out, (index * CHUNK) as u64) {
                Ok(0) if index == 0 && empty => return false,
                Ok(0) if self.errors > errors => break,
                Ok(len) => {
                    let chunk =
                        |version: &&[u8]| version.chunks(CHUNK).nth(index).is_some_and(|c| *c == out[..len]);
                    if !self.versions.iter().any(chunk) {
                        let start = &out[..len.min(4)];
                        self.say(when, format_args!("chunk {index} has {len} bytes, {start:02x?}"));
                        return false;
                    }
                    self.right += 1;
                }
                Err(error) => self.error(when, &error),
            }
        }
        self.errors == errors
    }

    fn read_path(&mut self, when: &str, path: &Path, empty: bool) -> bool {
        match File::open(path) {
            Ok(file) => {
                let right = self.read(when, &file, empty);
                self.size(when, &file, empty || !right);
                right
            }
            Err(error) => {
                self.error(when, &error);
                false
            }
        }
    }

    /// Checks the size reported for an open file.
    fn size(&mut self, when: &str, file: &File, any: bool) {
        match file.metadata() {
            Ok(meta) if meta.len() == SIZE as u64 || any => {}
            Ok(meta) => self.say(when, format_args!("{} bytes", meta.len())),
            Err(error) => self.error(when, &error),
        }
    }
}

/// Tries every edit with every call in one mount, each pair on a file of its own. Returns the faults
/// found.
fn all_in(cache: &str) -> Vec<String> {
    let vault = Vault::in_memory("aes-256-ctr");
    let mut random = Random::from_seed(7);
    let old = random.bytes(SIZE);
    let mut content = old.clone();
    content[50 * CHUNK..51 * CHUNK].fill(0x5a);
    let mut written = content.clone();
    written[WRITTEN].fill(b'w');

    let names: Vec<String> = (0..EDITS * Call::ALL.len()).map(|number| format!("{number}")).collect();
    let mount = vault.mount();
    for name in &names {
        fs::write(mount.join(name), &old).expect("write");
    }
    fs::write(mount.join("other"), random.bytes(SIZE)).expect("write");
    let inodes: Vec<u64> = names.iter().map(|name| inode(&mount.join(name))).collect();
    mount.unmount();
    let [other] = take(&vault, ["other"]);
    let stored: Vec<PathBuf> = {
        let all = by_inode(&vault.store);
        inodes.iter().map(|number| all[number].clone()).collect()
    };
    let before: Vec<Vec<u8>> = stored.iter().map(|path| fs::read(path).expect("read the store")).collect();
    let mount = vault.mount();
    for name in &names {
        let file = OpenOptions::new().write(true).open(mount.join(name)).expect("open");
        file.write_all_at(&content[50 * CHUNK..51 * CHUNK], 50 * CHUNK as u64).expect("write");
    }
    mount.unmount();

    let mount = vault.mount_with(&["--cache", cache]);
    let aside = vault.store.with_extension("aside");
    let (mut wrong, mut right, mut errors) = (Vec::new(), 0, 0);
    let mut untouched = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let (path, stored) = (mount.join(name), &stored[number]);
        let call = Call::ALL[number % Call::ALL.len()];
        let image = fs::read(stored).expect("read the store");
        let mut edits = edits(&image, &before[number], &other);
        assert_eq!(edits.len(), EDITS);
        let edit = edits.swap_remove(number / Call::ALL.len());
        let mut judge = Judge {
            what: format!("--cache {cache}, {}, {call:?}", edit.what),
            versions: vec![&content, &written],
            wrong: Vec::new(),
            right: 0,
            errors: 0,
        };
        // Before the edit: open the file if the call needs it open.
        let writes = matches!(call, Call::MapWrite | Call::Write | Call::Fsync);
        let open = || OpenOptions::new().read(true).write(writes).open(&path).expect("open");
        let opens = matches!(call, Call::Open | Call::OpenAgain | Call::OpenAndKeep);
        let mut held = (call != Call::Stat && !opens).then(open);
        let mut mapping = None;
        match (call, &held) {
            (Call::OpenAgain | Call::OpenAndKeep, _) => assert!(judge.read_path("before", &path, false)),
            (Call::ReadAgain, Some(file)) => assert!(judge.read("before", file, false)),
            (Call::Fsync, Some(file)) => {
                file.write_all_at(&written[WRITTEN], WRITTEN.start as u64).expect("write")
            }
            (Call::MapRead | Call::MapWrite, Some(file)) => {
                mapping = Mapping::new(file, 49 * CHUNK as u64, 2 * CHUNK, writes).ok();
            }
            _ => {}
        }
        let image = if call == Call::Fsync { fs::read(stored).expect("read the store") } else { image };
        edit.apply(stored, &aside);
        // While the stored file is changed.
        match (call, &held) {
            (Call::Stat, _) => drop(fs::metadata(&path)),
            (Call::Open | Call::OpenAgain, _) => {
                judge.read_path("meanwhile", &path, edit.empties());
            }
            (Call::OpenAndKeep, _) => match File::open(&path) {
                Ok(file) => {
                    judge.read("meanwhile", &file, edit.empties());
                    held = Some(file);
                }
                Err(error) => judge.error("meanwhile", &error),
            },
            (Call::Read | Call::ReadAgain, Some(file)) => {
                judge.read("meanwhile", file, false);
                judge.size("meanwhile", file, false);
            }
            (Call::Write, Some(file)) => {
                let done = file.write_all_at(&written[WRITTEN], WRITTEN.start as u64);
                for error in [done, file.sync_all()].into_iter().filter_map(Result::err) {
                    judge.error("writing", &error);
                }
            }
            (Call::Fsync, Some(file)) => file.sync_all().unwrap_or_else(|error| judge.error("fsync", &error)),
            (_, Some(file)) => {
                if let Some(mapping) = &mapping {
                    match mapping.populate(writes) {
                        Ok(()) if writes => {
                            mapping.write(5, &written[WRITTEN]);
                            if let Err(error) = mapping.sync() {
                                judge.error("msync", &error);
                            }
                        }
                        Ok(()) => {
                            let mut out = vec![0; 2 * CHUNK];
                            mapping.read(0, &mut out);
                            if out != content[49 * CHUNK..51 * CHUNK] {
                                judge.say("mapped", "wrong bytes");
                            }
                        }
                        Err(_) => judge.errors += 1,
                    }
                }
                judge.size("meanwhile", file, false);
            }
            (_, None) => {}
        }
        // Put the stored file back.
        edit.undo(stored, &aside, &image);
        let empty = opens && edit.empties();
        if let Some(file) = &held {
            judge.read("put back", file, empty);
            judge.size("put back", file, empty);
        }
        if call != Call::OpenAndKeep {
            drop((mapping, held.take()));
        }
        // A file that was seen empty may appear empty for one more second, while the kernel caches its
        // size.
        judge.read_path("opened anew", &path, empty);
        if !writes {
            untouched.push((path.clone(), judge.what.clone()));
        }
        (right, errors) = (right + judge.right, errors + judge.errors);
        wrong.extend(judge.wrong);
        assert!(mount.alive(), "the mount died:\n{}", vault.log_text());
    }
    // umount would report data that could not be stored over the changed bytes.
    drop(mount);
    let mount = vault.mount();
    for (path, what) in untouched {
        if fs::read(&path).ok().as_ref() != Some(&content) {
            wrong.push(format!("{what}: put back, and damaged"));
        }
    }
    for name in &names {
        let mut judge = Judge {
            what: format!("--cache {cache}, file {name}"),
            versions: vec![&content, &written],
            wrong: Vec::new(),
            right: 0,
            errors: 0,
        };
        judge.read_path("in another mount", &mount.join(name), false);
        wrong.extend(judge.wrong);
    }
    say(format_args!("--cache {cache}: {} edits, {right} chunks read, {errors} errors", names.len()));
    wrong
}

#[test]
fn files_that_come_and_go_under_a_program_are_right_or_fail() {
    if !ready(&[]) {
        return;
    }
    let wrong: Vec<String> = CACHES.iter().flat_map(|cache| all_in(cache)).collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

//! Tampering with stored bytes: a read returns what was written or EIO, never anything else.

use crate::support::{
    ciphers,
    images::{Reading, read_all, take},
    mounted::Vault,
    random::Random,
    ready,
    store::walk,
};
use format::{
    entry::{ENTRY, Entry, SLOT},
    layout,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

const CHUNK: usize = 4096;

/// Does nothing with the file.
fn nothing(_: &Path) {}

/// A vault with one file "f" of this content, overwritten once in a second epoch.
fn vault_with(cipher: &str, content: &[u8]) -> Vault {
    let vault = Vault::in_memory(cipher);
    let mount = vault.mount();
    let file = fs::File::create(mount.join("f")).expect("create");
    file.write_all_at(&vec![0xaa; content.len()], 0).expect("write");
    file.sync_all().expect("fsync");
    file.write_all_at(content, 0).expect("write");
    drop(file);
    mount.unmount();
    vault
}

/// Byte range of the current slot of chunk `index` in the stored file.
fn slot(image: &[u8], index: u64) -> std::ops::Range<usize> {
    let at = layout::entries_offset(layout::group_of(index)) as usize + layout::place_in_group(index) * ENTRY;
    let bytes: &[u8; ENTRY] = image[at..at + ENTRY].try_into().expect("an entry");
    let (place, _) = Entry::decode(bytes).current(Some(u64::MAX), None).expect("a slot");
    at + place * SLOT..at + (place + 1) * SLOT
}

fn data(index: u64, len: usize) -> std::ops::Range<usize> {
    let at = layout::chunk_offset(index) as usize;
    at..at + len
}

/// Flips bits of the image at each offset and asserts that every read is honest, and that it fails where
/// `must_fail` says so.
fn flip_each(
    vault: &Vault,
    image: &[u8],
    content: &[u8],
    offsets: impl Iterator<Item = usize>,
    must_fail: &[std::ops::Range<usize>],
) {
    let mut random = Random::new("flips");
    let offsets: Vec<usize> = offsets.collect();
    let flip = |&at: &usize| {
        let mut changed = image.to_vec();
        changed[at] ^= 1 << random.below(8);
        changed
    };
    let images: Vec<Vec<u8>> = offsets.iter().map(flip).collect();
    let readings = read_all(vault, &images, content.len(), nothing, &[]);
    let mut failed = 0;
    for (at, reading) in offsets.iter().zip(&readings) {
        assert!(reading.is_honest(content), "byte {at} changed: {}", summary(reading, content));
        let harmless = reading.is(content);
        let must = must_fail.iter().any(|range| range.contains(at));
        assert!(!(must && harmless), "byte {at} changed: nobody noticed");
        failed += usize::from(!harmless);
    }
    crate::support::say(format_args!("{failed} of {} changed bytes make a read fail", offsets.len()));
}

/// Summary of which chunks are right, wrong or failed.
fn summary(reading: &Reading, content: &[u8]) -> String {
    let one = |(i, chunk): (usize, &Result<Vec<u8>, _>)| match chunk {
        Ok(bytes) if content.chunks(CHUNK).nth(i) == Some(bytes) => "right ".into(),
        Ok(bytes) => format!("wrong({} bytes) ", bytes.len()),
        Err(e) => format!("{e:?} "),
    };
    reading.chunks.iter().enumerate().map(one).collect::<Vec<String>>().concat()
}

#[test]
fn every_byte_of_a_small_file_counts() {
    if !ready(&[]) {
        return;
    }
    let content = Random::new("content").bytes(100);
    let vault = vault_with("aes-256-ctr", &content);
    let [image] = take(&vault, ["f"]);
    assert_eq!(image.len(), CHUNK + content.len());
    let must_fail = [slot(&image, 0), data(0, content.len())];
    flip_each(&vault, &image, &content, 0..image.len(), &must_fail);
}

#[test]
fn every_byte_counts_after_a_crash() {
    if !ready(&[]) {
        return;
    }
    let content = Random::new("content").bytes(3000);
    let vault = vault_with("aes-128-ctr", &[1; 3000]);
    let mount = vault.mount();
    let file = OpenOptions::new().write(true).open(mount.join("f")).expect("open");
    file.write_all_at(&content, 0).expect("write");
    file.sync_all().expect("fsync");
    mount.kill();
    // Only one stored file has this size.
    let stored =
        walk(&vault.store).into_iter().find(|p| fs::metadata(p).is_ok_and(|m| m.len() == 4096 + 3000));
    let image = fs::read(stored.expect("the stored file")).expect("read the store");
    let must_fail = [slot(&image, 0), data(0, content.len())];
    flip_each(&vault, &image, &content, (0..1600).chain((1600..image.len()).step_by(3)), &must_fail);
}

#[test]
fn bytes_of_larger_files_count_with_every_cipher() {
    if !ready(&[]) {
        return;
    }
    let mut random = Random::new("content");
    for cipher in ciphers() {
        let content = random.bytes(51 * CHUNK + 1000);
        let vault = vault_with(cipher, &content);
        let [image] = take(&vault, ["f"]);
        let last = data(51, 1000);
        assert_eq!(image.len(), last.end);
        let must_fail =
            [slot(&image, 0), slot(&image, 47), slot(&image, 48), slot(&image, 51), data(7, CHUNK), last];
        let mut offsets: Vec<usize> =
            must_fail.iter().flat_map(|r| r.clone().step_by(1 + r.len() / 40)).collect();
        offsets.extend((0..40).map(|_| random.below(image.len() as u64) as usize));
        flip_each(&vault, &image, &content, offsets.into_iter(), &must_fail);
    }
}

/// Two versions of a file that differ in chunks 2 and 50.
struct Versions {
    vault: Vault,
    content: Vec<u8>,
    old: Vec<u8>,
    new: Vec<u8>,
    other: Vec<u8>,
}

impl Versions {
    fn new() -> Versions {
        let mut random = Random::new("versions");
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount();
        let mut content = random.bytes(53 * CHUNK + 77);
        fs::write(mount.join("f"), &content).expect("write");
        fs::write(mount.join("other"), random.bytes(content.len())).expect("write");
        mount.unmount();
        let [old] = take(&vault, ["f"]);
        let mount = vault.mount();
        let file = OpenOptions::new().write(true).open(mount.join("f")).expect("open");
        for index in [2, 50] {
            let chunk = random.bytes(CHUNK);
            content[index * CHUNK..][..CHUNK].copy_from_slice(&chunk);
            file.write_all_at(&chunk, (index * CHUNK) as u64).expect("write");
        }
        drop(file);
        mount.unmount();
        let [new, other] = take(&vault, ["f", "other"]);
        Versions { vault, content, old, new, other }
    }

    /// Reads a tampered stored file. The reading must be honest and must fail at `failing`; with
    /// `exactly`, nowhere else.
    fn attack(&self, attacks: &[(&str, &[usize], bool, Vec<u8>)]) {
        let images: Vec<Vec<u8>> = attacks.iter().map(|a| a.3.clone()).collect();
        let readings = read_all(&self.vault, &images, self.content.len(), nothing, &[]);
        for ((name, failing, exactly, _), reading) in attacks.iter().zip(&readings) {
            let seen = summary(reading, &self.content);
            assert!(reading.is_honest(&self.content), "{name}: {seen}");
            assert!(failing.iter().all(|&i| reading.fails_at(i)), "{name} goes unnoticed: {seen}");
            let others = (0..54).filter(|i| !failing.contains(i));
            let all_right = others.into_iter().all(|i| reading.chunks.get(i).is_some_and(Result::is_ok));
            assert!(!exactly || all_right, "{name} reaches other chunks: {seen}");
        }
    }

    fn changed(&self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut image = self.new.clone();
        change(&mut image);
        image
    }
}

#[test]
fn named_attacks_are_noticed() {
    if !ready(&[]) {
        return;
    }
    let v = Versions::new();
    let [a, b, late] = [data(3, CHUNK), data(5, CHUNK), data(49, CHUNK)];
    let slots = [3, 5].map(|i| slot(&v.new, i));
    let swap = |image: &mut Vec<u8>, a: &std::ops::Range<usize>, b: &std::ops::Range<usize>| {
        let (first, second) = (image[a.clone()].to_vec(), image[b.clone()].to_vec());
        image[a.clone()].copy_from_slice(&second);
        image[b.clone()].copy_from_slice(&first);
    };
    let put = |image: &mut Vec<u8>, from: &[u8], range: &std::ops::Range<usize>| {
        image[range.clone()].copy_from_slice(&from[range.clone()]);
    };
    let entries = layout::GROUP0_ENTRIES as usize..4096;
    let leaf = layout::entries_offset(1) as usize..layout::entries_offset(1) as usize + 4096;
    let entry = |i: usize| 1024 + i * ENTRY..1024 + (i + 1) * ENTRY;
    v.attack(&[
        ("two chunks swapped", &[3, 5], true, v.changed(|i| swap(i, &a, &b))),
        ("two chunks of two groups swapped", &[3, 49], true, v.changed(|i| swap(i, &a, &late))),
        (
            "two chunks swapped with their slots",
            &[3, 5],
            false,
            v.changed(|i| {
                swap(i, &a, &b);
                swap(i, &slots[0], &slots[1]);
            }),
        ),
        ("a chunk of another file", &[3], true, v.changed(|i| put(i, &v.other, &a))),
        (
            "a chunk of another file with its entry",
            &[3],
            false,
            v.changed(|i| {
                put(i, &v.other, &a);
                put(i, &v.other, &entry(3));
            }),
        ),
        ("an old chunk", &[2], true, v.changed(|i| put(i, &v.old, &data(2, CHUNK)))),
        ("an old chunk of a later group", &[50], true, v.changed(|i| put(i, &v.old, &data(50, CHUNK)))),
        (
            "an old chunk with its entry",
            &[2],
            false,
            v.changed(|i| {
                put(i, &v.old, &data(2, CHUNK));
                put(i, &v.old, &entry(2));
            }),
        ),
        ("old entries in the header", &[2], false, v.changed(|i| put(i, &v.old, &entries))),
        (
            "old entries in the header and the old chunk",
            &[2],
            false,
            v.changed(|i| {
                put(i, &v.old, &entries);
                put(i, &v.old, &data(2, CHUNK));
            }),
        ),
        ("an old leaf page", &[50], false, v.changed(|i| put(i, &v.old, &leaf))),
        (
            "an old leaf page and the old chunk",
            &[50],
            false,
            v.changed(|i| {
                put(i, &v.old, &leaf);
                put(i, &v.old, &data(50, CHUNK));
            }),
        ),
        ("an old header page", &[2, 50], false, v.changed(|i| put(i, &v.old, &(0..4096)))),
        ("an old group", &[50], false, v.changed(|i| put(i, &v.old, &(leaf.start..v.old.len())))),
        ("the entries of another file", &[0, 3, 47], false, v.changed(|i| put(i, &v.other, &entries))),
    ]);
}

#[test]
fn forged_holes_are_noticed() {
    if !ready(&[]) {
        return;
    }
    let v = Versions::new();
    let leaf = layout::entries_offset(1) as usize..layout::entries_offset(1) as usize + 4096;
    let entry = |i: usize| 1024 + i * ENTRY..1024 + (i + 1) * ENTRY;
    let (slot0, slot52) = (slot(&v.new, 0), slot(&v.new, 52));
    v.attack(&[
        ("a chunk of zeros", &[3], true, v.changed(|i| i[data(3, CHUNK)].fill(0))),
        ("an entry of zeros", &[3], false, v.changed(|i| i[entry(3)].fill(0))),
        ("a slot of zeros", &[0], false, v.changed(|i| i[slot0].fill(0))),
        ("a slot of zeros in a leaf page", &[52], false, v.changed(|i| i[slot52].fill(0))),
        (
            "a nonce of zeros",
            &[3],
            false,
            v.changed(|i| {
                let slot = slot(&v.new, 3);
                i[slot.start..slot.start + 10].fill(0);
            }),
        ),
        (
            "entry and chunk of zeros",
            &[3],
            false,
            v.changed(|i| {
                i[entry(3)].fill(0);
                i[data(3, CHUNK)].fill(0);
            }),
        ),
        ("all entries of the header zeroed", &[0, 20, 47], false, v.changed(|i| i[1024..4096].fill(0))),
        ("a leaf page of zeros", &[48, 53], false, v.changed(|i| i[leaf.clone()].fill(0))),
        ("a group of zeros", &[48, 53], false, v.changed(|i| i[leaf.start..].fill(0))),
    ]);
}

#[test]
fn cut_and_grown_files_are_noticed() {
    if !ready(&[]) {
        return;
    }
    let v = Versions::new();
    let full = v.new.len();
    let leaf = layout::entries_offset(1) as usize;
    // Truncating the records is the documented limitation: the file reads as empty.
    let cuts = [4096, 4097, 8192, leaf - 1, leaf, leaf + 1, leaf + 4096, leaf + 8000, full - 1000, full - 1];
    let mut attacks: Vec<(String, Vec<u8>)> =
        cuts.iter().map(|&len| (format!("cut to {len}"), v.new[..len].to_vec())).collect();
    for more in [1, 76, CHUNK - 77, CHUNK, 11 * CHUNK, 80 * CHUNK] {
        attacks.push((format!("{more} zeros more"), v.changed(|i| i.resize(full + more, 0))));
        let tail = Random::from_seed(more as u64).bytes(more);
        attacks.push((format!("{more} bytes more"), v.changed(|i| i.extend(&tail))));
    }
    let images: Vec<Vec<u8>> = attacks.iter().map(|a| a.1.clone()).collect();
    for options in [&[][..], &["--read-only"]] {
        let readings = read_all(&v.vault, &images, v.content.len(), nothing, options);
        for ((name, image), reading) in attacks.iter().zip(&readings) {
            let seen = summary(reading, &v.content);
            assert!(reading.is_honest(&v.content), "{name}: {seen}");
            assert!(image.len() > full || !reading.is(&v.content), "{name} goes unnoticed: {seen}");
        }
    }
}

#[test]
fn a_sparse_file_keeps_its_holes() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let mut content = vec![0u8; 40 << 20];
    let file = fs::File::create(mount.join("f")).expect("create");
    file.set_len(content.len() as u64).expect("length");
    // Chunks on both sides of the second level-1 node page, and one that is alone in its group.
    for index in [0usize, 8175, 8176, 9000] {
        let chunk = Random::from_seed(index as u64).bytes(CHUNK);
        content[index * CHUNK..][..CHUNK].copy_from_slice(&chunk);
        file.write_all_at(&chunk, (index * CHUNK) as u64).expect("write");
    }
    drop(file);
    mount.unmount();
    let [image] = take(&vault, ["f"]);
    let entry = |i: u64| {
        let at = layout::entries_offset(layout::group_of(i)) as usize + layout::place_in_group(i) * ENTRY;
        at..at + ENTRY
    };
    let whole_leaf =
        |group: u64| layout::entries_offset(group) as usize..layout::entries_offset(group) as usize + 4096;
    let mut images = Vec::new();
    let mut change = |range: std::ops::Range<usize>, with: &[u8]| {
        let mut changed = image.clone();
        changed[range].copy_from_slice(with);
        images.push(changed);
    };
    // A hole filled, data turned into a hole, and a leaf moved to a group of holes.
    change(entry(5000), &image[entry(9000)]);
    change(entry(9000), &[0; ENTRY]);
    change(whole_leaf(layout::group_of(5000)), &image[whole_leaf(layout::group_of(9000))]);
    change(data(5000, CHUNK), &[7; CHUNK]);
    for (level, k) in [(1, 0), (1, 1), (2, 0)] {
        let at = layout::node_offset(level, k) as usize;
        change(at + 3..at + 4, &[image[at + 3] ^ 1]);
        change(at..at + 4096, &[0; 4096]);
    }
    for (i, reading) in read_all(&vault, &images, content.len(), nothing, &[]).iter().enumerate() {
        assert!(reading.is_honest(&content), "change {i}");
        assert!(i != 1 || reading.fails_at(9000), "a forged hole goes unnoticed");
        assert!(i != 3 || reading.is(&content), "bytes in the place of a hole do not matter");
    }
}

#[test]
fn garbage_never_stops_a_mount() {
    if !ready(&[]) {
        return;
    }
    let v = Versions::new();
    let mut random = Random::new("garbage");
    let mut images = Vec::new();
    // Before the file is opened, the kernel derives the size from the stored length.
    for sectors in [0..512, 512..1024, 0..1024] {
        for len in [5000, 100_000, v.new.len(), v.new.len() + 1, v.new.len() + 300_000, 1 << 20] {
            let mut image = v.new.clone();
            image[sectors.clone()].fill(0);
            image.resize(len, 0);
            images.extend([image.clone(), image]); // at an even and an odd index
        }
    }
    for round in 0..600 {
        let mut image = if round % 2 == 0 { v.new.clone() } else { v.old.clone() };
        let parts =
            [0..512, 512..1024, 1024..4096, 0..4096, 200_704..204_800, 0..image.len(), 4096..image.len()];
        let part = random.one_of(&parts).clone();
        match random.below(4) {
            0 => random.fill(&mut image[part]),
            1 => image[part].fill(if random.once_in(2) { 0xff } else { 0 }),
            2 => (0..8).for_each(|_| {
                let at = part.start + random.below(part.len() as u64) as usize;
                image[at] = random.next() as u8;
            }),
            _ => {
                let len = random.below(image.len() as u64) as usize;
                image.truncate(len);
            }
        }
        if random.once_in(5) {
            image.resize(random.below(1 << 20) as usize, 0);
        }
        images.push(image);
    }
    images.extend((0..100).map(|i| random.bytes(i * 61)));
    let readings = read_all(&v.vault, &images, v.content.len(), handle, &[]);
    let mut honest = 0;
    for (i, reading) in readings.iter().enumerate() {
        let empty = reading.chunks.is_empty();
        // Both versions are authentic: rolling back a whole file is the documented limitation.
        let old = i % 2 == 1;
        honest += usize::from(reading.is_honest(&v.content) || old || empty);
        assert!(reading.is_honest(&v.content) || old || empty, "image {i}: {}", summary(reading, &v.content));
    }
    assert_eq!(honest, readings.len());
}

/// Uses a damaged file as programs would; only a crash is a failure.
fn handle(path: &Path) {
    if let Ok(file) = OpenOptions::new().read(true).write(true).open(path) {
        let _ = file.write_all_at(b"words", 5000);
        let _ = file.set_len(100_000);
        let _ = file.sync_all();
        let _ = file.set_len(10);
    }
    let _ = OpenOptions::new().append(true).open(path).map(|f| f.write_at(b"more", 0));
    let _ = fs::metadata(path);
    let _ = rustix::fs::setxattr(path, "user.a", b"b", rustix::fs::XattrFlags::empty());
    let _ = fs::rename(path, path.with_extension("renamed"));
    let _ = fs::write(path.with_extension("renamed"), b"written anew");
}

//! Whole runs over temporary folders, and lists of any shape.

use super::{list::*, *};
use crypto::hash::{Digest, Function};
use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

fn function(name: &str) -> Function {
    Function::from_name(name).expect(name)
}

fn content(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 37 + i / 253 + seed * 101) as u8).collect()
}

fn records(root: &Path, functions: &[Function], threads: usize) -> (Vec<HashRecord>, u64) {
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let options = Options { threads, stop: &stop, progress: &progress, gpu: None };
    let mut records = Vec::new();
    run(&Plain::default(), &[root.to_owned()], functions, &options, |record| records.push(record));
    assert_eq!(progress.files.into_inner(), records.len() as u64);
    (records, progress.bytes.into_inner())
}

/// Files for every code path: short ones, lengths around the limits of a batch and of a part, and several
/// parts.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let limits = [128 << 10, 512 << 10, 1 << 20];
    let lengths = limits.into_iter().flat_map(|limit| [limit - 1, limit, limit + 1]);
    let lengths = [0, 1, 4096, 8191, 8192, 8193].into_iter().chain(lengths).chain([(5 << 20) + 77, 3 << 20]);
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for (number, len) in lengths.enumerate() {
        let folder = root.join(format!("{}/{}", number % 3, number % 2));
        fs::create_dir_all(&folder).unwrap();
        files.push((folder.join(format!("{number}")), content(len, number)));
    }
    for number in 0..300 {
        files.push((root.join(format!("many-{number}")), content(number * 13, number)));
    }
    files.iter().for_each(|(path, content)| fs::write(path, content).unwrap());
    files
}

#[test]
fn every_file_gets_its_digests_in_the_order_of_the_walk() {
    let place = tempfile::tempdir().unwrap();
    let files = tree(place.path());
    let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
    for names in [&["k12"][..], &["sha3-256"], &["md6-256"], &["shake128", "md6-224", "k12", "sha3-512"]] {
        let functions: Vec<Function> = names.iter().map(|name| function(name)).collect();
        let mut orders = Vec::new();
        for threads in [1, 2, 5] {
            let (records, counted) = records(place.path(), &functions, threads);
            assert_eq!(records.len(), files.len());
            assert_eq!(counted, bytes as u64, "{names:?}");
            for record in &records {
                let (_, content) =
                    files.iter().find(|(path, _)| *path == record.path).expect("a file of ours");
                let hashed = record.result.as_ref().expect("readable");
                assert_eq!(hashed.size, content.len() as u64);
                let want: Vec<Digest> = functions.iter().map(|f| f.digests(&[content])[0]).collect();
                assert_eq!(hashed.digests, want, "{names:?} of {}", record.path.display());
            }
            orders.push(records.into_iter().map(|record| record.path).collect::<Vec<_>>());
        }
        assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(orders[0].is_sorted_by(|a, b| a.components().lt(b.components())));
    }
    assert_eq!(
        count(&Plain::default(), &[place.path().to_owned()], &AtomicBool::new(false)),
        (files.len() as u64, bytes as u64)
    );
}

#[test]
fn what_cannot_be_read_is_said_in_its_place() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a"), "a").unwrap();
    std::os::unix::fs::symlink("a", place.path().join("link")).unwrap();
    let (found, _) = records(place.path(), &[function("k12")], 2);
    assert_eq!(found.len(), 1, "links are not followed");
    let (none, _) = records(&place.path().join("none"), &[function("k12")], 2);
    assert!(none[0].result.is_err());
    let (device, _) = records(Path::new("/dev/null"), &[function("k12")], 2);
    assert!(device[0].result.is_err());
    // The reported size is zero, so the file cannot be split into parts; a short one is simply read.
    let (odd, _) = records(Path::new("/proc/self/status"), &[function("k12")], 1);
    assert!(odd[0].result.as_ref().is_ok_and(|hashed| hashed.size > 0));
}

#[test]
fn a_run_that_is_stopped_ends() {
    let place = tempfile::tempdir().unwrap();
    let huge = fs::File::create(place.path().join("huge")).unwrap();
    huge.set_len(1 << 43).unwrap();
    for name in ["sha3-256", "md6-256", "k12"] {
        let (stop, progress) = (AtomicBool::new(false), Progress::default());
        let functions = [function(name)];
        let options = Options { threads: 2, stop: &stop, progress: &progress, gpu: None };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while progress.bytes.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
            run(&Plain::default(), &[place.path().to_owned()], &functions, &options, |record| {
                assert!(record.result.is_err())
            });
        });
    }
}

#[test]
fn lists_are_read_as_they_were_written() {
    let functions = [function("k12"), function("md6-7")];
    let names: [&[u8]; 7] =
        [b"plain", b"with,comma", b"new\nline", b"back\\slash", b"re\rturn", b"\xff\xfe", b" blank "];
    let files: Vec<(PathBuf, Hashed)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let digests = functions.iter().map(|f| f.digests(&[name])[0]).collect();
            (PathBuf::from(OsStr::from_bytes(name)), Hashed { size: i as u64, digests })
        })
        .collect();
    let (mut deep, mut sum) = (Vec::new(), Vec::new());
    write_header(&mut deep, &functions, Path::new("/a\nb")).unwrap();
    for (path, hashed) in &files {
        write_hashdeep(&mut deep, hashed.size, &hashed.digests, path).unwrap();
        write_sum(&mut sum, &hashed.digests[0], path).unwrap();
    }
    assert_eq!(functions_of(&deep), Some(functions.to_vec()));
    assert_eq!(functions_of(&sum), None);
    let known =
        |(path, _): &(PathBuf, Hashed), size, digests| KnownFile { path: path.clone(), size, digests };
    let all: Vec<KnownFile> = files
        .iter()
        .map(|file| known(file, Some(file.1.size), file.1.digests.iter().copied().map(Some).collect()))
        .collect();
    assert_eq!(parse(&deep, &functions), Ok(all));
    let second: Vec<KnownFile> =
        files.iter().map(|file| known(file, Some(file.1.size), vec![Some(file.1.digests[1])])).collect();
    assert_eq!(parse(&deep, &functions[1..]), Ok(second));
    let first: Vec<KnownFile> =
        files.iter().map(|file| known(file, None, vec![Some(file.1.digests[0])])).collect();
    assert_eq!(parse(&sum, &functions[..1]), Ok(first));
    assert_eq!(parse(&sum, &functions), Err(ListError::Ambiguous));
    assert_eq!(parse(&deep, &[function("sha3-256")]), Err(ListError::OtherFunctions("k12, md6-7".into())));
}

#[test]
fn broken_lists_are_refused_with_their_line() {
    let functions = [function("sha3-256")];
    let digest = "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a";
    let header = "%%%% HASHDEEP-1.0\n%%%% size,sha3-256,filename\n# note\n";
    for line in [
        "".to_owned() + "x",
        format!("1,{digest}"),
        format!("1,{digest},"),
        format!("-1,{digest},name"),
        format!("1,{},name", &digest[1..]),
        format!("1,{}g,name", &digest[1..]),
        format!("\\1,{digest},a\\x"),
        format!("\\1,{digest},a\\"),
        format!("99999999999999999999999,{digest},name"),
    ] {
        assert_eq!(
            parse(format!("{header}{line}\n").as_bytes(), &functions),
            Err(ListError::Line(4)),
            "{line}"
        );
    }
    for line in [
        digest.to_owned(),
        format!("{digest} name"),
        format!("{digest}  "),
        format!("{}  name", &digest[1..]),
        "é".repeat(40),
    ] {
        assert_eq!(parse(line.as_bytes(), &functions), Err(ListError::Line(1)), "{line}");
    }
    assert_eq!(parse(b"", &functions), Ok(Vec::new()));
    assert_eq!(parse(b"%%%% HASHDEEP-1.0\n", &functions), Ok(Vec::new()));
    assert!(parse(b"%%%% HASHDEEP-1.0\n%%%% size,\n", &functions).is_err());
}

/// Pseudo-random bytes.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

fn found(root: &Path, cut: pieces::Cut) -> pieces::Matches {
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let options = Options { threads: 2, stop: &stop, progress: &progress, gpu: None };
    pieces::find(&Plain::default(), &[root.to_owned(), root.join("a")], cut, &options)
}

/// Equal parts of long files are found at any offset. With identical cuts, the count is exact to the byte.
#[test]
fn parts_in_common_are_found_and_no_others() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, parts: &[&[u8]]| fs::write(place.path().join(name), parts.concat()).unwrap();
    let common = noise(3 << 20, 1);
    write("a", &[&noise(70_001, 2), &common]);
    write("b", &[&common, &noise(3, 3), &[0; 100_000]]);
    write("c", &[&noise(2 << 20, 4), &[0; 100_000]]);
    write("d", &[&noise(70_001, 2), &common]);
    write("zeros", &[&[0; 50_000]]);
    write("ones", &[&[1; 50_000]]);
    write("empty", &[]);
    write("nothing", &[]);
    let shown = |matches: &pieces::Matches, number: usize| {
        matches.files[number].path.file_name().unwrap().to_str().unwrap().to_owned()
    };
    for size in [512, 4096, 65536] {
        let matches = found(place.path(), pieces::Cut::Content(size));
        assert_eq!(matches.files.len(), 8);
        let [overlap] = matches.overlaps[..] else { panic!("{:?}", matches.overlaps) };
        assert_eq!((shown(&matches, overlap.a), shown(&matches, overlap.b)), ("a".into(), "b".into()));
        assert!(overlap.bytes <= 3 << 20 && overlap.bytes + 12 * size as u64 >= 3 << 20, "{}", overlap.bytes);
        let [group] = &matches.identical[..] else { panic!("{:?}", matches.identical) };
        assert_eq!(group.iter().map(|n| shown(&matches, *n)).collect::<Vec<_>>(), ["a", "d"]);
    }
    write("a", &[&noise(512 * 77, 5), &common]);
    write("d", &[]);
    let fixed = found(place.path(), pieces::Cut::Fixed(512));
    assert_eq!(fixed.overlaps.iter().map(|o| o.bytes).collect::<Vec<_>>(), [3 << 20]);
    assert!(fixed.identical.is_empty() && fixed.common == 0 && fixed.failed.is_empty());
}

/// A piece counts as often as it occurs in both files. One that very many files contain does not count.
#[test]
fn pieces_count_as_often_as_both_have_them() {
    let place = tempfile::tempdir().unwrap();
    let (piece, other) = (noise(512, 1), noise(512, 2));
    fs::write(place.path().join("a"), [&piece[..], &piece, &piece, &other].concat()).unwrap();
    fs::write(place.path().join("b"), [&piece[..], &noise(512, 3), &piece].concat()).unwrap();
    let matches = found(place.path(), pieces::Cut::Fixed(512));
    assert_eq!(matches.overlaps, [pieces::Overlap { a: 0, b: 1, bytes: 1024 }]);
    for number in 0..300 {
        let content = [&other[..], &noise(100, 10 + number)].concat();
        fs::write(place.path().join(format!("n{number}")), content).unwrap();
    }
    let matches = found(place.path(), pieces::Cut::Fixed(512));
    assert_eq!((matches.overlaps.len(), matches.common), (1, 1));
}

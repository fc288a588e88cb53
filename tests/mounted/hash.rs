//! `hash` through the real program: lists, audits compared with hashdeep's, vaults, exit codes.

use crate::support::{
    command::{Done, Running, ok, run, script, sh},
    disk::Disk,
    mounted::{Vault, program_path},
    random::Random,
    ready, ready_as_root, skip,
    store::edit,
    waiting::wait_for_handlers,
    which,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// Runs `warpcrypt hash` with these arguments in `dir`.
fn hash(dir: &Path, args: &[&str]) -> Done {
    run(Vault::program().arg("hash").args(args).current_dir(dir), 120)
}

fn place() -> TempDir {
    TempDir::with_prefix("warpcrypt-test-").expect("temporary directory")
}

fn write(root: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
    fs::write(path, content).expect("write");
}

#[test]
fn a_list_that_cannot_be_added_to_stays_as_it_was() {
    let place = place();
    let dir = place.path();
    for n in 0..100 {
        write(dir, &format!("t/{n}"), [n]);
    }
    let before = "%%%% HASHDEEP-1.0\n%%%% size,sha3-256,filename\n";
    write(dir, "list", before);
    // Limit file size to two blocks of 512 or 1024 bytes.
    let line = format!("ulimit -f 2; {:?} hash -l -k list --append t >/dev/null", program_path());
    let done = run(&mut script(dir, &line), 60);
    assert!(done.code() == 1 && done.stderr.contains("list: File too large"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(dir.join("list")).expect("the list"), before);
}

#[test]
fn lines_are_those_of_hashdeep_and_of_the_sum_programs() {
    let place = place();
    write(place.path(), "t/a", "abc");
    write(place.path(), "t/b/c", "");
    let listed = hash(place.path(), &["-l", "t"]);
    assert_eq!((listed.code(), &listed.stderr[..]), (0, ""));
    let text = listed.text();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("%%%% HASHDEEP-1.0"));
    assert_eq!(lines.next(), Some("%%%% size,sha3-256,filename"));
    let rest: Vec<&str> = lines.filter(|line| !line.starts_with("##")).collect();
    let (abc, empty) = (
        "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
        "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
    );
    assert_eq!(rest, [format!("3,{abc},t/a"), format!("0,{empty},t/b/c")]);
    let sums = hash(place.path(), &["--sum", "-b", "t"]);
    assert_eq!(sums.text(), format!("{abc}  a\n{empty}  c\n"));
    let absolute = hash(place.path(), &["--sum", "t/a"]).text();
    assert_eq!(absolute, format!("{abc}  {}\n", place.path().join("t/a").display()));
    assert_eq!(hash(place.path(), &["--sum", "-c", "k12,sha3-256", "t"]).code(), 2);
    assert_eq!(hash(place.path(), &["-c", "md5", "t"]).code(), 2);
}

/// The output of `openssl dgst -r` is accepted as a list, and the digests are equal.
#[test]
fn openssl_agrees() {
    if which("openssl").is_none() && !skip("needs openssl".into()) {
        return;
    }
    let place = place();
    for (name, len) in [("small", 1000), ("middle", 200_000), ("large", 3_000_000)] {
        write(place.path(), name, (0..len).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<_>>());
    }
    for function in ["sha3-224", "sha3-256", "sha3-384", "sha3-512"] {
        sh(place.path(), &format!("openssl dgst -r -{function} small middle large > list"), &[], 60);
        let args = ["-l", "-c", function, "-a", "-v", "-k", "list", "small", "middle", "large"];
        let audit = hash(place.path(), &args);
        assert_eq!(audit.code(), 0, "{function}: {}{}", audit.text(), audit.stderr);
        assert!(audit.text().contains("Files matched: 3"), "{}", audit.text());
    }
}

/// Large files on tmpfs hash like any others, and a hole in one stays a hole.
#[test]
fn long_files_in_memory_are_hashed_as_others_and_stay_as_they_are() {
    // Root is needed to mount a tmpfs.
    if !ready_as_root(&[]) {
        return;
    }
    let disk = Disk::new("100m");
    let place = &disk.0;
    let noise = Random::from_seed(9).bytes(40 << 20);
    write(place.path(), "whole", [&noise[..], &[0; 1 << 20]].concat());
    write(place.path(), "hole", &noise);
    let hole = fs::File::options().write(true).open(place.path().join("hole")).expect("open");
    hole.set_len(41 << 20).expect("a hole");
    let blocks = |name| fs::metadata(place.path().join(name)).expect("metadata").blocks();
    let before = (blocks("whole"), blocks("hole"));
    assert!(before.1 < before.0, "{before:?}");
    for function in ["sha3-256", "k12", "md6-256,shake128"] {
        let done = hash(place.path(), &["-b", "-c", function, "hole", "whole"]);
        assert_eq!(done.code(), 0, "{}", done.stderr);
        let text = done.text();
        let of = |name| text.lines().find_map(|line| line.strip_suffix(name)).expect("a line").to_owned();
        assert_eq!(of(",hole"), of(",whole"), "{function}");
    }
    assert_eq!((blocks("whole"), blocks("hole")), before);
}

/// The counts in an audit's summary.
fn numbers(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (label, number) = line.rsplit_once(": ")?;
        Some((label.trim().to_owned(), number.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Random changes to a folder, judged by both programs: matched, moved, new, missing.
#[test]
fn audits_end_as_hashdeeps() {
    if which("hashdeep").is_none() && !skip("needs hashdeep".into()) {
        return;
    }
    let mut random = Random::new("audits_end_as_hashdeeps");
    for _ in 0..40 {
        let place = place();
        let name = |random: &mut Random| format!("t/{}/{}", random.below(3), random.below(9));
        write(place.path(), "t/0/always", "x");
        for _ in 0..random.below(20) {
            write(place.path(), &name(&mut random), format!("content {}", random.below(12)));
        }
        // Among several known files with the same content, the first one in the list counts as moved.
        let list = "hashdeep -l -r -c sha256 t > all; (grep '^[%#]' all; grep -v '^[%#]' all | sort -t, -k3) > theirs";
        sh(place.path(), list, &[], 60);
        let listed = hash(place.path(), &["-l", "-c", "k12", "t"]);
        fs::write(place.path().join("ours"), &listed.stdout).expect("write");
        for _ in 0..random.below(8) {
            let (one, other) = (name(&mut random), name(&mut random));
            match random.below(4) {
                0 => write(place.path(), &one, format!("content {}", random.below(20))),
                1 => drop(fs::remove_file(place.path().join(&one))),
                2 if one != other => drop(fs::rename(place.path().join(&one), place.path().join(&other))),
                _ => drop(fs::copy(place.path().join(&one), place.path().join(&other))),
            }
        }
        let mut theirs = Command::new("hashdeep");
        theirs.args(["-l", "-r", "-c", "sha256", "-a", "-v", "-k", "theirs", "t"]).current_dir(place.path());
        let theirs = run(&mut theirs, 60);
        let ours = hash(place.path(), &["-l", "-a", "-v", "-k", "ours", "t"]);
        assert_eq!(numbers(&ours.text()), numbers(&theirs.text()));
        assert!(numbers(&ours.text()).len() == 5, "{}", ours.text());
        assert_eq!(ours.code(), if theirs.code() == 0 { 0 } else { 40 });
    }
}

#[test]
fn known_files_are_told_from_new_ones_and_added() {
    let place = place();
    let dir = place.path();
    for (name, content) in [("t/a", "a"), ("t/b", "b"), ("t/c", "c"), ("t/new\nline", "n")] {
        write(dir, name, content);
    }
    assert_eq!(hash(dir, &["-l", "-k", "list", "--append", "t"]).code(), 0);
    assert_eq!(hash(dir, &["-l", "-a", "-k", "list", "t"]).code(), 0);
    fs::rename(dir.join("t/b"), dir.join("t/moved")).expect("rename");
    fs::remove_file(dir.join("t/c")).expect("remove");
    write(dir, "t/d", "d");
    let audit = hash(dir, &["-l", "-a", "-vvv", "-k", "list", "t"]);
    assert_eq!(audit.code(), 40);
    assert!(
        audit.stderr.starts_with("warpcrypt: the audit failed: 1 moved, 1 new, 1 missing"),
        "{}",
        audit.stderr
    );
    for line in ["t/a: Ok", "t/moved: Moved from t/b", "t/d: No match", "t/c: Known file not used"] {
        assert!(audit.text().lines().any(|l| l == line), "{line}: {}", audit.text());
    }
    let lines = |args: &[&str]| hash(dir, args).text().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&["-l", "-m", "-k", "list", "t/a", "t/d", "t/moved"]), ["t/a", "t/moved"]);
    assert_eq!(lines(&["-l", "-mw", "-k", "list", "t/moved"]), ["t/moved matches t/b"]);
    assert_eq!(lines(&["-l", "-x", "-k", "list", "t"]), ["t/d"]);
    assert_eq!(lines(&["-l", "-X", "-k", "list", "t"]).last().map(|l| l.ends_with(",t/d")), Some(true));
    assert_eq!(
        lines(&["-l", "-M", "-k", "list", "t/moved"]).last().map(|l| l.ends_with(",t/moved")),
        Some(true)
    );
    assert_eq!(hash(dir, &["-l", "-k", "list", "--append", "t"]).code(), 0);
    assert_eq!(numbers(&hash(dir, &["-l", "-a", "-v", "-k", "list", "t"]).text())["New files found"], 0);
    assert_eq!(
        hash(dir, &["-c", "k12", "-k", "list", "--append", "t"]).code(),
        2,
        "other functions than the list's"
    );
    assert_eq!(hash(dir, &["-a", "t"]).code(), 2, "an audit needs a list");
    fs::write(dir.join("list"), "nonsense\n").expect("write");
    assert_eq!(hash(dir, &["-a", "-k", "list", "t"]).code(), 2);
}

#[test]
fn json_says_everything() {
    let place = place();
    write(place.path(), "t/a", "same");
    write(place.path(), "t/b", "same");
    fs::write(place.path().join("t").join(OsStr::from_bytes(b"\xff")), "x").expect("write");
    let parse = |args: &[&str]| -> serde_json::Value {
        let done = hash(place.path(), args);
        serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.text()))
    };
    let listed = parse(&["-l", "--json", "-c", "k12,md6-128", "t", "none"]);
    assert_eq!(listed["functions"], serde_json::json!(["k12", "md6-128"]));
    let files = listed["files"].as_array().expect("files");
    assert_eq!(files.len(), 4);
    assert_eq!(files[0]["path"], "t/a");
    assert_eq!(files[0]["size"], 4);
    assert_eq!(files[0]["digests"]["md6-128"].as_str().map(str::len), Some(32));
    assert_eq!(files[2]["path_bytes"], "742fff");
    assert!(files[3]["error"].is_string());
    let duplicates = parse(&["-l", "--json", "-d", "t"]);
    assert_eq!(duplicates["duplicates"][0]["files"][1]["path"], "t/b");
    assert_eq!(hash(place.path(), &["-l", "-d", "t"]).text(), "t/a\nt/b\n");
    assert_eq!(hash(place.path(), &["-l", "-k", "list", "--append", "t"]).code(), 0);
    write(place.path(), "t/a", "other");
    let audit = parse(&["-l", "--json", "-a", "-k", "list", "t"]);
    assert_eq!(audit["files"][0]["verdict"], "new");
    assert_eq!(audit["missing"][0]["path"], "t/a");
    assert_eq!(audit["audit"]["passed"], false);
    assert_eq!(audit["audit"]["matched"], 2);
}

#[test]
fn what_cannot_be_read_has_a_code_of_its_own() {
    let place = place();
    write(place.path(), "a", "a");
    let done = hash(place.path(), &["-l", "a", "none"]);
    assert_eq!(done.code(), 41);
    assert!(done.text().ends_with(",a\n") && done.stderr.contains("none"), "{}", done.stderr);
    let silent = hash(place.path(), &["-s", "none"]);
    assert!(silent.code() == 41 && !silent.stderr.contains("none"), "{}", silent.stderr);
    assert_eq!(hash(place.path(), &[]).code(), 2);
}

#[test]
fn an_interrupt_ends_it_with_its_code() {
    let place = place();
    let huge = fs::File::create(place.path().join("huge")).expect("create");
    huge.set_len(1 << 40).expect("a sparse file");
    let mut command = Vault::program();
    let running = Running::start(command.args(["hash", "-c", "k12", "huge"]).current_dir(place.path()));
    // Hashing this file takes minutes.
    wait_for_handlers(running.pid());
    let pid = rustix::process::Pid::from_raw(running.pid() as i32).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("kill");
    assert_eq!(running.finish(Duration::from_secs(60)).code(), 130);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let place = place();
    for number in 0..5000 {
        write(place.path(), &format!("t/{number}"), "");
    }
    let program = program_path().display().to_string();
    let said =
        sh(place.path(), &format!("{{ {program} hash t; echo code $? >&2; }} 2>&1 | head -n 1"), &[], 60);
    assert_eq!(said, "%%%% HASHDEEP-1.0\n");
}

/// Hashing inside a vault without a mount gives the same digests as hashing the source files.
#[test]
fn files_in_a_vault_need_no_mount() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("kuznyechik-ctr");
    let place = place();
    let long = "l".repeat(200);
    for (name, len) in [("a", 0), ("b/c", 5000), ("b/d", 700_000), ("e", 2_500_000), (&long, 12)] {
        write(
            place.path(),
            &format!("t/{name}"),
            (0..len).map(|i| (i * 3 + i / 256) as u8).collect::<Vec<_>>(),
        );
    }
    let mount = vault.mount();
    ok(Command::new("cp").arg("-r").arg(place.path().join("t")).arg(mount.path()), 60);
    mount.unmount();
    let (store, key) = (vault.store.to_str().expect("UTF-8"), vault.key.to_str().expect("UTF-8"));
    let plain = hash(place.path(), &["-l", "-c", "md6-256,sha3-256,k12", "t"]);
    let unlock = ["--vault", store, "--key-file", key];
    let stored = hash(place.path(), &[&unlock[..], &["-l", "-c", "md6-256,sha3-256,k12", "t"]].concat());
    assert_eq!(stored.code(), 0, "{}", stored.stderr);
    assert_eq!(stored.text(), plain.text());
    let all = hash(place.path(), &[&unlock[..], &["--sum"]].concat());
    assert!(all.text().contains("  /t/b/c\n") && all.text().lines().count() == 5, "{}", all.text());
    assert_eq!(hash(place.path(), &[&unlock[..], &["none"]].concat()).code(), 41);
    fs::write(place.path().join("wrong"), [7; 64]).expect("write");
    let wrong = place.path().join("wrong");
    let wrong = ["--vault", store, "--key-file", wrong.to_str().expect("UTF-8")];
    assert_eq!(hash(place.path(), &wrong).code(), 10);
    // A changed byte causes an error, not a different digest.
    let stored = sh(&vault.store, "find . -type f -size +2000k", &[], 60);
    let path = vault.store.join(stored.trim());
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("write");
    let damaged = hash(place.path(), &[&unlock[..], &["-l", "t"]].concat());
    assert_eq!(damaged.code(), 41);
    assert!(damaged.stderr.contains("t/e: "), "{}", damaged.stderr);
}

/// A file that is not listed because its name is damaged is reported as missing from the hashes.
#[test]
fn a_damaged_name_in_a_vault_is_noticed() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    // One name is too long for an encrypted stored name, so it is in a sidecar file.
    for name in ["a", &"long".repeat(60)] {
        fs::write(mount.join(name), name).expect("write");
    }
    mount.unmount();
    let [store, key] = [&vault.store, &vault.key].map(|path| path.to_str().expect("UTF-8"));
    let unlock = ["--vault", store, "--key-file", key];
    let whole = hash(vault.place_path(), &[&unlock[..], &["--sum"]].concat());
    assert!(whole.code() == 0 && whole.text().lines().count() == 2, "{whole:?}");
    let names = sh(&vault.store, "ls -d warpcrypt.long.*.name", &[], 60);
    edit(&vault.store.join(names.trim()), |bytes| bytes[20] ^= 1);
    let damaged = hash(vault.place_path(), &[&unlock[..], &["--sum"]].concat());
    assert_eq!((damaged.code(), damaged.text().lines().count()), (41, 1), "{damaged:?}");
    assert!(damaged.stderr.contains("left out of the listing"), "{damaged:?}");
    let damaged = matching(vault.place_path(), &unlock);
    assert!(damaged.code() == 41 && damaged.stderr.contains("left out of the listing"), "{damaged:?}");
}

fn matching(dir: &Path, args: &[&str]) -> Done {
    run(Vault::program().arg("match").args(args).current_dir(dir), 120)
}

/// At least 95 % of overlaps of 64 KiB and more are found, at any offset, and nothing else is.
#[test]
fn planted_overlaps_are_found_and_no_others() {
    const FILES: u64 = 400;
    let mut random = Random::new("planted_overlaps_are_found_and_no_others");
    let place = place();
    let mut files: Vec<Vec<u8>> =
        (0..FILES).map(|_| vec![0; 70_000 + random.below(100_000) as usize]).collect();
    files.iter_mut().for_each(|file| random.fill(file));
    let mut planted = Vec::new();
    for pair in 0..FILES / 4 {
        let (from, to) = (4 * pair as usize, 4 * pair as usize + 1 + random.below(3) as usize);
        let len = (64 << 10) + random.below(files[from].len() as u64 - (64 << 10)) as usize;
        let start = random.below((files[from].len() - len + 1) as u64) as usize;
        let piece = files[from][start..start + len].to_vec();
        let at = random.below(files[to].len() as u64) as usize;
        files[to].splice(at..at, piece);
        planted.push((format!("t/{from:03}"), format!("t/{to:03}")));
    }
    for (number, file) in files.iter().enumerate() {
        write(place.path(), &format!("t/{number:03}"), file);
    }
    let done = matching(place.path(), &["-l", "t"]);
    assert_eq!((done.code(), &done.stderr[..]), (0, ""));
    let pairs: Vec<(String, String)> = done
        .text()
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert!(fields.len() == 5 && fields[0].parse::<u64>().is_ok_and(|bytes| bytes > 0), "{line}");
            (fields[3].to_owned(), fields[4].to_owned())
        })
        .collect();
    let wrong: Vec<_> = pairs.iter().filter(|pair| !planted.contains(pair)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(pairs.len() * 100 >= planted.len() * 95, "{} of {}", pairs.len(), planted.len());
}

#[test]
fn matches_speak_json_and_have_codes() {
    let place = place();
    let noise = Random::from_seed(5).bytes(100_000);
    write(place.path(), "t/a", &noise);
    write(place.path(), "t/b", &noise);
    write(place.path(), "t/c", [&noise[..50_000], b"end"].concat());
    let done = matching(place.path(), &["-l", "--json", "t", "none"]);
    assert_eq!(done.code(), 41);
    let json: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    assert_eq!(json["files"], 3);
    assert_eq!(json["identical"][0][1]["path"], "t/b");
    assert_eq!(json["overlaps"][0]["b"]["path"], "t/c");
    let share = json["overlaps"][0]["share_of_a"].as_f64().expect("a number");
    assert!((0.3..0.5).contains(&share), "{share}");
    assert_eq!(json["failed"][0]["path"], "none");
    let fixed = matching(place.path(), &["-b", "--pieces", "fixed", "--size", "512", "t"]).text();
    assert_eq!(fixed, "identical:\n  a\n  b\n49664\t49.7\t99.3\ta\tc\n");
    assert_eq!(
        matching(
            place.path(),
            &["-b", "--pieces", "fixed", "--size", "512", "--least", "50000", "t/a", "t/c"]
        )
        .text(),
        ""
    );
    assert_eq!(matching(place.path(), &["--size", "1000", "t"]).code(), 2);
    assert_eq!(matching(place.path(), &[]).code(), 2);
}

//! `check`: damage of every kind is reported, and nothing else.

use crate::{
    cli::{fails, text},
    support::{
        command::{Running, run},
        mounted::Vault,
        ready,
    },
};
use format::layout::{CHUNK, chunk_offset, entries_offset, node_offset, stored_size};
use rustix::{
    fs::XattrFlags,
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

pub fn check(vault: &Vault, more: &[&str]) -> Command {
    let mut command = Vault::program();
    command.arg("check").arg(&vault.store).arg("--key-file").arg(&vault.key).args(more);
    command
}

/// Kind, path, and first and last byte of a finding.
pub type Found = (String, String, Option<u64>, Option<u64>);

/// Exit code and findings of a check.
pub fn findings(vault: &Vault, full: bool) -> (i32, Vec<Found>) {
    let done = run(&mut check(vault, if full { &["--json", "--full"] } else { &["--json"] }), 60);
    let value: Value = serde_json::from_str(&done.text()).expect("JSON");
    let name = |finding: &Value, key: &str| finding[key].as_str().expect("text").to_owned();
    let of =
        |f: &Value| (name(f, "kind"), name(f, "path"), f["first_byte"].as_u64(), f["last_byte"].as_u64());
    (done.code(), value["findings"].as_array().expect("a list").iter().map(of).collect())
}

/// The stored file of the only plain file with this size.
pub fn stored(vault: &Vault, size: u64) -> PathBuf {
    fn find(dir: &Path, len: u64) -> Option<PathBuf> {
        fs::read_dir(dir).expect("list").find_map(|entry| {
            let path = entry.expect("entry").path();
            let known = fs::symlink_metadata(&path).expect("stat");
            if known.is_dir() { find(&path, len) } else { (known.len() == len).then_some(path) }
        })
    }
    find(&vault.store, stored_size(size)).expect("a stored file of that size")
}

pub fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at).expect("write");
}

/// A vault with a folder that contains one file of each size, and a symlink.
pub fn filled(sizes: &[u64]) -> Vault {
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::create_dir(mount.join("folder")).expect("mkdir");
    for size in sizes {
        let content: Vec<u8> = (0..*size).map(|i| (i / 7) as u8).collect();
        fs::write(mount.join("folder").join(format!("of {size}")), content).expect("write");
    }
    symlink("somewhere", mount.join("link")).expect("symlink");
    mount.unmount();
    vault
}

#[test]
fn a_whole_vault_has_no_findings_and_one_in_use_is_refused() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[0, 1, 5000, 900_000]);
    for full in [false, true] {
        assert_eq!(findings(&vault, full), (0, vec![]));
    }
    let done = run(&mut check(&vault, &["--full"]), 60);
    assert!(done.text().contains("2 directories and 5 files"), "{}", done.text());
    let mount = vault.mount_with(&["--read-only"]);
    assert_eq!(findings(&vault, true), (0, vec![]));
    mount.unmount();
    let mount = vault.mount();
    fails(&mut check(&vault, &[]), 15, "mounted for writing");
    mount.unmount();
}

#[test]
fn every_kind_of_damage_is_named() {
    if !ready(&[]) {
        return;
    }
    let (chunks, entries, cut, header, blank) = (30 * CHUNK, 150 * CHUNK + 1, 9001, 9002, 9003);
    let whole = 700_000;
    let vault = filled(&[chunks, entries, cut, header, blank, whole]);
    flip(&stored(&vault, chunks), chunk_offset(3) + 5);
    flip(&stored(&vault, chunks), chunk_offset(4));
    flip(&stored(&vault, chunks), chunk_offset(29) + 4095);
    flip(&stored(&vault, entries), entries_offset(1) + 70);
    let file = fs::OpenOptions::new().write(true).open(stored(&vault, cut)).expect("open");
    file.set_len(stored_size(cut) - 10).expect("cut");
    let file = stored(&vault, header);
    flip(&file, 100);
    flip(&file, 612);
    let file = fs::OpenOptions::new().write(true).open(stored(&vault, blank)).expect("open");
    file.write_all_at(&[0; 1024], 0).expect("blank");
    fs::write(vault.store.join(".DS_Store"), "x").expect("write");
    fs::write(vault.store.join("warpcrypt.tmp.left"), "x").expect("write");

    let of = |size: u64| format!("folder/of {size}");
    let damaged = |size: u64, range: Option<(u64, u64)>| {
        ("damaged".to_owned(), of(size), range.map(|r| r.0), range.map(|r| r.1))
    };
    let (code, mut quick) = findings(&vault, false);
    assert_eq!(code, 41);
    let strays = quick.iter().filter(|finding| finding.0 != "damaged").map(|f| f.0.clone());
    assert_eq!(strays.collect::<Vec<_>>(), ["stray", "left over"]);
    quick.retain(|finding| finding.0 == "damaged");
    let group = Some((48 * CHUNK, 112 * CHUNK - 1));
    let others = [cut, header, blank].map(|size| damaged(size, None));
    assert_eq!(quick, [&[damaged(entries, group)], &others[..]].concat());

    let (code, mut full) = findings(&vault, true);
    assert_eq!(code, 41);
    full.retain(|finding| finding.1 == of(chunks));
    let ranges = [(3 * CHUNK, 5 * CHUNK - 1), (29 * CHUNK, 30 * CHUNK - 1)];
    assert_eq!(full, ranges.map(|range| damaged(chunks, Some(range))));
    let done = run(&mut check(&vault, &["--full"]), 60);
    assert!(!done.text().contains(&of(whole)), "{}", done.text());
}

#[test]
fn a_damaged_node_page_is_one_finding() {
    if !ready(&[]) {
        return;
    }
    let size = 300 * CHUNK;
    let vault = filled(&[size]);
    flip(&stored(&vault, size), node_offset(1, 0) + 40);
    let whole = ("damaged".to_owned(), format!("folder/of {size}"), Some(0), Some(size - 1));
    assert_eq!(findings(&vault, false), (41, vec![whole]));
}

#[test]
fn damaged_names_directories_and_links_are_named() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000]);
    let path = stored(&vault, 3000);
    let name = path.file_name().expect("a name").to_str().expect("text").to_owned();
    let last = if name.ends_with('A') { "Q" } else { "A" };
    fs::rename(&path, path.with_file_name(name[..name.len() - 1].to_owned() + last)).expect("rename");
    let (code, found) = findings(&vault, false);
    assert_eq!((code, found), (41, vec![("damaged".to_owned(), "folder".to_owned(), None, None)]));

    let links = fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").path());
    let link = links.into_iter().find(|path| path.is_symlink()).expect("a link");
    fs::remove_file(&link).expect("remove");
    symlink("elsewhere", &link).expect("symlink");
    fs::remove_file(path.with_file_name("warpcrypt.dir")).expect("remove");
    let (code, found) = findings(&vault, false);
    let paths: Vec<&str> = found.iter().map(|finding| finding.1.as_str()).collect();
    assert_eq!((code, paths), (41, vec!["folder", "link"]));
    let shown = text(&vault.store);
    assert!(run(&mut check(&vault, &[]), 60).text().contains(shown), "where it is stored");
}

#[test]
fn an_interrupted_check_goes_on_where_it_was() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[30 * CHUNK, 5_000_000]);
    let mount = vault.mount();
    for dir in 0..20 {
        fs::create_dir(mount.join(format!("{dir}"))).expect("mkdir");
        for file in 0..20 {
            fs::write(mount.join(format!("{dir}/{file}")), vec![file; 100_000 + dir as usize])
                .expect("write");
        }
    }
    mount.unmount();
    flip(&stored(&vault, 30 * CHUNK), chunk_offset(3));
    fs::write(vault.store.join(".DS_Store"), "x").expect("write");
    let state = vault.place_path().join("state");
    let whole = run(&mut check(&vault, &["--full", "--json"]), 60);
    let (mut interrupted, mut pause) = (0, 1);
    let done = loop {
        let resume = ["--full", "--json", "--resume", text(&state)];
        let running = Running::start(&mut check(&vault, &resume));
        sleep(Duration::from_millis(pause));
        let pid = Pid::from_raw(running.pid() as i32).expect("a process");
        let _ = kill_process(pid, Signal::INT); // It may have exited.
        let done = running.finish(Duration::from_secs(60));
        interrupted += u32::from(done.code() == 130 && state.exists());
        // Wait a little longer each time, until the check completes. A signal that arrives too early
        // kills it or has no effect.
        if ![130, -1].contains(&done.code()) && interrupted > 0 {
            break done;
        }
        pause = if pause > 500 { 1 } else { pause * 5 / 4 + 1 };
    };
    assert_eq!(done.code(), 41, "{}", done.stderr);
    assert_eq!(done.text(), whole.text(), "after {interrupted} interruptions");
    assert!(!state.exists(), "nothing is left to resume");
    // The state file of another vault is refused.
    fs::write(&state, "{}").expect("write");
    fails(&mut check(&vault, &["--full", "--resume", text(&state)]), 2, "not from an interrupted check");
}

#[test]
fn a_repair_gives_back_what_only_lost_its_frame() {
    if !ready(&[]) {
        return;
    }
    let size = 150 * CHUNK + 1;
    let vault = filled(&[size]);
    flip(&stored(&vault, size), 100);
    let before = fs::metadata(stored(&vault, size)).expect("stat").modified().expect("mtime");
    assert_eq!(findings(&vault, true).0, 41);
    let done = run(&mut check(&vault, &["--full", "--repair"]), 60);
    assert_eq!(done.code(), 0, "{}{}", done.text(), done.stderr);
    assert!(done.text().contains("repaired") && done.text().contains("1 repaired"), "{}", done.text());
    assert_eq!(fs::metadata(stored(&vault, size)).expect("stat").modified().expect("mtime"), before);
    assert_eq!(findings(&vault, true), (0, vec![]));
    // A stray file is moved only on request, so that its directory can then be removed.
    fs::write(vault.store.join("desktop.ini"), "x").expect("write");
    run(&mut check(&vault, &["--repair"]), 60);
    assert!(vault.store.join("desktop.ini").exists());
    run(&mut check(&vault, &["--move-strays"]), 60);
    assert!(!vault.store.join("desktop.ini").exists());
    let mount = vault.mount();
    fails(&mut check(&vault, &["--repair"]), 15, "mounted for writing");
    mount.unmount();
}

/// Names as produced by Syncthing, `rclone bisync` and cloud clients.
#[test]
fn a_conflict_copy_is_told_with_its_original() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000]);
    let file = stored(&vault, 3000);
    for behind in [".sync-conflict-20261124-134500-ABCDEFG", "..path1", " (conflicted copy 2026-11-24)"] {
        let mut copy = file.clone().into_os_string();
        copy.push(behind);
        fs::copy(&file, &copy).expect("copy");
        let done = run(&mut check(&vault, &[]), 60);
        let text = done.text();
        assert!(text.contains("folder/of 3000") && text.contains("changed in two places"), "{text}");
        // Some programs rename both versions, so that no file has the original name.
        fs::rename(&file, &copy).expect("rename");
        let text = run(&mut check(&vault, &[]), 60).text().to_owned();
        assert!(text.contains("folder/of 3000") && text.contains("changed in two places"), "{text}");
        fs::rename(copy, &file).expect("rename");
    }
    fs::write(vault.store.join("desktop.ini"), "x").expect("write");
    let text = run(&mut check(&vault, &[]), 60).text().to_owned();
    assert!(text.contains("not a file of this vault") && !text.contains("two places"), "{text}");
}

/// The known styles of conflict copy names.
#[test]
fn a_conflict_copy_in_any_style_is_told_with_its_original() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000, 5000]);
    let long = "l".repeat(200);
    let mount = vault.mount();
    fs::rename(mount.join("folder/of 5000"), mount.join("folder").join(&long)).expect("rename");
    mount.unmount();
    let files = [3000, 5000].map(|size| stored(&vault, size));
    let styles = [
        "NAME-laptop",
        "NAME_NAS_Oct-11-2026_Conflict",
        "Copy of NAME",
        "NAME-nas1-safeBackup-0001",
        "NAME.sync-conflict-20261127-120000-ABCDEFG",
        "NAME (conflicted copy 2026-11-27)",
        "NAME (laptop's conflicted copy 2026-11-27)",
        "NAME~HOST",
        "._NAME",
        "NAME (1)",
        "NAME.orig",
        "NAME..path2",
    ];
    for (file, plain) in files.iter().zip(["of 3000", &long]) {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        let copies = styles.map(|style| file.with_file_name(style.replace("NAME", name)));
        for copy in &copies {
            fs::copy(file, copy).expect("copy");
        }
        let done = run(&mut check(&vault, &["--json"]), 60);
        let report: Value = serde_json::from_str(&done.text()).expect("JSON");
        let findings = report["findings"].as_array().expect("a list");
        for copy in &copies {
            let found = findings.iter().find(|finding| finding["stored"].as_str() == copy.to_str());
            let found = found.unwrap_or_else(|| panic!("{copy:?} is not found: {report}"));
            assert_eq!(found["kind"], "stray", "{found}");
            assert_eq!(found["path"], format!("folder/{plain}"), "{found}");
        }
        copies.iter().for_each(|copy| fs::remove_file(copy).expect("remove"));
    }
}

/// Syncthing treats everything after the last dot of a stored name as its extension.
#[test]
fn a_conflict_copy_of_a_long_name_is_told_with_its_original() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000]);
    let long = "l".repeat(200);
    let mount = vault.mount();
    fs::rename(mount.join("folder/of 3000"), mount.join("folder").join(&long)).expect("rename");
    mount.unmount();
    let file = stored(&vault, 3000);
    let hash = file.extension().and_then(|hash| hash.to_str()).expect("a hash");
    for name in [
        format!("warpcrypt.long.sync-conflict-20261124-134500-ABCDEFG.{hash}"),
        format!("warpcrypt.long.{hash}..path1"),
        format!("warpcrypt.long.{hash}.sync-conflict-20261124-134500-ABCDEFG.name"),
    ] {
        let copy = file.with_file_name(&name);
        fs::copy(&file, &copy).expect("copy");
        let text = run(&mut check(&vault, &[]), 60).text().to_owned();
        assert!(text.contains(&format!("folder/{long}")) && text.contains("changed in two places"), "{text}");
        run(&mut check(&vault, &["--move-strays"]), 60);
        assert!(!copy.exists() && file.exists());
    }
    let text = run(&mut check(&vault, &["--full"]), 60).text().to_owned();
    assert!(!text.contains("stray"), "{text}");
}

#[test]
fn strays_that_say_where_they_come_from_are_told_so() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000]);
    let copied = |own: &str| format!("another program's copy of {own}, such as those");
    let removed = "removed while a program had it open; an NFS client keeps it".to_owned();
    let folder = stored(&vault, 3000).parent().expect("a folder").to_owned();
    for (dir, path, name, says) in [
        (&vault.store, "/", "warpcrypt.sync-conflict-20260101-120000-ABCDEFG.json", copied("warpcrypt.json")),
        (&vault.store, "/", "warpcrypt.json.conflict1", copied("warpcrypt.json")),
        (&vault.store, "/", "warpcrypt.json.copy..path1", copied("warpcrypt.json.copy")),
        (&folder, "folder", "warpcrypt (conflicted copy).dir", copied("warpcrypt.dir")),
        (&folder, "folder", "warpcrypt.other", "not a file of this vault".to_owned()),
        (&folder, "folder", ".nfs00000000012345670000000a", removed),
    ] {
        fs::write(dir.join(name), "x").expect("write");
        let shown = run(&mut check(&vault, &[]), 60).text();
        assert!(shown.contains(&says) && shown.contains(name), "{name}: {shown}");
        let done = run(&mut check(&vault, &["--json"]), 60);
        let report: Value = serde_json::from_str(&done.text()).expect("JSON");
        let findings = report["findings"].as_array().expect("a list");
        // A file that was moved away earlier is a leftover.
        let found = findings.iter().find(|found| found["kind"] == "stray").expect("a stray");
        assert!(
            found["reason"].as_str().is_some_and(|reason| reason.starts_with(&says)),
            "{name}: {report:#}"
        );
        assert_eq!((done.code(), &found["path"]), (0, &path.into()));
        run(&mut check(&vault, &["--move-strays"]), 60);
        assert!(!dir.join(name).exists());
    }
    assert_eq!(findings(&vault, true).1.iter().filter(|found| found.0 != "left over").count(), 0);
}

#[test]
fn a_root_without_its_id_gets_one() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[3000]);
    let id = vault.store.join("warpcrypt.dir");
    let names = |vault: &Vault| {
        let mount = vault.mount_with(&["--read-only"]);
        let listed = fs::read_dir(mount.path()).expect("list").map(|entry| entry.expect("entry").file_name());
        let mut names: Vec<_> = listed.map(|name| name.into_string().expect("text")).collect();
        mount.unmount();
        names.retain(|name| !name.starts_with("warpcrypt-repair"));
        names.sort();
        names
    };
    // The id itself is intact, so every name is kept.
    flip(&id, 20);
    fails(&mut check(&vault, &[]), 1, "check --repair");
    let done = run(&mut check(&vault, &["--full", "--repair"]), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(names(&vault), ["folder", "link"]);
    // The id is lost, so the names are lost, and nothing else.
    fs::remove_file(&id).expect("remove");
    let done = run(&mut check(&vault, &["--full", "--repair"]), 60);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    assert_eq!(fs::metadata(&id).expect("stat").permissions().mode() & 0o777, 0o644);
    // The folder, the symlink, and the report of the first repair.
    assert_eq!(names(&vault), ["recovered-1", "recovered-2", "recovered-3"]);
    assert_eq!(findings(&vault, true).0, 0);
}

#[test]
fn a_long_target_without_a_link_is_named_and_moved_away() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    symlink("t".repeat(4000), mount.join("link")).expect("symlink");
    mount.unmount();
    assert_eq!(findings(&vault, true), (0, vec![]));
    let targets = vault.store.join("warpcrypt.links");
    fs::write(targets.join("left"), "by a crash").expect("write");
    let found = [("left over".to_owned(), "/".to_owned(), None, None)];
    assert_eq!(findings(&vault, false), (0, found.to_vec()));
    assert_eq!(run(&mut check(&vault, &["--repair"]), 60).code(), 0, "nothing was lost");
    assert!(!targets.join("left").exists());
    assert_eq!(findings(&vault, false).1.iter().filter(|found| found.0 == "damaged").count(), 0);
    let whole = fs::read_dir(&targets).expect("list").next().expect("the link's").expect("entry").path();
    fs::remove_file(whole).expect("remove");
    let (code, found) = findings(&vault, false);
    assert!(
        code == 41 && found.contains(&("damaged".to_owned(), "link".to_owned(), None, None)),
        "{found:?}"
    );
}

#[test]
fn lists_of_attributes_are_checked() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let long = |path: &Path| rustix::fs::setxattr(path, "user.long", &[7; 65_536], XattrFlags::empty());
    fs::write(mount.join("file"), "content").expect("write");
    rustix::fs::setxattr(mount.join("file"), "user.short", b"value", XattrFlags::empty()).expect("set");
    long(&mount.join("file")).expect("set");
    fs::create_dir(mount.join("directory")).expect("mkdir");
    mount.unmount();
    assert_eq!(findings(&vault, true), (0, vec![]));
    let lists = vault.store.join("warpcrypt.xattrs");
    let of_file = fs::read_dir(&lists).expect("list").next().expect("the file's").expect("entry").path();
    let mount = vault.mount();
    long(&mount.join("directory")).expect("set");
    mount.unmount();
    assert_eq!(findings(&vault, true), (0, vec![]));

    fs::write(lists.join("left"), "by a crash").expect("write");
    let left = ("left over".to_owned(), "/".to_owned(), None, None);
    assert_eq!(findings(&vault, false), (0, vec![left]));
    assert_eq!(run(&mut check(&vault, &["--repair"]), 60).code(), 0, "nothing was lost");
    assert!(!lists.join("left").exists());

    flip(&of_file, 100);
    let damaged = ("damaged".to_owned(), "file".to_owned(), None, None);
    let (code, found) = findings(&vault, false);
    assert!(code == 41 && found.contains(&damaged), "{found:?}");
    assert_eq!(run(&mut check(&vault, &["--repair"]), 60).code(), 41, "it is set aside");
    assert_eq!(findings(&vault, false).1.iter().filter(|found| found.0 == "damaged").count(), 0);
    let mount = vault.mount();
    let get = |path: &str, name: &str| rustix::fs::getxattr(mount.join(path), name, &mut vec![0; 65_536]);
    assert_eq!(get("file", "user.long"), Err(Errno::NODATA));
    assert_eq!((get("file", "user.short"), get("directory", "user.long")), (Ok(5), Ok(65_536)));
    mount.unmount();
}

#[test]
fn nothing_is_set_aside_of_a_file_of_zeros() {
    if !ready(&[]) {
        return;
    }
    let vault = filled(&[5000]);
    let file = fs::OpenOptions::new().write(true).open(stored(&vault, 5000)).expect("open");
    file.write_all_at(&vec![0; stored_size(5000) as usize], 0).expect("zeros");
    let done = run(&mut check(&vault, &["--repair", "--json"]), 60);
    assert_eq!(done.code(), 0, "{}{}", done.text(), done.stderr);
    let report: Value = serde_json::from_str(&done.text()).expect("JSON");
    let (kind, aside) = (&report["findings"][0]["kind"], &report["findings"][0]["aside"]);
    assert_eq!((kind, aside), (&"repaired".into(), &Value::Null), "{report:#}");
    let in_store = fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").file_name());
    assert!(!in_store.into_iter().any(|name| name.to_string_lossy().contains("aside")));
    assert_eq!(findings(&vault, true), (0, vec![]));
}

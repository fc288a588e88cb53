//! The output of commands with `--json` matches `docs/json.md`.

use crate::{
    cli::{text, warpcrypt},
    support::{
        command::{Done, run},
        mounted::Vault,
        ready, source,
    },
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, UNIX_EPOCH},
};

/// Documentation of one member.
struct Member {
    types: String,
    may_be_missing: bool,
}

/// The members of a document, by path.
type Members = BTreeMap<String, Member>;

/// The sections of the page, by heading.
fn page() -> BTreeMap<String, Members> {
    let page = fs::read_to_string(source("docs/json.md")).expect("the page");
    let mut sections = BTreeMap::<String, Members>::new();
    let mut headings: Vec<String> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            headings = heading.split(", ").map(str::to_owned).collect();
        } else if line.starts_with("| `") {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            for path in cells[1].split(", ").map(|path| path.trim_matches('`')) {
                for heading in &headings {
                    let member = Member { types: cells[2].to_owned(), may_be_missing: path.ends_with('?') };
                    let section = sections.entry(heading.clone()).or_default();
                    let before = section.insert(path.trim_end_matches('?').to_owned(), member);
                    assert!(before.is_none(), "{heading}: {path} twice");
                }
            }
        }
    }
    sections
}

/// The members of this command's document.
fn members(command: &str) -> Members {
    let mut page = page();
    let mut members = page.remove("Every command").expect("a section for all");
    members.extend(page.remove(command).unwrap_or_else(|| panic!("no section for {command}")));
    members
}

/// Lists the differences between a document and the page.
fn complaints(members: &Members, path: &str, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(member) = members.get(path)
        && !member.types.split(" or ").any(|name| is_a(name, value))
    {
        found.push(format!("{path} is {value}, not {}", member.types));
    }
    match value {
        Value::Array(elements) => {
            let each = format!("{path}[]");
            elements.iter().for_each(|element| found.extend(complaints(members, &each, element)));
        }
        Value::Object(object) => {
            for (name, value) in object {
                let (named, any) = (below(path, name), format!("{path}{{}}"));
                match [named, any].into_iter().find(|path| members.contains_key(path)) {
                    Some(path) => found.extend(complaints(members, &path, value)),
                    None => found.push(format!("{} is not on the page", below(path, name))),
                }
            }
            let required = members.iter().filter(|(_, member)| !member.may_be_missing);
            let missing = required.filter(|(at, _)| {
                let (above, name) = at.rsplit_once('.').unwrap_or(("", at));
                above == path && !name.ends_with(['}', ']']) && !object.contains_key(name)
            });
            found.extend(missing.map(|(at, _)| format!("{at} is missing")));
        }
        _ => {}
    }
    found
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "text" => value.is_string(),
        "boolean" => value.is_boolean(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => panic!("{name} is no type"),
    }
}

/// Parses the document that a command printed, which must match the page.
#[track_caller]
fn document(command: &str, done: &Done) -> Value {
    parsed(command, &done.text())
}

#[track_caller]
fn parsed(command: &str, text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{command}: {e}: {text}"));
    assert_eq!(complaints(&members(command), "", &value), [""; 0], "{command}: {value:#}");
    assert_eq!((&value["version"], &value["command"]), (&json!(1), &json!(command)));
    value
}

/// A file name that is not UTF-8.
fn odd() -> OsString {
    OsString::from_vec(b"odd \xff".to_vec())
}

/// Runs a command on a vault with `--json`.
fn on(vault: &Vault, command: &str, more: &[&OsStr]) -> Done {
    let mut program = Vault::program();
    program.arg(command).arg(&vault.store).args(more).arg("--json").arg("--key-file").arg(&vault.key);
    run(&mut program, 60)
}

/// A directory with a symlink, identical files, and odd names. Each file has a different time.
fn filled(place: &Path) -> PathBuf {
    let dir = place.join("source");
    fs::create_dir(&dir).expect("mkdir");
    let content: String = (0..9000).map(|line| format!("line {line}\n")).collect();
    for (number, name) in (1_u64..).zip([OsStr::new("one"), OsStr::new("two"), &odd()]) {
        fs::write(dir.join(name), &content).expect("write");
        let file = fs::File::open(dir.join(name)).expect("open");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(number)).expect("time");
    }
    fs::write(dir.join("like one"), &content[..content.len() / 2]).expect("write");
    symlink(odd(), dir.join("link")).expect("symlink");
    dir
}

#[test]
fn every_command_with_json_has_a_section() {
    let place = tempfile::tempdir().expect("directory");
    assert_eq!(warpcrypt(["man", text(place.path())]).code(), 0);
    let pages = fs::read_dir(place.path()).expect("list").map(|entry| entry.expect("entry").path());
    let with_json = pages.filter(|page| fs::read_to_string(page).expect("read").contains("\\-\\-json"));
    let commands: BTreeSet<String> = with_json
        .map(|page| {
            page.file_stem().expect("a name").to_str().expect("text")["warpcrypt-".len()..].to_owned()
        })
        .collect();
    let sections = page().into_keys().filter(|heading| heading != "Every command");
    assert_eq!(sections.map(|heading| heading.replace(' ', "-")).collect::<BTreeSet<_>>(), commands);
}

#[test]
fn what_is_not_on_the_page_is_found() {
    let members = members("info");
    let vault = Vault::new("aes-256-ctr");
    let value = document("info", &warpcrypt(["info", text(&vault.store), "--json"]));
    for (at, with) in [
        ("/format", json!("1")),
        ("/slots", json!({})),
        ("/slots/0/id", json!(1.5)),
        ("/slots/0/label", json!(2)),
        ("/slots/0", json!({ "id": 1, "kind": "", "created": "" })),
        ("/slots/0", json!({ "id": 1, "kind": "", "created": "", "label": null, "new": 1 })),
    ] {
        let mut wrong = value.clone();
        *wrong.pointer_mut(at).expect("it is there") = with;
        assert_eq!(complaints(&members, "", &wrong).len(), 1, "{wrong:#}");
    }
}

#[test]
fn a_machine_and_a_configuration() {
    let vault = Vault::new("aes-256-ctr");
    let password = crate::cli::file(vault.place_path(), "password", b"one\n");
    let mut add = Vault::program();
    add.args(["key", "add"]).arg(&vault.store).args(["--label", "of Anna", "--kdf-memory", "8"]);
    add.arg("--key-file").arg(&vault.key).arg("--new-password-file").arg(password);
    assert_eq!(run(&mut add, 60).code(), 0);
    let info = document("info", &warpcrypt(["info", text(&vault.store), "--json"]));
    assert_eq!(info["locked"], Value::Null);
    let list = document("key list", &warpcrypt(["key", "list", text(&vault.store), "--json"]));
    assert_eq!(info["slots"], list["slots"]);
    assert_eq!(list["slots"][1]["argon2id"]["memory_kib"], 8 << 10);
    document("doctor", &warpcrypt(["doctor", "--json"]));
    let mut devices = Vault::program();
    devices.args(["devices", "--json"]).env("XDG_CACHE_HOME", vault.place_path());
    document("devices", &run(&mut devices, 120));
}

#[test]
fn copies_and_listings() {
    let vault = Vault::new("aes-256-ctr");
    let source = filled(vault.place_path());
    let copied = document("import", &on(&vault, "import", &[source.as_os_str()]));
    assert_eq!((&copied["files"], &copied["others"]), (&json!(4), &json!(1)));
    let listed = document("ls", &on(&vault, "ls", &["-R".as_ref()]));
    let entries = listed["entries"].as_array().expect("a list");
    let link = entries.iter().find(|entry| entry["type"] == "l").expect("the link");
    assert_eq!(link["target_bytes"], "6f646420ff");
    assert!(entries.iter().any(|entry| entry["path_bytes"] == "6f646420ff"));
    // Two files are damaged: one partially, one completely.
    let [part, whole] = ["one", "two"].map(|name| stored(&vault, name));
    let file = fs::OpenOptions::new().read(true).write(true).open(part).expect("open");
    file.write_all_at(b"damage", format::layout::chunk_offset(3)).expect("write");
    fs::write(whole, [7; 5000]).expect("write");
    fs::write(vault.store.join(odd()), "stray").expect("write");
    let target = vault.place_path().join(odd());
    let done = on(&vault, "export", &[target.as_os_str()]);
    assert_eq!((done.code(), &document("export", &done)["problems"][0]["path"]), (41, &json!("one")));
    let found = document("check", &on(&vault, "check", &["--full".as_ref()]));
    assert_eq!((&found["damaged"], found["findings"].as_array().map(Vec::len)), (&json!(2), Some(3)));
    let repaired = document("check", &on(&vault, "check", &["--repair".as_ref(), "--move-strays".as_ref()]));
    assert!(repaired["set_aside"].as_u64() > Some(0), "{repaired:#}");
    let read = on(&vault, "ls", &[]);
    let entries = document("ls", &read)["entries"].clone();
    let names = entries.as_array().expect("a list").iter().filter_map(|entry| entry["path"].as_str());
    let report =
        names.into_iter().find(|name| name.starts_with("warpcrypt-repair")).expect("a report").to_owned();
    let mut cat = Vault::program();
    cat.arg("cat").arg(&vault.store).arg(report).arg("--key-file").arg(&vault.key);
    document("check", &run(&mut cat, 60));
}

/// Path in the store of a file in the vault's root.
fn stored(vault: &Vault, name: &str) -> PathBuf {
    let mount = vault.mount_with(&["--read-only"]);
    let time = fs::metadata(mount.join(name)).expect("stat").modified().expect("time");
    mount.unmount();
    let found =
        fs::read_dir(&vault.store).expect("list").map(|entry| entry.expect("entry").path()).find(|path| {
            let known = fs::symlink_metadata(path).expect("stat");
            known.is_file() && known.modified().expect("time") == time
        });
    found.expect("the stored file")
}

#[test]
fn hashes_and_matches() {
    let place = tempfile::tempdir().expect("directory");
    filled(place.path());
    let program = |args: &[&str]| {
        let mut command = Vault::program();
        run(command.args(args).current_dir(place.path()), 60)
    };
    let list = program(&["hash", "-l", "source/one", "source/link"]).stdout;
    fs::write(place.path().join("list"), list).expect("write");
    fs::rename(place.path().join("source/one"), place.path().join("source/renamed")).expect("rename");
    let listed = document("hash", &program(&["hash", "-l", "--json", "-c", "k12,md6-128", "source", "none"]));
    let files = listed["files"].as_array().expect("a list");
    assert!(files.iter().any(|file| file["path_bytes"].is_string()), "{listed:#}");
    assert!(files.iter().any(|file| file["error"].is_string()), "{listed:#}");
    let audit = document("hash", &program(&["hash", "-l", "--json", "-a", "-k", "list", "source"]));
    assert!(audit["files"].as_array().is_some_and(|files| files.iter().any(|f| f["known"].is_object())));
    document("hash", &program(&["hash", "-l", "--json", "-x", "-k", "list", "source"]));
    let doubled = document("hash", &program(&["hash", "-l", "--json", "-d", "source"]));
    assert_eq!(doubled["duplicates"][0]["files"].as_array().map(Vec::len), Some(3), "{doubled:#}");
    let empty = document("hash", &program(&["hash", "--json", "-d", "list"]));
    assert_eq!(empty["duplicates"], json!([]));
    let matches = document("match", &program(&["match", "--json", "source", "none"]));
    assert_eq!(matches["identical"][0].as_array().map(Vec::len), Some(3), "{matches:#}");
    assert!(!matches["overlaps"].as_array().expect("a list").is_empty(), "{matches:#}");
    assert!(!matches["failed"].as_array().expect("a list").is_empty(), "{matches:#}");
}

#[test]
fn a_mount_and_a_trial() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    fs::write(mount.join("file"), [1; 100_000]).expect("write");
    document("stat", &warpcrypt(["stat", text(mount.path()), "--json"]));
    let info = document("info", &warpcrypt(["info", text(mount.path()), "--json"]));
    assert_eq!(info["locked"], false);
    let watch =
        format!("{} stat \"$1\" --json --watch | head -n 2", Vault::program().get_program().display());
    let lines = crate::support::command::sh("/", &watch, &[mount.path()], 60);
    let all: Vec<Value> = lines.lines().map(|line| parsed("stat", line)).collect();
    assert_eq!(all.len(), 2, "{lines}");
    mount.unmount();

    let source = vault.place_path().join(odd());
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("file"), "words of the content ".repeat(5000)).expect("write");
    let mut trial = Command::new(Vault::program().get_program());
    trial.args(["try", "--json", "--from"]).arg(&source).env("TMPDIR", vault.place_path());
    let result = document("try", &run(&mut trial, 120));
    assert!(result["source_bytes"].as_str().is_some_and(|bytes| bytes.ends_with("ff")), "{result:#}");
    assert_eq!(result["source_bytes"].as_str().map(str::len), Some(2 * source.as_os_str().as_bytes().len()));
}

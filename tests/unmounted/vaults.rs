//! Vaults created when the format became final, one for every cipher, integrity function and name mode:
//! they still open, and their content is unchanged.
//!
//! Each is a file in `tests/vaults/` that contains the store as JSON, without zeros. Vaults of a
//! released format are never regenerated; `cargo test --test unmounted vaults -- --ignored` creates only
//! missing ones.

use crate::support::say;
use crypto::{cipher::Cipher, integrity::Integrity, kdf::Argon2Cost};
use format::{
    config::Settings,
    key_slot::{NewSlot, SlotSecret},
    name::NameMode,
    recovery_key::RecoveryKey,
};
use rustix::{fs::XattrFlags, io::Errno};
use serde_json::{Map, Value, json};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use vault::{Dir, NewNode, OpenOptions, Target, Unlock, Vault};

const PASSWORD: &[u8] = b"a password";
const KEY_FILE: &[u8] = b"0123456789abcdef";
/// The recovery key of 32 zero bytes.
const RECOVERY: &str = "0000G-00005-0000N-0000A-0000T-0000F-0000Z-0000M-00004-0000H-00001-0000Y-0000E";
const ATTRIBUTE: (&str, &[u8]) = ("user.note", b"a value");
const TARGET: &str = "../one byte";
/// Runs of zeros in a stored file are omitted in pieces of this size.
const PIECE: usize = 64;

fn vaults() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vaults")
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// The files of a vault: names and contents.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut sparse = vec![0; 200 << 10];
    sparse[196 << 10..].copy_from_slice(&pattern(4096));
    vec![
        ("empty".into(), vec![]),
        ("long ".repeat(40), b"under a long name".into()),
        ("one byte".into(), vec![7]),
        ("one chunk".into(), pattern(4096)),
        ("sparse".into(), sparse),
    ]
}

fn every_kind() -> impl Iterator<Item = (String, Settings)> {
    let kinds = Cipher::ALL.into_iter().flat_map(|cipher| {
        Integrity::ALL.into_iter().flat_map(move |integrity| {
            NameMode::ALL.into_iter().map(move |names| Settings { cipher, integrity, names })
        })
    });
    kinds.map(|kind| {
        (format!("{}_{}_{}.json", kind.cipher.name(), kind.integrity.name(), kind.names.name()), kind)
    })
}

fn node(mode: u32) -> NewNode<'static> {
    NewNode::plain(mode, rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Creates a vault with all of this content, and slots for a password, a key file and a recovery key.
fn make(path: &Path, settings: Settings) {
    let slot = |secret| NewSlot {
        secret,
        cost: Argon2Cost { memory_kib: 64, passes: 1, lanes: 1 },
        created: 1_700_000_000,
        label: Some("a label"),
    };
    let recovery = RecoveryKey::parse(RECOVERY).unwrap();
    Vault::init(path, settings, &slot(SlotSecret::KeyFile(KEY_FILE))).unwrap();
    let key_file = Unlock::KeyFile(KEY_FILE.to_vec().into());
    let (mut config, _, master) = Vault::unlock_config(path, &key_file).unwrap();
    config.add(&master, &slot(SlotSecret::Password(PASSWORD))).unwrap();
    config.add(&master, &slot(SlotSecret::Recovery(&recovery))).unwrap();
    Vault::lock_config(path).unwrap().write(path, &config).unwrap();

    let vault = Vault::open(path, &key_file, OpenOptions::default()).unwrap();
    let root = vault.root();
    let (stored, _) = vault.mkdir(&root, OsStr::new("directory"), node(0o755)).unwrap();
    let inner = vault.open_dir(&root, &stored).unwrap();
    vault.symlink(&inner, OsStr::new("link"), OsStr::new(TARGET), node(0o777)).unwrap();
    for dir in [&root, &inner] {
        for (name, content) in files() {
            put(&vault, dir, &name, &content);
        }
    }
    let (stored, _) = vault.lookup(&root, OsStr::new("one byte")).unwrap();
    let file = Target::Entry(&root, &stored);
    if let Err(e) = vault.set_xattr(file, OsStr::new(ATTRIBUTE.0), ATTRIBUTE.1, false, false) {
        say(format!("no attribute: {e}"));
    }
    vault.shut_down().unwrap();
}

fn put(vault: &Vault, dir: &Dir, name: &str, content: &[u8]) {
    let (_, _, file) = vault.create(dir, OsStr::new(name), node(0o644)).unwrap();
    let start = content.iter().position(|byte| *byte != 0).unwrap_or(0);
    if start < content.len() {
        file.file.write(start as u64, &content[start..]).unwrap();
    }
    vault.sync_file(&file).unwrap();
}

/// Opens the vault with each of its keys and compares everything in it.
fn check(path: &Path, settings: Settings, attributes: bool) {
    let unlocks = [
        Unlock::Password(PASSWORD.to_vec().into()),
        Unlock::KeyFile(KEY_FILE.to_vec().into()),
        Unlock::Recovery(RECOVERY.to_owned().into()),
    ];
    for (unlock, read_only) in unlocks.iter().zip([true, true, false]) {
        assert_eq!(Vault::unlock_config(path, unlock).unwrap().0.settings(), settings);
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let vault = Vault::open(path, unlock, options).unwrap();
        let root = vault.root();
        let inner = vault.open_dir(&root, &vault.lookup(&root, OsStr::new("directory")).unwrap().0).unwrap();
        compare(&vault, &root, "directory");
        compare(&vault, &inner, "link");
        let link = vault.lookup(&inner, OsStr::new("link")).unwrap();
        assert_eq!(
            (vault.readlink(&inner, &link.0).unwrap(), link.1.size),
            (TARGET.into(), TARGET.len() as u64)
        );
        if attributes {
            let (stored, _) = vault.lookup(&root, OsStr::new("one byte")).unwrap();
            let file = Target::Entry(&root, &stored);
            assert_eq!(vault.list_xattr(file).unwrap(), [ATTRIBUTE.0]);
            assert_eq!(vault.get_xattr(file, OsStr::new(ATTRIBUTE.0)).unwrap(), ATTRIBUTE.1);
        }
        assert_eq!(vault.left_out(), 0);
        vault.shut_down().unwrap();
    }
}

/// Compares the files of a directory, which also contains `other`.
fn compare(vault: &Vault, dir: &Arc<Dir>, other: &str) {
    let mut names: Vec<_> = vault.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    let mut expected: Vec<OsString> = files().into_iter().map(|(name, _)| name.into()).collect();
    expected.push(other.into());
    expected.sort();
    assert_eq!(names, expected);
    for (name, content) in files() {
        let (stored, stat) = vault.lookup(dir, OsStr::new(&name)).unwrap();
        assert_eq!(stat.size, content.len() as u64, "{name}");
        let file = vault.open_file(dir, &stored, false).unwrap();
        let mut out = vec![1; content.len() + 1];
        let n = file.file.read(0, &mut out).unwrap();
        assert!(out[..n] == content, "{name}");
    }
}

/// Packs a stored tree as JSON.
fn pack(root: &Path) -> Value {
    let mut entries = Vec::new();
    pack_below(root, Path::new(""), &mut entries);
    Value::Array(entries)
}

fn pack_below(root: &Path, at: &Path, entries: &mut Vec<Value>) {
    let mut names: Vec<_> =
        fs::read_dir(root.join(at)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let (path, place) = (at.join(&name), root.join(at).join(&name));
        let kind = fs::symlink_metadata(&place).unwrap().file_type();
        let mut entry = json!({ "path": path.to_str().expect("stored names are ASCII") });
        if kind.is_dir() {
            entry["directory"] = true.into();
        } else if kind.is_symlink() {
            entry["link"] = fs::read_link(&place).unwrap().to_str().expect("base64").into();
        } else {
            let content = fs::read(&place).unwrap();
            entry["length"] = content.len().into();
            entry["data"] = pieces(&content);
            let attributes = attributes(&place);
            if !attributes.is_empty() {
                entry["attributes"] = attributes.into();
            }
        }
        entries.push(entry);
        if kind.is_dir() {
            pack_below(root, &path, entries);
        }
    }
}

/// The nonzero parts: offsets and bytes.
fn pieces(content: &[u8]) -> Value {
    let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
    for (number, piece) in
        content.chunks(PIECE).enumerate().filter(|(_, piece)| piece.iter().any(|b| *b != 0))
    {
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() == number * PIECE => run.extend_from_slice(piece),
            _ => runs.push((number * PIECE, piece.to_vec())),
        }
    }
    runs.iter().map(|(start, run)| json!([start, base64(run)])).collect()
}

fn attributes(path: &Path) -> Map<String, Value> {
    let mut names = [0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let own = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    own.map(|name| {
        let mut value = [0; 4096];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), base64(&value[..len]).into())
    })
    .collect()
}

/// Unpacks a tree, with holes in place of the zeros. Returns false if the store does not support
/// attributes.
fn unpack(entries: &Value, root: &Path) -> bool {
    let mut attributes = true;
    for entry in entries.as_array().unwrap() {
        let path = root.join(entry["path"].as_str().unwrap());
        if entry["directory"] == true {
            fs::create_dir(&path).unwrap();
            continue;
        }
        if let Some(target) = entry["link"].as_str() {
            symlink(target, &path).unwrap();
            continue;
        }
        let file = File::create_new(&path).unwrap();
        file.set_len(entry["length"].as_u64().unwrap()).unwrap();
        for piece in entry["data"].as_array().unwrap() {
            file.write_all_at(&bytes(&piece[1]), piece[0].as_u64().unwrap()).unwrap();
        }
        for (name, value) in entry["attributes"].as_object().into_iter().flatten() {
            match rustix::fs::fsetxattr(&file, name, &bytes(value), XattrFlags::empty()) {
                Err(Errno::OPNOTSUPP) => attributes = false,
                set => set.unwrap(),
            }
        }
    }
    attributes
}

fn base64(bytes: &[u8]) -> String {
    data_encoding::BASE64.encode(bytes)
}

fn bytes(value: &Value) -> Vec<u8> {
    data_encoding::BASE64.decode(value.as_str().unwrap().as_bytes()).unwrap()
}

#[test]
fn vaults_of_every_kind_open_as_they_were_made() {
    if !vaults().exists() {
        say("SKIPPED: there are no vaults yet: the format is not final");
        return;
    }
    for (name, settings) in every_kind() {
        let text = fs::read_to_string(vaults().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let dir = tempfile::tempdir().unwrap();
        let attributes = unpack(&serde_json::from_str(&text).unwrap(), dir.path());
        check(dir.path(), settings, attributes);
    }
}

/// A vault that is created, packed and unpacked equals what the other tests compare.
#[test]
fn a_vault_that_is_put_back_is_the_same() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, settings) = every_kind().last().unwrap();
    make(from.path(), settings);
    let packed = pack(from.path());
    let attributes = unpack(&packed, to.path()) && packed.to_string().contains("\"attributes\"");
    assert_eq!(pack(to.path()), packed);
    assert!(packed.to_string().len() < 40_000, "24 of them are to be small");
    check(to.path(), settings, attributes);
}

#[test]
#[ignore = "makes the vaults that the other tests open; once, when the format is final"]
fn make_the_vaults() {
    fs::create_dir_all(vaults()).unwrap();
    for (name, settings) in every_kind() {
        let path = vaults().join(name);
        if path.exists() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), settings);
        let packed = pack(dir.path());
        let lines: Vec<_> = packed.as_array().unwrap().iter().map(Value::to_string).collect();
        fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
}

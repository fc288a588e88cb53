//! `docs/format.md` compared with the code: every table marked as checked, and the definitions of keys,
//! MACs and SIV, computed here from primitives according to the document.

use crypto::{
    chunk::{ChunkId, ChunkKeys},
    cipher::{Cipher, CipherFamily, CipherKey},
    integrity::{Integrity, IntegrityKey},
    kdf::{Argon2Cost, FileKdf, argon2id, subkey},
    mac::{Mac, MacKey},
    secret::Secret,
    siv::SivKey,
};
use format::{
    change_times::{ChangeTime, ChangeTimesKey},
    config::{FORMER_MAX, FormerKey, SLOTS_MAX, Settings, TEXT_MAX, VaultConfig},
    dir_id::{DirId, DirIdKey},
    entry::{ENTRY, EPOCH_LIMIT, SLOT, Slot},
    former_list::{LIST_ID, ListId},
    key_slot::{DEFAULT_COST, KEY_FILE_LEN, LABEL_MAX, MAX_COST, NewSlot, SlotSecret},
    keys, layout,
    link::{self, LinkKey},
    master_secret::MasterSecret,
    name::{self, NameKeys, NameMode},
    printed,
    record::{Between, Claim, KeyId, MOST_UNREADABLE, RECORD, Record, Recovery, SEQUENCE_LIMIT, Version},
    recovery_key::RecoveryKey,
    tree::{leaf_digest, node_digest},
    xattr::{Owner, XattrKeys},
    xattr_list::{ListOwner, XattrList},
};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Debug, fs, path::Path};

const DOCUMENT: &str = include_str!("../../docs/format.md");

/// Rows of the table after a marker, without its heading; cells are trimmed, and backquotes removed.
fn table(mark: &str) -> Vec<Vec<&'static str>> {
    let mark = format!("<!-- checked: {mark} -->");
    let (_, behind) = DOCUMENT.split_once(&mark).unwrap_or_else(|| panic!("no {mark}"));
    let lines = behind.lines().skip_while(|line| !line.starts_with('|')).take_while(|l| l.starts_with('|'));
    let rows: Vec<_> = lines.skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "{mark}");
    rows
}

fn cells(line: &'static str) -> Vec<&'static str> {
    let line = line.trim_matches('|');
    line.split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

fn number(cell: &str) -> u64 {
    cell.parse().unwrap_or_else(|_| panic!("{cell:?} is no number"))
}

/// Compares two columns with named values: the same names in the same order, with the same values.
fn compare<V: PartialEq + Debug>(mark: &str, code: &[(&str, V)], parse: impl Fn(&str) -> V) {
    let rows = table(mark);
    assert_eq!(rows.len(), code.len(), "{mark}");
    for (row, (name, value)) in rows.iter().zip(code) {
        assert_eq!((row[0], &parse(row[1])), (*name, value), "{mark}");
    }
}

/// A table of fields: offset, length, meaning. Fields must follow each other without gaps.
fn fields(mark: &str, total: usize) -> Vec<(usize, usize, &'static str)> {
    fields_from(mark, 0, total)
}

fn fields_from(mark: &str, start: usize, total: usize) -> Vec<(usize, usize, &'static str)> {
    let rows = table(mark);
    let fields: Vec<_> =
        rows.iter().map(|row| (number(row[0]) as usize, number(row[1]) as usize, row[2])).collect();
    let mut end = start;
    for (offset, length, what) in &fields {
        assert_eq!(*offset, end, "{mark}: {what}");
        end += length;
    }
    assert_eq!(end, total, "{mark}");
    fields
}

fn field<'a>(bytes: &'a [u8], fields: &[(usize, usize, &str)], what: &str) -> &'a [u8] {
    let (offset, length, _) =
        fields.iter().find(|f| f.2.starts_with(what)).unwrap_or_else(|| panic!("no {what}"));
    &bytes[*offset..offset + length]
}

fn master() -> Secret<32> {
    Secret::new_with(|key| key.iter_mut().zip(1..).for_each(|(byte, i)| *byte = i))
}

fn kmac256<const N: usize>(key: &[u8], input: &[u8], custom: &str) -> [u8; N] {
    let mut out = [0; N];
    MacKey::new(Mac::Kmac256, key, custom.as_bytes()).mac(&[input], &mut out);
    out
}

#[test]
fn constants() {
    let code = [
        ("page", layout::PAGE),
        ("chunk", layout::CHUNK),
        ("chunks of group 0", layout::GROUP0),
        ("chunks of a later group", layout::GROUP),
        ("children of a node page", layout::FANOUT),
        ("commit record", RECORD as u64),
        ("slot", SLOT as u64),
        ("entry", ENTRY as u64),
        ("entries of group 0 start at", layout::GROUP0_ENTRIES),
        ("largest file", layout::MAX_SIZE),
        ("its stored size", layout::MAX_STORED),
        ("its levels of node pages", layout::MAX_LEVELS.into()),
        ("epochs are below", EPOCH_LIMIT),
        ("sequence numbers are below", SEQUENCE_LIMIT),
    ];
    compare("constants", &code, number);
}

#[test]
fn limits() {
    let code = [
        ("Argon2 memory, KiB", MAX_COST.memory_kib.into()),
        ("Argon2 passes", MAX_COST.passes.into()),
        ("Argon2 lanes", MAX_COST.lanes.into()),
        ("default memory, KiB", DEFAULT_COST.memory_kib.into()),
        ("default passes", DEFAULT_COST.passes.into()),
        ("default lanes", DEFAULT_COST.lanes.into()),
        ("key slots", SLOTS_MAX as u64),
        ("former keys", FORMER_MAX as u64),
        ("shortest key file", *KEY_FILE_LEN.start() as u64),
        ("longest key file", *KEY_FILE_LEN.end() as u64),
        ("longest label", LABEL_MAX as u64),
        ("longest configuration", TEXT_MAX as u64),
    ];
    compare("limits", &code, number);
}

/// The numbers of the steps of writing and recovery in the text, such as `**W1.**`.
fn steps() -> BTreeSet<&'static str> {
    let number = |part: &'static str| part.split(['.', ' ']).next().filter(|step| is_step(step));
    DOCUMENT.split("\n- **").filter_map(number).collect()
}

fn is_step(word: &str) -> bool {
    matches!(word.as_bytes(), [b'W' | b'C' | b'T' | b'R', b'1'..=b'9'])
}

/// The document names the code of each step, and that code names the step.
#[test]
fn steps_and_their_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/content/src");
    let mut documented = BTreeSet::new();
    for row in table("steps") {
        for file in row[1].split(", ").map(|file| file.trim_matches('`')) {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            let comments = text.lines().filter_map(|line| line.split_once("//")).map(|(_, comment)| comment);
            let words = comments.flat_map(|comment| comment.split(|c: char| !c.is_alphanumeric()));
            let mut cited: BTreeSet<&str> = words.filter(|word| is_step(word)).collect();
            for step in row[0].split(", ") {
                assert!(cited.remove(step), "{file} does not name {step}");
                documented.insert(step);
            }
        }
    }
    assert_eq!(documented, steps());
    assert!(documented.len() > 15, "found only {documented:?}");
}

#[test]
fn worked_sizes() {
    for row in table("sizes") {
        let [plain, stored, groups, levels] = [0, 1, 2, 3].map(|i| number(row[i]));
        assert_eq!(layout::stored_size(plain), stored, "{plain}");
        assert_eq!(layout::plain_size(stored), plain, "{stored}");
        assert_eq!((layout::groups(plain), layout::levels(groups)), (groups, levels as u32), "{plain}");
    }
}

#[test]
fn reserved_names() {
    let documented: Vec<_> = table("reserved names").into_iter().map(|row| row[0]).collect();
    let code = [
        name::CONFIG_FILE,
        name::CONFIG_COPY,
        name::LOCK_FILE,
        name::TIMES_FILE,
        name::DIR_ID_NAME,
        name::LONG,
        name::TEMPORARY,
        name::REWRITE,
        name::FORMER_LIST,
        name::ASIDE,
        name::LOST,
        name::LINKS,
        name::LISTS,
        name::PLAIN,
    ];
    assert_eq!(documented, code);
    assert!(code.iter().all(|name| name.starts_with(name::RESERVED)));
}

#[test]
fn labels_of_sub_keys() {
    let documented: Vec<_> = table("labels").into_iter().map(|row| row[0]).collect();
    let code = [
        keys::CONTENTS,
        keys::CONFIG,
        keys::FORMER,
        keys::FORMER_LIST,
        keys::NAMES,
        keys::LONG_NAMES,
        keys::DIR_IDS,
        keys::LINKS,
        keys::XATTR_NAMES,
        keys::XATTR_VALUES,
        keys::CHANGE_TIMES,
        keys::REVERSE,
        keys::ANCHOR,
    ];
    assert_eq!(documented, code);
    for label in documented {
        let expected: [u8; 32] = kmac256(master().expose(), label.as_bytes(), "warpcrypt v2 subkey");
        assert_eq!(*subkey(&master(), label).expose(), expected);
    }
}

#[test]
fn names_of_ciphers_and_integrity_functions() {
    let documented: Vec<_> = table("integrity").into_iter().map(|row| row[0]).collect();
    assert_eq!(documented, Integrity::ALL.map(Integrity::name));
    for cipher in Cipher::ALL {
        assert!(DOCUMENT.contains(&format!("`{}`", cipher.name())), "{cipher:?}");
    }
    for mode in NameMode::ALL {
        assert!(DOCUMENT.contains(&format!("`{}`", mode.name())), "{mode:?}");
    }
}

/// Other documents mention every cipher family too.
#[test]
fn ciphers_in_other_documents() {
    for (path, text) in [
        ("docs/kernels.md", include_str!("../../docs/kernels.md")),
        ("CHANGELOG.md", include_str!("../../CHANGELOG.md")),
    ] {
        for family in CipherFamily::ALL {
            let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
            assert!(
                words.into_iter().any(|word| word == family.name()),
                "{path} says nothing of {}",
                family.name()
            );
        }
    }
}

#[test]
fn the_header_page() {
    let fields = fields("header page", layout::PAGE as usize);
    let code = [(0, RECORD), (RECORD, RECORD), (layout::GROUP0_ENTRIES as usize, 48 * ENTRY)];
    assert_eq!(fields.iter().map(|f| (f.0, f.1)).collect::<Vec<_>>(), code);
    assert_eq!(layout::entries_offset(0), layout::GROUP0_ENTRIES);
}

#[test]
fn a_slot() {
    let fields = fields("slot", SLOT);
    let bytes = Slot { nonce: [1; 10], epoch: 0x0203_0405_0607, tag: [8; 16] }.encode();
    assert_eq!(field(&bytes, &fields, "nonce"), [1; 10]);
    assert_eq!(field(&bytes, &fields, "epoch"), [2, 3, 4, 5, 6, 7]);
    assert_eq!(field(&bytes, &fields, "tag"), [8; 16]);
}

#[test]
fn a_record() {
    let fields = fields("record", RECORD);
    let version = |byte: u8| Version { epoch: byte.into(), size: u64::from(byte) << 8, root: [byte; 32] };
    let key = IntegrityKey::new(Integrity::Kmac128, &[9; 32], b"warpcrypt v2 record");
    let zero = Version { epoch: 0, size: 0, root: [0; 32] };
    let between = Between { previous: Some(version(3)), barrier: Some(version(2)) };
    let dirty = Claim::Dirty { base: version(1), between };
    for (state, claim, named) in
        [(0, Claim::Clean, [zero; 3]), (1, dirty, [version(1), version(3), version(2)])]
    {
        let bytes =
            Record { sequence: 6, key: KeyId { generation: 3, salt: [7; 32] }, target: version(5), claim };
        let bytes = bytes.encode(&key);
        let at = |what: &str| field(&bytes, &fields, what).to_vec();
        assert_eq!(at("magic"), b"warpfile");
        assert_eq!(at("version"), 2_u16.to_be_bytes());
        assert_eq!(at("state"), u16::to_be_bytes(state));
        assert_eq!(at("sequence"), 6_u64.to_be_bytes());
        assert_eq!(at("key generation"), 3_u32.to_be_bytes());
        assert_eq!(at("salt"), [7; 32]);
        let [base, previous, barrier] = named;
        for (name, version) in
            [("target", version(5)), ("base", base), ("previous", previous), ("barrier", barrier)]
        {
            assert_eq!(at(&format!("{name}: epoch")), version.epoch.to_be_bytes());
            assert_eq!(at(&format!("{name}: plaintext size")), version.size.to_be_bytes());
            assert_eq!(at(&format!("{name}: root")), version.root);
        }
        for (offset, length, _) in fields.iter().filter(|f| f.2 == "zero") {
            assert!(bytes[*offset..offset + length].iter().all(|byte| *byte == 0));
        }
        let (start, ..) = fields.iter().find(|f| f.2.starts_with("MAC")).unwrap();
        assert_eq!(at("MAC"), key.digest(&[], &bytes[..*start]));
    }
    let rest = fields_from("recovery record", 152, 480);
    let recovery = Recovery { base: version(1), limit: 4, unreadable: vec![0, 6] };
    let claim = Claim::Recovery(recovery);
    let bytes =
        Record { sequence: 6, key: KeyId { generation: 3, salt: [7; 32] }, target: version(5), claim };
    let bytes = bytes.encode(&key);
    assert_eq!(field(&bytes, &fields, "state"), [0, 2]);
    assert_eq!(field(&bytes, &rest, "limit"), 4_u64.to_be_bytes());
    let chunks = field(&bytes, &rest, "unreadable chunks");
    assert_eq!(chunks[..24], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(chunks.len() / 8 == MOST_UNREADABLE && chunks[24..].iter().all(|byte| *byte == 0));
}

#[test]
fn keys_of_a_file_and_what_they_authenticate() {
    let custom: Vec<_> = table("custom").into_iter().map(|row| row[0]).collect();
    let ["warpcrypt v2 chunk", "warpcrypt v2 hole", leaf, node, record, ..] = custom[..] else {
        panic!("{custom:?}")
    };
    let contents = keys::contents_key(&master());
    let salt = [3; 32];
    let all: [u8; 96] = kmac256(contents.expose(), &salt, "warpcrypt v2 file keys");
    let (encryption, mac, tree) = (&all[..32], &all[32..64], &all[64..]);
    let id = ChunkId { index: 0x1_0203, epoch: 0x0506, nonce: [4; 10] };
    let slot = Slot { nonce: [4; 10], epoch: 0x0506, tag: [8; 16] };
    for cipher in Cipher::ALL {
        for integrity in Integrity::ALL {
            let keys = FileKdf::new(keys::contents_key(&master()), cipher, integrity).keys(&salt);
            let f = |key: &[u8], head: &[u8], data: &[u8], custom: &str| -> [u8; 32] {
                integrity_function(integrity, key, head, data, custom)
            };
            let tag = |head: &[u8], data: &[u8]| integrity_function(integrity, mac, head, data, custom[0]);
            check_chunk(&keys.chunk, cipher, &encryption[..cipher.key_len()], &tag, &id);
            let header = [&[0; 10][..], &id.index.to_be_bytes(), &id.epoch.to_be_bytes(), &[0; 4]].concat();
            let hole = ChunkId { nonce: [0; 10], ..id };
            let hole_tag: [u8; 16] = integrity_function(integrity, mac, &header, &[], custom[1]);
            assert_eq!(keys.chunk.hole_tag(&hole), hole_tag);

            let slots = [Some(slot), None].repeat(32);
            let entries = [slot.encode(), [0; 32]].repeat(32).concat();
            assert_eq!(
                leaf_digest(&keys, 7, slots.iter().map(Option::as_ref)),
                f(tree, &7_u64.to_be_bytes(), &entries, leaf)
            );
            let place = [&2_u32.to_be_bytes()[..], &9_u64.to_be_bytes()].concat();
            assert_eq!(node_digest(&keys, 2, 9, &[[1; 32]; 128]), f(tree, &place, &[1; 4096], node));
            assert_eq!(keys.record.digest(&[], &[8; 480]), f(tree, &[], &[8; 480], record));
        }
    }
}

#[test]
fn vectors() {
    let (salt, id) = ([3; 32], ChunkId { index: 50, epoch: 5, nonce: [4; 10] });
    let contents = keys::contents_key(&master());
    let all: [u8; 96] = kmac256(contents.expose(), &salt, "warpcrypt v2 file keys");
    let plain = [0x5a; 3100];
    let mut sealed = [0; 3100];
    let file_keys =
        |integrity| FileKdf::new(keys::contents_key(&master()), Cipher::Aes256, integrity).keys(&salt);
    file_keys(Integrity::Kmac128).chunk.seal(&id, &plain, &mut sealed);
    let mut found = vec![
        ("any", "sub-key of the contents".to_owned(), contents.expose().to_vec()),
        ("any", "encryption key".to_owned(), all[..32].to_vec()),
        ("any", "chunk MAC key".to_owned(), all[32..64].to_vec()),
        ("any", "tree key".to_owned(), all[64..].to_vec()),
        ("any", "first 16 bytes of the ciphertext".to_owned(), sealed[..16].to_vec()),
    ];
    for integrity in Integrity::ALL {
        let keys = file_keys(integrity);
        let tag = keys.chunk.seal(&id, &plain, &mut sealed);
        let mut slots = [None; 64];
        let slot = Slot { nonce: id.nonce, epoch: id.epoch, tag };
        slots[2] = Some(&slot);
        let leaf = leaf_digest(&keys, 1, slots.into_iter());
        let mut children = [[0; 32]; 128];
        children[1] = leaf;
        let root = node_digest(&keys, 1, 0, &children);
        let target = Version { epoch: 5, size: 50 * 4096 + 3100, root };
        let record = Record { sequence: 9, key: KeyId { generation: 0, salt }, target, claim: Claim::Clean };
        let mut add =
            |what: &str, value: &[u8]| found.push((integrity.name(), what.to_owned(), value.to_vec()));
        if integrity == Integrity::TurboShake128x4 {
            let lane_mac = MacKey::new(Mac::TurboShake128, &all[32..64], b"warpcrypt v2 lane");
            for (lane, number) in sealed.chunks_exact(1000).zip(1..) {
                add(&format!("lane {number} of the chunk"), &lane_mac.digest(&[lane]));
            }
        }
        add("tag", &tag);
        add("hole tag", &keys.chunk.hole_tag(&ChunkId { nonce: [0; 10], ..id }));
        add("leaf digest", &leaf);
        add("node digest", &root);
        add("record MAC", &record.encode(&keys.record)[480..]);
    }
    let rows = table("vectors");
    let rows: Vec<_> =
        rows.iter().map(|row| (row[0], row[1].to_owned(), hex(&Value::from(row[2])))).collect();
    assert_eq!(rows, found);
}

/// The integrity functions as defined by the document.
fn integrity_function<const L: usize>(
    integrity: Integrity,
    key: &[u8],
    head: &[u8],
    data: &[u8],
    custom: &str,
) -> [u8; L] {
    let mut out = [0; L];
    let mac = |mac, custom: &str| MacKey::new(mac, key, custom.as_bytes());
    match integrity {
        Integrity::Kmac128 => mac(Mac::Kmac128, custom).mac(&[head, data], &mut out),
        Integrity::Kmac256 => mac(Mac::Kmac256, custom).mac(&[head, data], &mut out),
        Integrity::TurboShake128x4 => {
            let count = (data.len() / 1000).min(4);
            let (lanes, rest) = data.split_at(1000 * count);
            let lane = mac(Mac::TurboShake128, "warpcrypt v2 lane");
            let values: Vec<u8> = lanes.chunks(1000).flat_map(|one| lane.digest(&[one])).collect();
            mac(Mac::TurboShake128, custom).mac(&[rest, &values, head, &[count as u8]], &mut out);
        }
    }
    out
}

/// Computes the tag of a head and a ciphertext.
type ExpectedTag<'a> = dyn Fn(&[u8], &[u8]) -> [u8; 16] + 'a;

/// Checks a chunk against the document: counter, ciphertext, tag.
fn check_chunk(
    keys: &ChunkKeys,
    cipher: Cipher,
    encryption: &[u8],
    expected_tag: &ExpectedTag,
    id: &ChunkId,
) {
    let plain = [0x5a; 3100];
    let mut sealed = [0; 3100];
    let tag = keys.seal(id, &plain, &mut sealed);
    let mut counter = [0; 16];
    counter[..10].copy_from_slice(&id.nonce);
    counter[10..].copy_from_slice(&(256 * id.index).to_be_bytes()[2..]);
    let mut expected = [0; 3100];
    CipherKey::new(cipher, encryption).ctr(&counter, &plain, &mut expected);
    assert_eq!(sealed, expected);
    let header =
        [&id.nonce[..], &id.index.to_be_bytes(), &id.epoch.to_be_bytes(), &3100_u32.to_be_bytes()].concat();
    assert_eq!(tag, expected_tag(&header, &sealed));
}

#[test]
fn the_synthetic_iv() {
    let key = master();
    let iv = subkey(&key, "siv prf");
    let encryption = subkey(&key, "siv encryption");
    let be64 = |n: u64| n.to_be_bytes();
    let input = [&be64(2)[..], &be64(3), b"one", &be64(0), b"text"].concat();
    let iv: [u8; 16] = kmac256(iv.expose(), &input, "warpcrypt v2 siv");
    for cipher in Cipher::ALL {
        let mut expected = [iv.as_slice(), b"text"].concat();
        let stream = CipherKey::new(cipher, &encryption.expose()[..cipher.key_len()]);
        stream.ctr_in_place(&iv, &mut expected[16..]);
        assert_eq!(SivKey::new(cipher, &key).seal(&[b"one", b""], b"text"), expected);
    }
}

#[test]
fn a_directory_id() {
    let fields = fields("directory id", 32);
    let bytes = DirIdKey::derive(&master()).encode(&DirId([5; 16]));
    assert_eq!(field(&bytes, &fields, "id"), [5; 16]);
    let key = subkey(&master(), "directory ids");
    let mac: [u8; 16] = kmac256(key.expose(), &[5; 16], "warpcrypt v2 directory id");
    assert_eq!(field(&bytes, &fields, "MAC"), mac);
}

#[test]
fn a_change_time() {
    let fields = fields("change time", 32);
    let time = ChangeTime { inode: 5, stored: (-2, 7), shown: (3, 999_999_999) };
    let sealed = ChangeTimesKey::derive(&master(), Cipher::Aes256).seal(&[time, time]);
    let key = SivKey::new(Cipher::Aes256, &subkey(&master(), "change times"));
    let bytes = key.open(&[], &sealed).unwrap();
    let moment =
        |seconds: i64, nanoseconds: u32| [&seconds.to_be_bytes()[..], &nanoseconds.to_be_bytes()].concat();
    assert_eq!((bytes.len(), &bytes[..32]), (64, &bytes[32..]));
    assert_eq!(field(&bytes, &fields, "inode number"), 5_u64.to_be_bytes());
    assert_eq!(field(&bytes, &fields, "stored"), moment(-2, 7));
    assert_eq!(field(&bytes, &fields, "shown"), moment(3, 999_999_999));
}

#[test]
fn lengths_of_names_and_links() {
    for (mode, at) in [(NameMode::Encrypted, 1), (NameMode::EncryptedShort, 3)] {
        let names = NameKeys::derive(&master(), Cipher::Aes256, mode);
        for row in table("name lengths") {
            let encoded = names.encode(&DirId([1; 16]), &vec![b'n'; number(row[0]) as usize]).unwrap();
            assert_eq!(encoded.stored.len() as u64, number(row[at]), "{row:?}");
            let sidecar = encoded.sidecar.map_or("none".to_owned(), |bytes| bytes.len().to_string());
            assert_eq!(sidecar, row[at + 1], "{row:?}");
        }
    }
    for row in table("link lengths") {
        assert_eq!(link::stored_len(number(row[0]) as usize) as u64, number(row[1]), "{row:?}");
    }
}

#[test]
fn a_long_name_and_its_hash() {
    let (dir, plain) = (DirId([1; 16]), [b'n'; 200]);
    let names = NameKeys::derive(&master(), Cipher::Kuznyechik, NameMode::Encrypted);
    let padded = [&plain[..], &[0; 8]].concat();
    let sealed = SivKey::new(Cipher::Kuznyechik, &subkey(&master(), "names")).seal(&[&dir.0], &padded);
    let key = subkey(&master(), "long names");
    let hash: [u8; 32] = kmac256(key.expose(), &sealed, "warpcrypt v2 long name");
    let stored = "warpcrypt.long.".to_owned() + &data_encoding::BASE64URL_NOPAD.encode(&hash);
    let encoded = names.encode(&dir, &plain).unwrap();
    assert_eq!((encoded.stored, encoded.sidecar), (stored.into_bytes(), Some(sealed)));
}

#[test]
fn links_and_attributes() {
    let cipher = Cipher::Aes192;
    let decode = |text: &[u8]| data_encoding::BASE64URL_NOPAD.decode(text).unwrap();
    let siv = |label| SivKey::new(cipher, &subkey(&master(), label));
    let stored = decode(LinkKey::derive(&master(), cipher).encode(b"target").unwrap().as_bytes());
    assert_eq!(siv("symlinks").open(&[&stored[..16]], &stored[16..]), Ok(b"target".to_vec()));
    let (long, sealed) = LinkKey::derive(&master(), cipher).encode_long(b"target").unwrap();
    let id = decode(long.file_name().as_encoded_bytes());
    assert_eq!(
        long.text().strip_prefix("warpcrypt.link.").map(|text| decode(text.as_bytes())),
        Some([&id[..], &[0, 6]].concat())
    );
    assert_eq!(siv("symlinks").open(&[b"long", &id], &sealed), Ok(b"target".to_vec()));

    let xattrs = XattrKeys::derive(&master(), cipher);
    let name = xattrs.encode_name(b"user.key").unwrap();
    let sealed = decode(name.strip_prefix("user.warpcrypt.").unwrap().as_bytes());
    assert_eq!(siv("xattr names").open(&[], &sealed), Ok(b"user.key\0\0\0\0\0\0\0\0".to_vec()));
    let (salt, id) = ([2; 32], DirId([3; 16]));
    let fifo = *b"p\0\0\0\0\0\0\0\0";
    for (owner, kind, identity) in [
        (Owner::File(&salt), &b"file"[..], &salt[..]),
        (Owner::Dir(&id), b"directory", &id.0),
        (Owner::Link(b"stored"), b"link", b"stored"),
        (Owner::Special(&fifo), b"special", &fifo),
    ] {
        let stored = xattrs.encode_value(owner, b"user.key", b"value").unwrap();
        let (nonce, sealed) = stored.split_at(16);
        let opened = siv("xattr values").open(&[kind, identity, b"user.key", nonce], sealed);
        assert_eq!(opened, Ok(b"value".to_vec()));
    }

    let mut list = XattrList::default();
    assert!(list.insert(b"user.key", b"value") && list.insert(b"user.b", b""));
    for (owner, letter, kind, identity) in [
        (ListOwner::File(salt), b"f", &b"file"[..], &salt[..]),
        (ListOwner::Dir(id), b"d", b"directory", &id.0),
    ] {
        let name = siv("xattr names").open(&[b"list"], &decode(xattrs.list_name(&owner).as_bytes()));
        assert_eq!(name, Ok([&letter[..], identity].concat()));
        let stored = xattrs.encode_list(&owner, &list).unwrap();
        let (nonce, sealed) = stored.split_at(16);
        let opened = siv("xattr values").open(&[b"list", kind, identity, nonce], sealed);
        assert_eq!(opened, Ok(b"\0\x06user.b\0\0\0\0\0\x08user.key\0\0\0\x05value".to_vec()));
    }
}

/// Reads the configuration as plain JSON, and computes its slots and MAC according to the document.
#[test]
fn a_configuration() {
    let cost = Argon2Cost { memory_kib: 16, passes: 1, lanes: 2 };
    let recovery = RecoveryKey::parse(zero_recovery_key()).unwrap();
    let secrets = [
        SlotSecret::Password(b"pass"),
        SlotSecret::KeyFile(&[4; 16]),
        SlotSecret::Recovery(&recovery),
        SlotSecret::PasswordAndKeyFile(b"pass", &[4; 16]),
    ];
    let slot = |secret, label| NewSlot { secret, cost, created: 1_700_000_000, label };
    let settings =
        Settings { cipher: Cipher::Aes128, integrity: Integrity::TurboShake128x4, names: NameMode::Plain };
    let (mut config, master) = VaultConfig::create(settings, &slot(secrets[0], Some("a label"))).unwrap();
    config.add(&master, &slot(secrets[1], None)).unwrap();
    config.add(&master, &slot(secrets[2], None)).unwrap();
    config.add(&master, &slot(secrets[3], None)).unwrap();

    let json: Value = serde_json::from_str(&config.to_json()).unwrap();
    let vault_id = hex(&json["vault_id"]);
    let t = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    let text = |value: &Value| t(value.as_str().unwrap_or_default().as_bytes());
    let generation = json["generation"].as_u64().unwrap();
    assert_eq!((generation, be32(&json["key_generation"])), (4, [0; 4]));
    let mut m = [&2_u32.to_be_bytes()[..], &vault_id, &generation.to_be_bytes()].concat();
    m.extend(["cipher", "integrity", "names"].into_iter().flat_map(|field| text(&json[field])));
    m.extend(be32(&json["key_generation"]));
    m.extend((json["former_keys"].as_array().unwrap().len() as u32).to_be_bytes());
    m.extend(be32(&json["next_slot"]));
    m.extend(4_u32.to_be_bytes());
    for slot in json["slots"].as_array().unwrap() {
        let (kdf, wrapping) = kdf_and_key(&slot["kdf"]);
        let context = [b"warpcrypt v2 key slot", &vault_id[..], &be32(&slot["id"]), &kdf].concat();
        let wrapped = hex(&slot["wrapped"]);
        let opened = SivKey::new(Cipher::Aes256, &wrapping).open(&[&context], &wrapped);
        assert_eq!(opened.as_deref(), Ok(&master.expose()[..]));
        m.extend(be32(&slot["id"]));
        m.extend(slot["created"].as_u64().unwrap().to_be_bytes());
        m.push(slot["label"].is_string().into());
        m.extend([text(&slot["label"]), t(&kdf), wrapped].concat());
    }
    let key = subkey(&master, "configuration");
    let mac: [u8; 32] = kmac256(key.expose(), &m, "warpcrypt v2 configuration");
    assert_eq!(hex(&json["mac"]), mac);
}

#[test]
fn a_former_key() {
    let (id, contents) = ([3; 16], Secret::new_with(|key| key.fill(9)));
    let wrapped =
        FormerKey::wrap(&master(), &id, 5, &contents, ListId { id: [0; LIST_ID], items: 0 }).wrapped;
    let context = [b"warpcrypt v2 former master key", &id[..], &5_u32.to_be_bytes()].concat();
    let key = SivKey::new(Cipher::Aes256, &subkey(&master(), "former keys"));
    assert_eq!(key.open(&[&context], &wrapped), Ok(vec![9; 32]));
}

fn kdf_and_key(kdf: &Value) -> (Vec<u8>, Secret<32>) {
    let (kind, fields) = kdf.as_object().unwrap().iter().next().unwrap();
    let salt = hex(&fields["salt"]);
    let extract = |number, secret: &[u8], custom| {
        let key: [u8; 32] = kmac256(&salt, secret, custom);
        ([&[number][..], &salt].concat(), Secret::new_with(|out| *out = key))
    };
    match kind.as_str() {
        "password" | "password-and-key-file" => {
            let [memory_kib, passes, lanes] = ["memory_kib", "passes", "lanes"].map(|field| &fields[field]);
            let number = |value: &Value| value.as_u64().unwrap() as u32;
            let cost =
                Argon2Cost { memory_kib: number(memory_kib), passes: number(passes), lanes: number(lanes) };
            let stretched = argon2id(b"pass", salt[..].try_into().unwrap(), cost).unwrap();
            let (kind, key) = match kind.as_str() {
                "password" => (1, stretched),
                _ => {
                    let key = kmac256(stretched.expose(), &[4; 16], "warpcrypt v2 password and key file");
                    (4, Secret::new_with(|out| *out = key))
                }
            };
            ([&[kind][..], &be32(memory_kib), &be32(passes), &be32(lanes), &salt].concat(), key)
        }
        "key-file" => extract(2, &[4; 16], "warpcrypt v2 key file"),
        _ => extract(3, &[0; 32], "warpcrypt v2 recovery key"),
    }
}

fn hex(value: &Value) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(value.as_str().unwrap().as_bytes()).unwrap()
}

fn be32(value: &Value) -> [u8; 4] {
    (value.as_u64().unwrap() as u32).to_be_bytes()
}

fn zero_recovery_key() -> &'static str {
    let (_, behind) = DOCUMENT.split_once("<!-- checked: zero recovery key -->").unwrap();
    behind.lines().find(|line| line.starts_with("0000")).unwrap()
}

#[test]
fn the_recovery_key_of_zeros() {
    let text = zero_recovery_key();
    let key = RecoveryKey::parse(text).unwrap();
    assert_eq!((key.expose(), key.to_text().as_str()), (&[0; 32], text));
}

#[test]
fn the_master_secret() {
    let fields = fields("master secret", 55);
    let what = |at: usize| fields.iter().find(|(offset, ..)| *offset == at).unwrap().2;
    for cipher in Cipher::ALL {
        for integrity in Integrity::ALL {
            for names in NameMode::ALL {
                let settings = Settings { cipher, integrity, names };
                let master = Secret::new_with(|key| key.fill(7));
                let secret = MasterSecret { vault: [5; 16], settings, key_generation: 0x0a0b0c, master };
                let bytes = *printed::parse::<55>(&secret.to_text().unwrap()).unwrap();
                assert_eq!((bytes[0], &bytes[4..7]), (1, &[10, 11, 12][..]));
                assert_eq!((&bytes[7..23], &bytes[23..]), (&[5; 16][..], &[7; 32][..]));
                for (at, name) in [(1, cipher.name()), (2, integrity.name()), (3, names.name())] {
                    assert!(what(at).contains(&format!("{} `{name}", bytes[at])), "{}", what(at));
                }
            }
        }
    }
}

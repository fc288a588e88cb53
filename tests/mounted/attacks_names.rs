//! Tampering with what is stored beside the contents: configuration, directory ids, names, links,
//! attributes.

use crate::support::{
    command::ok,
    mounted::Vault,
    random::Random,
    ready,
    store::{edit, walk},
};
use std::{fs, path::Path};

#[test]
fn an_edited_configuration_is_refused() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let paths = ["warpcrypt.json", "warpcrypt.json.copy"].map(|name| vault.store.join(name));
    let original = fs::read(&paths[0]).expect("configuration");
    let put = |text: &[u8]| paths.iter().for_each(|path| fs::write(path, text).expect("write the store"));
    let value: serde_json::Value = serde_json::from_slice(&original).expect("JSON");
    let mut edited = Vec::new();
    variants(&value, &mut |v| edited.push(v));
    assert!(edited.len() > 8, "the configuration has more parameters than that");
    for variant in edited {
        let text = serde_json::to_vec_pretty(&variant).expect("JSON");
        put(&text);
        let done = vault.try_mount(&[]);
        let text = String::from_utf8_lossy(&text);
        assert!(
            [10, 11, 12, 13, 14].contains(&done.code()),
            "exit code {}: {}\n{text}",
            done.code(),
            done.stderr
        );
        assert!(!done.stderr.trim().is_empty());
    }
    let mut random = Random::new("configuration");
    for _ in 0..150 {
        let mut bytes = original.clone();
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(3) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            _ => random.fill(&mut bytes[at..]),
        }
        put(&bytes);
        let done = vault.try_mount(&[]);
        if done.status.success() {
            // Accept only a change that leaves the meaning intact, such as a missing final newline.
            ok(Vault::program().arg("umount").arg(&vault.mount_point), 60);
            let same = serde_json::from_slice::<serde_json::Value>(&bytes).expect("JSON");
            assert_eq!(same, value, "a changed configuration was accepted");
            continue;
        }
        assert!((10..=14).contains(&done.code()), "exit code {}: {}", done.code(), done.stderr);
    }
    put(&original);
    vault.mount().unmount();
}

/// Every variant of `value` with one leaf changed.
fn variants(value: &serde_json::Value, found: &mut dyn FnMut(serde_json::Value)) {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String};
    match value {
        Object(map) => {
            for (key, inner) in map {
                let mut without = map.clone();
                without.remove(key);
                found(Object(without));
                variants(inner, &mut |v| {
                    let mut changed = map.clone();
                    changed.insert(key.clone(), v);
                    found(Object(changed));
                });
            }
        }
        Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                variants(inner, &mut |v| {
                    let mut changed = items.clone();
                    changed[i] = v;
                    found(Array(changed));
                });
            }
        }
        String(text) => {
            let other = [
                ("aes-256-ctr", "aes-128-ctr"),
                ("aes-256-ctr", "aes-128-ctr"),
                ("turboshake128x4", "kmac256"),
            ];
            match other.iter().find(|(from, _)| from == text) {
                Some((_, to)) => found(String(to.to_string())),
                None if text == "encrypted" => found(String("plain".into())),
                None => {
                    let first = if text.starts_with('b') { "c" } else { "b" };
                    found(String(format!("{first}{}", text.get(1..).unwrap_or_default())));
                }
            }
        }
        Number(n) => {
            found((n.as_u64().unwrap_or(0) + 1).into());
        }
        Bool(b) => found(Bool(!b)),
        Null => found(Bool(true)),
    }
}

/// Names in the root as `ls` shows them, with the content of each file.
fn shown(dir: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .flatten()
        .map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read(e.path()).ok()))
        .collect();
    names.sort();
    names
}

#[test]
fn directories_do_not_trade_their_names() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    for (dir, name) in [("one", "in one"), ("two", "in two"), ("three", "in three")] {
        fs::create_dir(mount.join(dir)).expect("directory");
        for name in [name.to_string(), name.repeat(30)] {
            fs::write(mount.join(dir).join(&name), name.as_bytes()).expect("write");
        }
    }
    mount.unmount();
    let dirs: Vec<_> = fs::read_dir(&vault.store)
        .expect("list")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.is_dir())
        .collect();
    assert_eq!(dirs.len(), 3);
    let small = |dir: &Path| -> Vec<std::path::PathBuf> {
        walk(dir).into_iter().filter(|p| fs::metadata(p).is_ok_and(|m| m.len() < 4096)).collect()
    };
    // Every file in a directory that is not an application file: the directory id and the long name.
    let mut names: Vec<_> = small(&dirs[0]).iter().map(|p| p.file_name().expect("name").to_owned()).collect();
    names.retain(|n| dirs[1].join(n).exists());
    assert_eq!(names.len(), 1, "the id has the same name in every directory: {names:?}");
    let [a, b] = [0, 1].map(|i: usize| dirs[i].join(&names[0]));
    let [id_a, id_b] = [&a, &b].map(|p| fs::read(p).expect("id"));
    let honest = |what: &str| {
        let mount = vault.mount();
        for (dir, name) in [("one", "in one"), ("two", "in two"), ("three", "in three")] {
            for (seen, content) in shown(&mount.join(dir)) {
                assert!(seen == name || seen == name.repeat(30), "{what}: {dir} shows {seen}");
                assert!(content.is_none_or(|c| c == seen.as_bytes()), "{what}: {seen} has another's content");
            }
        }
        let complete = ["one", "two", "three"].iter().filter(|d| shown(&mount.join(d)).len() == 2).count();
        assert!(mount.alive());
        mount.unmount();
        complete
    };
    assert_eq!(honest("untouched"), 3);
    fs::write(&a, &id_b).expect("write the store");
    fs::write(&b, &id_a).expect("write the store");
    assert_eq!(honest("ids swapped"), 1, "the third directory works on");
    fs::write(&b, &id_b).expect("write the store");
    for garbage in [vec![], vec![0; id_a.len()], Random::from_seed(3).bytes(id_a.len()), vec![0xff; 100_000]]
    {
        fs::write(&a, &garbage).expect("write the store");
        assert_eq!(honest("an id of garbage"), 2);
    }
    for at in 0..id_a.len() {
        fs::write(&a, &id_a).expect("write the store");
        edit(&a, |bytes| bytes[at] ^= 0x10);
        assert_eq!(honest("a changed id"), 2, "byte {at} of a directory's id");
    }
    fs::remove_file(&a).expect("write the store");
    assert_eq!(honest("no id"), 2);
    fs::write(&a, &id_a).expect("write the store");
    assert_eq!(honest("all put right"), 3);
    // A name moved from another directory is not shown; neither are garbage names and sidecars.
    let moved = fs::read_dir(&dirs[0])
        .expect("list")
        .flatten()
        .map(|e| e.path())
        .find(|p| *p != a && fs::metadata(p).is_ok_and(|m| m.len() > 4096));
    let moved = moved.expect("a stored file");
    fs::rename(&moved, dirs[1].join(moved.file_name().expect("name"))).expect("move");
    for name in ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "x", "warpcrypt.", "....", "\u{1}\u{7f}", &"Q".repeat(255)]
    {
        fs::write(dirs[2].join(name), b"").expect("write the store");
    }
    honest("names moved and made up");
}

#[test]
fn links_and_attributes_are_authentic() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new("aes-192-ctr");
    let mount = vault.mount();
    std::os::unix::fs::symlink("the target", mount.join("link")).expect("link");
    for name in ["a", "b"] {
        fs::write(mount.join(name), b"content").expect("write");
        rustix::fs::setxattr(mount.join(name), "user.x", name.as_bytes(), rustix::fs::XattrFlags::empty())
            .expect("attribute");
    }
    mount.unmount();
    let link = walk(&vault.store).into_iter().find(|p| p.is_symlink()).expect("stored link");
    let target = fs::read_link(&link).expect("target").into_os_string().into_string().expect("text");
    for at in 0..target.len() {
        let mut changed = target.clone().into_bytes();
        changed[at] = if changed[at] == b'B' { b'C' } else { b'B' };
        fs::remove_file(&link).expect("write the store");
        let changed = String::from_utf8(changed).expect("text");
        std::os::unix::fs::symlink(&changed, &link).expect("write the store");
        if at % 8 == 0 {
            let mount = vault.mount_with(&["--read-only"]);
            let error = fs::read_link(mount.join("link")).expect_err("a changed target is read");
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
            mount.unmount();
        }
    }
    swap_attributes(&vault);
    let mount = vault.mount();
    for name in ["a", "b"] {
        let mut value = [0; 100];
        let error = rustix::fs::getxattr(mount.join(name), "user.x", &mut value);
        assert_eq!(error, Err(rustix::io::Errno::IO), "an attribute of another file is read");
        assert_eq!(fs::read(mount.join(name)).expect("read"), b"content");
    }
    mount.unmount();
}

/// Swaps the stored attributes of the two files that have any.
fn swap_attributes(vault: &Vault) {
    let list = |path: &Path| {
        let mut names = vec![0; 4096];
        let n = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
        let names = String::from_utf8(names[..n].to_vec()).expect("text");
        names.split_terminator('\0').filter(|n| n.starts_with("user.")).map(String::from).collect::<Vec<_>>()
    };
    let value = |path: &Path, name: &str| {
        let mut value = vec![0; 4096];
        let n = rustix::fs::getxattr(path, name, &mut value).expect("stored attribute");
        value.truncate(n);
        value
    };
    let files: Vec<_> =
        walk(&vault.store).into_iter().filter(|p| !p.is_symlink() && !list(p).is_empty()).collect();
    assert_eq!(files.len(), 2, "two files have an attribute");
    let names = [0, 1].map(|i: usize| list(&files[i])[0].clone());
    let values = [0, 1].map(|i: usize| value(&files[i], &names[i]));
    for i in [0, 1] {
        rustix::fs::removexattr(&files[i], names[i].as_str()).expect("write the store");
        // Store it under the name that belongs to the target file, in case names depend on the file;
        // otherwise the value would not be found at all.
        rustix::fs::setxattr(&files[i], names[i].as_str(), &values[1 - i], rustix::fs::XattrFlags::empty())
            .expect("write the store");
    }
}

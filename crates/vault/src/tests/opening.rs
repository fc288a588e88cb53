use super::*;
use crate::OpenError;

const CONFIGS: [&str; 2] = ["warpcrypt.json", "warpcrypt.json.copy"];
const SECOND: &[u8] = b"another key file";

fn write_both(path: &Path, text: impl AsRef<[u8]>) {
    CONFIGS.iter().for_each(|name| std::fs::write(path.join(name), &text).unwrap());
}

fn try_open(path: &Path, unlock: &Unlock, read_only: bool) -> std::result::Result<Arc<Vault>, OpenError> {
    Vault::open(path, unlock, OpenOptions { read_only, ..OpenOptions::default() })
}

#[test]
fn one_writer_and_any_number_of_readers() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    assert!(matches!(try_open(f.dir.path(), &unlock(), false), Err(OpenError::Locked)));
    let readers = [open(f.dir.path(), true), open(f.dir.path(), true)];
    for reader in &readers {
        assert_eq!(reader.list(&reader.root()).unwrap().len(), 1);
        assert!(reader.lookup(&reader.root(), OsStr::new("file")).is_ok());
    }
    drop(readers);
    let dir = f.close();
    let next = open(dir.path(), false);
    drop(next);
    open(dir.path(), false);
}

#[test]
fn a_reader_changes_nothing() {
    let f = Fixture::new();
    f.mkdir(&f.root(), "d");
    f.touch(&f.root(), "file").unwrap();
    let reader = open(f.dir.path(), true);
    let root = reader.root();
    let (name, new) = (OsStr::new("file"), OsStr::new("new"));
    let stored = reader.lookup(&root, name).unwrap().0;
    let target = crate::Target::Entry(&root, &stored);
    let refusals = [
        reader.create(&root, new, node(0o644)).map(drop),
        reader.mknod(&root, new, node(0o644), Kind::File, 0).map(drop),
        reader.mkdir(&root, new, node(0o755)).map(drop),
        reader.symlink(&root, new, name, node(0o777)).map(drop),
        reader.link(target, &root, new).map(drop),
        reader.unlink_name(&root, name).map(drop),
        reader.rmdir_name(&root, OsStr::new("d")).map(drop),
        reader.rename_name((&root, name), (&root, new), crate::RenameMode::Replace).map(drop),
        reader.set_attr(target, &Default::default()).map(drop),
        reader.set_xattr(target, OsStr::new("user.x"), b"", false, false),
        reader.remove_xattr(target, OsStr::new("user.x")),
        reader.open_file(&root, &stored, true).map(drop),
    ];
    for (i, refusal) in refusals.into_iter().enumerate() {
        assert!(matches!(refusal, Err(Error::ReadOnly)), "operation {i}");
    }
    reader.sync_dir(&root).unwrap();
    assert_eq!(reader.list(&root).unwrap().len(), 2);
}

#[test]
fn what_is_no_vault() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for path in [dir.path(), &dir.path().join("missing"), &file] {
        assert!(matches!(try_open(path, &unlock(), true), Err(OpenError::NotAVault(_))));
        assert!(matches!(Vault::read_config(path), Err(OpenError::NotAVault(_))));
    }
}

#[test]
fn wrong_secrets_and_changed_configurations_are_told_apart() {
    let dir = Fixture::new().reopen().close();
    let path = dir.path();
    let wrong = Unlock::KeyFile(b"0123456789abcdeX".to_vec().into());
    assert!(matches!(try_open(path, &wrong, false), Err(OpenError::WrongSecret(_))));
    let password = Unlock::Password(b"x".to_vec().into());
    assert!(matches!(try_open(path, &password, false), Err(OpenError::NoSlot(_))));
    let recovery = Unlock::Recovery("not one".to_owned().into());
    assert!(matches!(try_open(path, &recovery, false), Err(OpenError::Config(_))));

    let config = path.join("warpcrypt.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let replace = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        write_both(path, text.replacen(from, to, 1));
    };
    replace("aes-256-ctr", "aes-128-ctr");
    assert!(matches!(try_open(path, &unlock(), false), Err(OpenError::Edited)));
    replace("\"format\": 2", "\"format\": 3");
    assert!(matches!(try_open(path, &unlock(), false), Err(OpenError::UnknownVersion(3))));
    for bad in ["", "{}", "no json", &"[".repeat(1 << 20)] {
        write_both(path, bad);
        assert!(matches!(try_open(path, &unlock(), false), Err(OpenError::Malformed(_))));
    }
    write_both(path, &text);
    // None of the failed attempts kept the lock.
    open(path, false);
}

#[test]
fn a_damaged_root_is_named() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    f.vault.shut_down().unwrap();
    std::fs::write(f.dir.path().join("warpcrypt.dir"), [7; 32]).unwrap();
    assert!(matches!(try_open(f.dir.path(), &unlock(), true), Err(OpenError::DamagedRoot(_))));
}

#[test]
fn a_vault_is_made_only_where_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    let init = |path: &Path| Vault::init(path, settings(NameMode::Encrypted), &slot());
    let new = dir.path().join("new");
    init(&new).unwrap();
    assert_eq!(raw_names(&new), ["warpcrypt.dir", "warpcrypt.json", "warpcrypt.json.copy"]);
    std::fs::remove_file(new.join("warpcrypt.json")).unwrap();
    assert!(matches!(init(&new), Err(OpenError::AlreadyVault(_))));
    assert!(matches!(init(dir.path()), Err(OpenError::NotEmpty(_))));
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(matches!(init(&file), Err(OpenError::NotEmpty(_))));
    assert!(matches!(init(&dir.path().join("a/b")), Err(OpenError::Store { .. })));
    // Leftovers of an earlier attempt that crashed are accepted.
    let tried = dir.path().join("tried");
    std::fs::create_dir(&tried).unwrap();
    std::fs::write(tried.join("warpcrypt.dir"), b"old").unwrap();
    std::fs::write(tried.join("warpcrypt.tmp.1"), b"old").unwrap();
    init(&tried).unwrap();
    open(&tried, false);
}

#[test]
fn plain_names_need_a_store_that_tells_upper_from_lower_case() {
    let dir = tempfile::tempdir().unwrap();
    for (mode, refused) in [(NameMode::Plain, true), (NameMode::Encrypted, false)] {
        let path = dir.path().join(format!("{mode:?}"));
        Vault::init(&path, settings(mode), &slot()).unwrap();
        // Imitate such a store: the id file appears under either spelling.
        std::fs::copy(path.join("warpcrypt.dir"), path.join("WARPCRYPT.DIR")).unwrap();
        let opened = try_open(&path, &unlock(), false);
        assert_eq!(matches!(opened, Err(OpenError::FoldsCase(_))), refused);
        try_open(&path, &unlock(), true).unwrap();
        // A different file of that name does not belong to the vault.
        std::fs::write(path.join("WARPCRYPT.DIR"), b"").unwrap();
        drop(opened);
        try_open(&path, &unlock(), false).unwrap();
    }
}

#[test]
fn a_new_configuration_replaces_the_old_and_keeps_its_permissions() {
    let f = Fixture::new();
    let path = f.dir.path();
    let mut config = Vault::read_config(path).unwrap();
    let master = unlock().with_secret(|secret| config.unlock(&secret)).unwrap().unwrap();
    let second = NewSlot { secret: SlotSecret::KeyFile(b"another key file"), ..slot() };
    config.add(&master, &second).unwrap();
    let file = path.join("warpcrypt.json");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    // The vault is open for writing meanwhile.
    Vault::lock_config(path).unwrap().write(path, &config).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&file.metadata().unwrap()) & 0o777, 0o640);
    for key in [&b"another key file"[..], KEY] {
        try_open(path, &Unlock::KeyFile(key.to_vec().into()), true).unwrap();
    }
    assert_eq!(raw_names(path).len(), 5);
    let [main, copy] = CONFIGS.map(|name| std::fs::read(path.join(name)).unwrap());
    assert_eq!(main, copy);
}

#[test]
fn a_writer_that_was_killed_is_noticed() {
    let f = Fixture::new();
    let path = f.dir.path().to_owned();
    let was_left = |vault: &Vault| vault.lock.as_ref().unwrap().was_left();
    assert!(!was_left(&f.vault));
    let f = f.reopen();
    assert!(!was_left(&f.vault));
    // Drop the vault without shutting it down.
    let Fixture { vault, dir } = f;
    drop(vault);
    let vault = open(&path, false);
    assert!(was_left(&vault));
    vault.shut_down().unwrap();
    drop(dir);
}

#[test]
fn a_lock_file_that_is_gone_or_another_lets_no_second_writer_in() {
    let f = Fixture::new();
    let lock = f.dir.path().join("warpcrypt.lock");
    let second = || try_open(f.dir.path(), &unlock(), false);
    std::fs::remove_file(&lock).unwrap();
    assert!(matches!(second(), Err(OpenError::Locked)), "deleted");
    let other = f.dir.path().join("warpcrypt.tmp.lock");
    std::fs::write(&other, b"").unwrap();
    std::fs::rename(&other, &lock).unwrap();
    assert!(matches!(second(), Err(OpenError::Locked)), "replaced");
    std::fs::remove_file(&lock).unwrap();
    // An fsync puts it back: on a store that cannot lock directories, it is the only lock.
    f.vault.sync_dir(&f.root()).unwrap();
    assert!(std::fs::read(&lock).unwrap().starts_with(b"open "));
    assert!(matches!(second(), Err(OpenError::Locked)), "put back");
    let dir = f.close();
    assert_eq!(std::fs::read(&lock).unwrap(), b"");
    open(dir.path(), false);
}

#[test]
fn a_writer_that_was_killed_without_its_lock_file_is_noticed() {
    let f = Fixture::new();
    f.touch(&f.root(), "file").unwrap();
    let Fixture { vault, dir } = f;
    std::fs::remove_file(dir.path().join("warpcrypt.lock")).unwrap();
    drop(vault);
    let vault = open(dir.path(), false);
    assert!(vault.lock.as_ref().unwrap().was_left());
}

#[test]
fn a_vault_by_two_paths_is_one() {
    let f = Fixture::new();
    let beside = tempfile::tempdir().unwrap();
    let link = beside.path().join("link");
    std::os::unix::fs::symlink(f.dir.path(), &link).unwrap();
    assert!(matches!(try_open(&link, &unlock(), false), Err(OpenError::Locked)));
}

/// A vault whose first key was replaced by `SECOND`, and the text of its previous configuration.
fn with_another_key() -> (TempDir, String) {
    let dir = Fixture::new().close();
    let old = std::fs::read_to_string(dir.path().join(CONFIGS[0])).unwrap();
    let (mut config, first, master) = Vault::unlock_config(dir.path(), &unlock()).unwrap();
    config.add(&master, &NewSlot { secret: SlotSecret::KeyFile(SECOND), ..slot() }).unwrap();
    config.remove(&master, first).unwrap();
    Vault::lock_config(dir.path()).unwrap().write(dir.path(), &config).unwrap();
    (dir, old)
}

fn second() -> Unlock {
    Unlock::KeyFile(SECOND.to_vec().into())
}

#[test]
fn either_copy_of_the_configuration_opens_the_vault_and_the_other_is_mended() {
    let dir = Fixture::new().close();
    let path = dir.path();
    let good = std::fs::read_to_string(path.join(CONFIGS[0])).unwrap();
    let edited = good.replace("aes-256-ctr", "aes-128-ctr");
    let damages = [None, Some(""), Some(&good[..good.len() / 2]), Some(&edited), Some("noise")];
    for name in CONFIGS {
        let file = path.join(name);
        for damage in damages {
            match damage {
                None => std::fs::remove_file(&file).unwrap(),
                Some(text) => std::fs::write(&file, text).unwrap(),
            }
            try_open(path, &unlock(), true).unwrap();
            assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), damage, "a reader writes nothing");
            assert_eq!(Vault::read_config(path).unwrap().slots().len(), 1);
            try_open(path, &unlock(), false).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), good);
        }
    }
}

#[test]
fn a_vault_without_configuration_is_not_to_be_made_anew() {
    let dir = Fixture::new().close();
    std::fs::remove_file(dir.path().join(CONFIGS[0])).unwrap();
    for text in [None, Some("noise")] {
        match text {
            None => std::fs::remove_file(dir.path().join(CONFIGS[1])).unwrap(),
            Some(text) => std::fs::write(dir.path().join(CONFIGS[1]), text).unwrap(),
        }
        let error = try_open(dir.path(), &unlock(), false).err().unwrap();
        assert!(matches!(error, OpenError::NoConfig(_)));
        assert!(!error.to_string().contains("init"), "{error}");
    }
}

#[test]
fn a_copy_of_a_later_version_is_not_written_over() {
    let dir = Fixture::new().close();
    for name in CONFIGS {
        let file = dir.path().join(name);
        let good = std::fs::read(&file).unwrap();
        std::fs::write(&file, "{\"format\": 3}").unwrap();
        assert!(
            matches!(try_open(dir.path(), &unlock(), false), Err(OpenError::UnknownVersion(3))),
            "{name}"
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"{\"format\": 3}");
        std::fs::write(&file, good).unwrap();
    }
}

#[test]
fn a_removed_key_opens_neither_copy() {
    let (dir, old) = with_another_key();
    let path = dir.path();
    assert!(matches!(try_open(path, &unlock(), true), Err(OpenError::WrongSecret(_))));
    let new = std::fs::read_to_string(path.join(CONFIGS[0])).unwrap();
    // As left by a crash between the two writes, or by somebody who restored an old file over one of
    // them.
    for name in CONFIGS {
        std::fs::write(path.join(name), &old).unwrap();
        assert!(matches!(try_open(path, &unlock(), true), Err(OpenError::WrongSecret(_))), "{name}");
        assert!(matches!(Vault::unlock_config(path, &unlock()), Err(OpenError::WrongSecret(_))), "{name}");
        drop(try_open(path, &second(), false).unwrap());
        assert_eq!(std::fs::read_to_string(path.join(name)).unwrap(), new, "{name}");
    }
}

#[test]
fn a_made_up_generation_does_not_count() {
    let (dir, old) = with_another_key();
    let path = dir.path();
    let new = std::fs::read_to_string(path.join(CONFIGS[0])).unwrap();
    for text in [&old, &new] {
        let forged = text.replacen("\"generation\": ", "\"generation\": 9", 1);
        std::fs::write(path.join(CONFIGS[1]), &forged).unwrap();
        assert!(try_open(path, &unlock(), false).is_err());
        drop(try_open(path, &second(), false).unwrap());
        assert_eq!(std::fs::read_to_string(path.join(CONFIGS[1])).unwrap(), new);
    }
}

#[test]
fn nothing_is_mended_while_the_configuration_changes() {
    let dir = Fixture::new().close();
    let copy = dir.path().join(CONFIGS[1]);
    let _lock = Vault::lock_config(dir.path()).unwrap();
    std::fs::remove_file(&copy).unwrap();
    let refused = Vault::open(dir.path(), &unlock(), OpenOptions::default());
    assert!(matches!(refused, Err(OpenError::Changing)));
    assert!(!copy.exists());
}

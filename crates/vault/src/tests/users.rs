use super::*;
use crate::{SetAttr, Target};
use rustix::process::{Gid, Uid, geteuid};

const USER: u32 = 65_534;

/// Runs `f` on a thread that acts as an ordinary user, with a directory that the user owns.
pub(super) fn as_user(f: impl FnOnce(&Path) + Send) {
    let dir = directory();
    as_user_again(|| f(dir.path()));
}

/// An empty directory that the user owns.
pub(super) fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(dir.path(), Some(USER), Some(USER)).unwrap();
    }
    dir
}

/// Runs `f` on a thread that acts as that user.
pub(super) fn as_user_again<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if geteuid().is_root() {
                let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
                rustix::thread::set_thread_groups(&[gid]).unwrap();
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            f()
        });
        thread.join().unwrap()
    })
}

pub(super) fn fixture(path: &Path) -> Arc<Vault> {
    Vault::init(path, settings(NameMode::Encrypted), &slot()).unwrap();
    open(path, false)
}

#[test]
fn an_ordinary_user_s_vault_works() {
    as_user(|path| {
        let vault = fixture(path);
        let root = vault.root();
        let (stored, stat) = vault.mkdir(&root, OsStr::new("d"), node(0o700)).unwrap();
        assert_eq!((stat.uid, stat.mode), (geteuid().as_raw(), 0o700));
        let dir = vault.open_dir(&root, &stored).unwrap();
        vault.mknod(&dir, OsStr::new("f"), node(0o200), Kind::File, 0).unwrap();
        vault.symlink(&dir, OsStr::new(&"l".repeat(255)), OsStr::new("t"), node(0o777)).unwrap();
        vault.set_xattr(Target::Dir(&dir), OsStr::new("user.x"), b"v", false, false).unwrap();
        assert_eq!(vault.get_xattr(Target::Dir(&dir), OsStr::new("user.x")).unwrap(), b"v");
        assert_eq!(vault.list(&dir).unwrap().len(), 2);
        vault.sync_dir(&dir).unwrap();
        let chmod = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
        let file = vault.lookup(&dir, OsStr::new("f")).unwrap().0;
        assert_eq!(vault.set_attr(Target::Entry(&dir, &file), &chmod).unwrap().mode, 0o4755);
        vault.shut_down().unwrap();
    });
}

#[test]
fn directories_without_permissions_are_still_their_owner_s_to_remove_and_move() {
    as_user(|path| {
        let vault = fixture(path);
        let root = vault.root();
        let name = OsStr::new("d");
        for mode in [0o000, 0o200, 0o300, 0o400, 0o500] {
            let (stored, _) = vault.mkdir(&root, name, node(mode)).unwrap();
            vault.open_dir(&root, &stored).unwrap();
            let stat = vault.stat(Target::Entry(&root, &stored)).unwrap();
            assert_eq!(stat.mode, mode, "the bits are as they were");
            let over = OsStr::new("over");
            vault.mkdir(&root, over, node(mode)).unwrap();
            vault.rename_name((&root, name), (&root, over), crate::RenameMode::Replace).unwrap();
            vault.rmdir_name(&root, over).unwrap();
        }
        assert_eq!(vault.list(&root).unwrap().len(), 0);
    });
}

#[test]
fn a_file_is_its_owner_s_whatever_its_bits_once_the_kernel_let_him_in() {
    as_user(|path| {
        let mut vault = fixture(path);
        for mode in [0o000, 0o200, 0o400, 0o444, 0o600] {
            let name = OsString::from(format!("{mode:o}"));
            let (stored, _, file) = vault.create(&vault.root(), &name, node(mode)).unwrap();
            file.file.write(0, b"content").unwrap();
            drop(file);
            vault.shut_down().unwrap();
            drop(vault);
            vault = open(path, false);
            for write in [false, true] {
                let file = vault.open_file(&vault.root(), &stored, write).unwrap();
                let mut out = [0; 7];
                assert_eq!(file.file.read(0, &mut out).unwrap(), 7);
                assert_eq!(&out, b"content");
                if write {
                    file.file.write(0, b"content").unwrap();
                    vault.sync_file(&file).unwrap();
                }
            }
            assert_eq!(vault.stat(Target::Entry(&vault.root(), &stored)).unwrap().mode, mode);
        }
    });
}

#[test]
fn what_a_user_cannot_give_away_stays_without_set_user_id() {
    as_user(|path| {
        let vault = fixture(path);
        let root = vault.root();
        let other = NewNode::plain(0o6755, USER - 1, USER - 1);
        let (_, stat) = vault.mknod(&root, OsStr::new("f"), other, Kind::File, 0).unwrap();
        assert_eq!((stat.uid, stat.mode), (geteuid().as_raw(), 0o755));
        let (_, stat) = vault.mkdir(&root, OsStr::new("d"), other).unwrap();
        assert_eq!(stat.uid, geteuid().as_raw());
    });
}

#[test]
fn root_gives_what_it_makes_to_the_caller() {
    if !geteuid().is_root() {
        println!("SKIPPED: ownership needs root");
        return;
    }
    let f = Fixture::new();
    let root = f.root();
    let user = NewNode::plain(0o6755, 1234, 2345);
    let (_, stat) = f.vault.mknod(&root, OsStr::new("f"), user, Kind::File, 0).unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (1234, 2345, 0o6755));
    let (_, stat) = f.vault.symlink(&root, OsStr::new("l"), OsStr::new("t"), user).unwrap();
    assert_eq!((stat.uid, stat.gid), (1234, 2345));
    let (stored, stat) = f.vault.mkdir(&root, OsStr::new("d"), NewNode { mode: 0o2770, ..user }).unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (1234, 2345, 0o2770));
    // A set-group-id directory passes on its group, and the bit to subdirectories.
    let dir = f.vault.open_dir(&root, &stored).unwrap();
    let another = NewNode::plain(0o755, 7, 8);
    let (_, stat) = f.vault.mkdir(&dir, OsStr::new("d"), another).unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (7, 2345, 0o2755));
    let (file, stat) = f.vault.mknod(&dir, OsStr::new("f"), another, Kind::File, 0).unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (7, 2345, 0o755));
    // A change of owner clears set-user-id.
    let target = Target::Entry(&dir, &file);
    f.vault.set_attr(target, &SetAttr { mode: Some(0o6755), ..SetAttr::default() }).unwrap();
    let stat = f.vault.set_attr(target, &SetAttr { uid: Some(9), ..SetAttr::default() }).unwrap();
    assert_eq!((stat.uid, stat.mode), (9, 0o755));
    let both = SetAttr { uid: Some(10), mode: Some(0o4711), ..SetAttr::default() };
    assert_eq!(f.vault.set_attr(target, &both).unwrap().mode, 0o4711);
}

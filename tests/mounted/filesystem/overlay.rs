//! A mount under an overlay, which containers use for their layers.

use crate::support::{
    command::{Done, ok, run, script},
    disk::Disk,
    mounted::Vault,
    ready, ready_as_root, skip,
};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    process::Command,
};

/// An overlay of a lower directory and an upper layer, unmounted on drop.
struct Overlay<'a>(&'a Path);

impl<'a> Overlay<'a> {
    fn mount(place: &'a Path, lower: &Path, upper: &Path, options: &str) -> Overlay<'a> {
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}{options}",
            lower.display(),
            upper.join("upper").display(),
            upper.join("work").display()
        );
        ok(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers]).arg(place), 20);
        Overlay(place)
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.0), 20);
    }
}

/// Makes an overlay copy up, remove, replace and rename, and so exercises everything that it requires of
/// the upper layer.
const CHANGES: &str = "
    rm gone
    rm -r gone-dir
    echo more >>grown
    echo new >new
    mv moved new-name
    mv old-dir new-dir
    mkdir replaced-dir.new && rm -r replaced-dir && mv replaced-dir.new replaced-dir && touch replaced-dir/only
    mv over replaced
    ln linked linked-again
    ln -s grown link && mv lower-link moved-link && chown -h 1:1 lower-link-2
    chmod 600 linked && touch -d 2001-01-01 linked
    mkfifo pipe && mknod device c 1 3
    rm -r new-dir/deep && mkdir new-dir/deep
    setfattr -n user.kept -v value grown
";

/// The complete state visible to a program: types, modes, owners, sizes, links, content.
const STATE: &str =
    "find . -printf '%p %y %m %U %G %n %l\\n' | sort; find . -type f | sort | xargs md5sum; getfattr -hdR .";

fn lower(place: &Path) {
    let make = "
        for f in gone grown moved replaced over linked; do echo $f >$f; done
        mkdir -p gone-dir/sub old-dir/deep/er replaced-dir/sub
        echo x >gone-dir/sub/f; echo x >old-dir/deep/er/f; echo x >replaced-dir/hidden
        ln -s nowhere lower-link; ln -s nowhere lower-link-2
    ";
    assert!(run(&mut script(place, make), 20).status.success());
}

fn in_dir(place: &Path, commands: &str) -> Done {
    let done = run(&mut script(place, commands), 60);
    assert!(done.status.success(), "{commands}: {}", done.stderr);
    done
}

#[test]
fn an_overlay_has_its_upper_layer_on_a_mount() {
    let programs = ["mount", "setfattr", "getfattr", "md5sum", "mkfifo"];
    if !ready_as_root(&programs) {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.contains("\toverlay") {
        skip("needs overlayfs".into());
        return;
    }
    let place = Disk::new("16m");
    let at = |name: &str| {
        let path = place.0.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    lower(&at("lower"));
    let vault = Vault::in_memory("aes-256-ctr");
    // With rings, an overlay copies up through O_TMPFILE.
    let cases = [
        ("", "off"),
        (",redirect_dir=on,metacopy=on", "off"),
        (",userxattr", "off"),
        ("", "auto"),
        (",redirect_dir=on,metacopy=on", "auto"),
    ];
    for (number, (options, rings)) in cases.into_iter().enumerate() {
        let plain = at(&format!("plain{number}"));
        let mount = vault.mount_with(&["--io-uring", rings]);
        let own = mount.join(format!("own{number}"));
        for layer in [&plain, &own] {
            fs::create_dir_all(layer.join("upper")).unwrap();
            fs::create_dir_all(layer.join("work")).unwrap();
        }
        let (lower, merged) = (at("lower"), at("merged"));
        let seen = |upper: &Path, changes: &str| {
            let overlay = Overlay::mount(&merged, &lower, upper, options);
            in_dir(&merged, changes);
            let seen = in_dir(&merged, STATE).text();
            drop(overlay);
            seen
        };
        let expected = seen(&plain, CHANGES);
        assert!(!expected.contains("gone") && expected.contains("new-dir/deep"), "{expected}");
        assert_eq!(seen(&own, CHANGES), expected, "{options}");
        let mount = mount.remount();
        assert_eq!(seen(&own, "true"), expected, "{options}, mounted again");
        let whiteout = own.join("upper/gone");
        let stat = fs::symlink_metadata(&whiteout).unwrap();
        assert!(stat.file_type().is_char_device() && stat.rdev() == 0);
        mount.unmount();
    }
}

#[test]
fn a_rename_leaves_a_whiteout() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let mount = vault.mount();
    let at = |name: &str| mount.join(name);
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    let is_whiteout = |name: &str| {
        let stat = fs::symlink_metadata(at(name)).unwrap();
        stat.file_type().is_char_device() && (stat.rdev(), stat.mode() & 0o7777) == (0, 0)
    };
    let long = "long".repeat(60);
    for name in ["short", &long] {
        fs::write(at(name), name).unwrap();
        fs::write(at("taken"), "taken").unwrap();
        let refused = rename(name, "taken", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE);
        assert_eq!(refused, Err(Errno::EXIST));
        rename(name, "taken", RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout(name));
        assert_eq!(fs::read_to_string(at("taken")).unwrap(), name);
        fs::create_dir(at("dir")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        rename("dir", "empty", RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout("dir") && at("empty").is_dir());
        rename("taken", "free", RenameFlags::WHITEOUT | RenameFlags::NOREPLACE).unwrap();
        assert!(is_whiteout("taken"));
        fs::remove_dir(at("empty")).unwrap();
        for name in ["dir", "taken", "free", name] {
            fs::remove_file(at(name)).unwrap();
        }
    }
    let both = rename("a", "b", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE);
    assert_eq!(both, Err(Errno::INVAL));
    mount.unmount();
    let left = fs::read_dir(&vault.store).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = left.filter(|name| name.starts_with("warpcrypt.long.")).collect();
    assert!(left.is_empty(), "{left:?}");
}

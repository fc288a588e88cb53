//! `mount-scripts/install.sh` installs everything and removes it again; `build-deb.sh` and `PKGBUILD`
//! package it.

use crate::support::{command::ok, mounted::program_path, skip, source, store::walk, which};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

fn script(name: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg(source("mount-scripts").join(name));
    command.env("WARPCRYPT", program_path());
    command
}

fn install(root: &Path, arguments: &[&str]) {
    ok(script("install.sh").args(arguments).env("DESTDIR", root), 60);
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = walk(root).into_iter().filter(|path| path.is_file()).collect();
    files.sort();
    files
}

#[test]
fn what_is_installed_can_be_removed() {
    let root = tempfile::tempdir().expect("a folder");
    let at = |path: &str| root.path().join(path);
    // The system's own folders and files must remain.
    fs::create_dir_all(at("usr/sbin")).expect("a folder");
    std::os::unix::fs::symlink("usr/sbin", at("sbin")).expect("a link");
    fs::create_dir_all(at("opt/x/share/man/man1")).expect("a folder");
    fs::write(at("opt/x/share/man/man1/warpcryptic.1"), "another's").expect("a file");
    let before = files(root.path());

    install(root.path(), &["--prefix", "/opt/x"]);
    for program in ["opt/x/bin/warpcrypt", "usr/sbin/mount.fuse.warpcrypt"] {
        assert_eq!(
            fs::metadata(at(program)).expect(program).permissions().mode() & 0o777,
            0o755,
            "{program}"
        );
    }
    let share = [
        "man/man1/warpcrypt.1",
        "man/man1/warpcrypt-mount.1",
        "bash-completion/completions/warpcrypt",
        "zsh/site-functions/_warpcrypt",
        "fish/vendor_completions.d/warpcrypt.fish",
        "doc/warpcrypt/examples/fstab",
    ];
    for file in share {
        let path = at("opt/x/share").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(text.contains("warpcrypt"), "{file}: {text}");
    }
    for manager in ["system", "user"] {
        let unit =
            fs::read_to_string(at(&format!("opt/x/lib/systemd/{manager}/warpcrypt@.service"))).expect("unit");
        assert!(unit.contains("ExecStart=/opt/x/bin/warpcrypt mount"), "{unit}");
    }
    let lock = fs::read_to_string(at("opt/x/lib/systemd/system/warpcrypt-lock.service"))
        .expect("the unit for suspend");
    assert!(lock.contains("ExecStart=/opt/x/bin/warpcrypt lock --all --end\n"), "{lock}");
    assert!(at("sbin").is_symlink());

    install(root.path(), &["--uninstall", "--prefix=/opt/x"]);
    assert_eq!(files(root.path()), before);
    assert!(!at("opt/x/share/doc/warpcrypt").exists() && !at("opt/x/share/zsh").exists());
}

#[test]
fn a_package_for_debian_has_everything_and_says_what_it_needs() {
    if which("dpkg-shlibdeps").is_none() && !skip("needs dpkg-dev".into()) {
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    ok(script("build-deb.sh").arg(place.path()), 120);
    let package = files(place.path()).pop().expect("a package");
    let deb = |arguments: &[&str]| ok(Command::new("dpkg-deb").args(arguments).arg(&package), 60);
    let contents = deb(&["--contents"]);
    let paths = [
        "/usr/bin/warpcrypt",
        "/usr/sbin/mount.fuse.warpcrypt",
        "/usr/lib/systemd/system/warpcrypt@.service",
        "/usr/lib/systemd/system/warpcrypt-lock.service",
        "/usr/share/bash-completion/completions/warpcrypt",
        "/usr/share/zsh/vendor-completions/_warpcrypt",
        "/usr/share/fish/vendor_completions.d/warpcrypt.fish",
        "/usr/share/man/man1/warpcrypt-mount.1.gz",
        "/usr/share/man/man8/mount.fuse.warpcrypt.8.gz -> ../man1/warpcrypt-mount.1.gz",
        "/usr/share/doc/warpcrypt/examples/fstab",
        "/usr/share/doc/warpcrypt/changelog.Debian.gz",
        "/usr/share/doc/warpcrypt/copyright",
    ];
    for path in paths {
        assert!(contents.lines().any(|line| line.ends_with(path)), "{path} is not among\n{contents}");
    }
    let control = deb(&["--field"]);
    assert!(control.contains(&format!("Version: {}-1\n", env!("CARGO_PKG_VERSION"))), "{control}");
    assert!(control.contains("Depends: libc6 (>= ") && control.contains("Recommends: fuse3"), "{control}");
}

/// Calls the package function as makepkg would. makepkg itself refuses to run as root.
#[test]
fn a_package_for_arch_has_everything() {
    let place = tempfile::tempdir().expect("a folder");
    let steps = r#"set -eu; startdir=$1 pkgdir=$2; . "$1/PKGBUILD"; build; package; echo "$pkgver""#;
    let mut packaging = Command::new("bash");
    packaging.args(["-c", steps, "bash"]).arg(source("mount-scripts")).arg(place.path());
    let version = ok(packaging.env("WARPCRYPT", program_path()), 60);
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let paths = [
        "usr/bin/warpcrypt",
        "usr/bin/mount.fuse.warpcrypt",
        "usr/bin/umount.fuse.warpcrypt",
        "usr/lib/systemd/system/warpcrypt-lock.service",
        "usr/share/man/man1/warpcrypt-mount.1",
        "usr/share/licenses/warpcrypt/LICENSE-MIT",
    ];
    for path in paths {
        assert!(place.path().join(path).is_file(), "{path} is missing");
    }
    let outside: Vec<PathBuf> =
        files(place.path()).into_iter().filter(|file| !file.starts_with(place.path().join("usr"))).collect();
    assert!(outside.is_empty(), "{outside:?}");
}

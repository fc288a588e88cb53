//! `mount-scripts/install.sh` puts everything in its place and takes it away again.

use crate::support::{command::ok, store::walk};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

fn install(root: &Path, arguments: &[&str]) {
    let script = Path::new(SOURCES).join("mount-scripts/install.sh");
    let mut command = Command::new("sh");
    command.arg(script).args(arguments).env("DESTDIR", root);
    ok(command.env("WARPCRYPT", env!("CARGO_BIN_EXE_warpcrypt")), 60);
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
    // A system's own folders and files stay.
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
    assert!(at("sbin").is_symlink());

    install(root.path(), &["--uninstall", "--prefix=/opt/x"]);
    assert_eq!(files(root.path()), before);
    assert!(!at("opt/x/share/doc/warpcrypt").exists() && !at("opt/x/share/zsh").exists());
}

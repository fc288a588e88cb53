//! Every exit code, with its message.

use crate::{
    cli::{fails, file, in_namespace, mount_command, text, warpcrypt},
    support::{
        command::{Done, Running, ok, run, script, sh},
        mounted::{Vault, program_path},
        ready, ready_as_root,
        store::edit,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const CIPHER: &str = "aes-256-ctr";

fn command(args: &[&str]) -> Command {
    let mut command = Vault::program();
    command.args(args);
    command
}

#[test]
fn usage() {
    fails(&mut command(&[]), 2, "warpcrypt mount VAULT DIR");
    fails(&mut command(&["mount"]), 2, "required");
    fails(&mut command(&["init", "v", "--cipher", "rot13"]), 2, "possible values");
    let vault = Vault::new(CIPHER);
    fails(mount_command(&vault).args(["-o", "nonsense"]), 2, "nonsense");
    let two = ["--password-stdin", "--password-command", "echo x"];
    fails(mount_command(&vault).args(two), 2, "cannot be used with");
    fails(mount_command(&vault).arg("--recovery-key"), 2, "cannot be used with");
    let short = file(vault.place_path(), "short", b"x");
    fails(&mut command(&["info", "--no-such-option"]), 2, "unexpected argument");
    fails(&mut command(&["init", "v", "--key-file", &short]), 2, "16 bytes");
    let inside = vault.store.join("inside");
    fs::create_dir(&inside).expect("mkdir");
    let key = ["--key-file", text(&vault.key)];
    fails(command(&["mount", text(&vault.store), text(&inside)]).args(key), 2, "inside the vault");
    let empty = file(vault.place_path(), "empty", b"\n");
    fails(&mut command(&["init", "v", "--password-file", &empty]), 2, "empty");
    let lines = file(vault.place_path(), "lines", b"a\nb\n");
    fails(&mut command(&["init", "v", "--password-file", &lines]), 2, "more than one line");
}

#[test]
fn another_error() {
    let vault = Vault::new(CIPHER);
    let missing = text(vault.place_path()).to_owned() + "/missing";
    fails(
        &mut command(&["mount", text(&vault.store), text(&vault.mount_point), "--key-file", &missing]),
        1,
        "missing",
    );
    fails(&mut command(&["init", &missing, "--password-command", "exit 3"]), 1, "password command failed");
    assert!(!Path::new(&missing).exists());
}

#[test]
fn wrong_secrets() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let (store, mount) = (text(&vault.store), text(&vault.mount_point));
    let other = file(vault.place_path(), "other", &[1; 32]);
    fails(&mut command(&["mount", store, mount, "--key-file", &other]), 10, "wrong key file");
    // With `auto`, a background thread could print the engine in between.
    let in_foreground = ["--key-file", &other, "--foreground", "--engine", "cpu"];
    fails(command(&["mount", store, mount]).args(in_foreground), 10, "wrong key file");
    fails(&mut command(&["key", "recovery", store, "--key-file", &other]), 10, "wrong key file");

    let word = file(vault.place_path(), "word", b"not it\n");
    let new = ["--new-password-file", &word];
    ok(command(&["key", "add", store, "--key-file", text(&vault.key)]).args(new), 60);
    let bad = file(vault.place_path(), "bad", b"not  it\n");
    fails(&mut command(&["mount", store, mount, "--password-file", &bad]), 10, "wrong password");
    fails(command(&["passwd", store, "--password-file", &bad]).args(new), 10, "wrong password");
}

#[test]
fn no_such_slot() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let (store, mount, key) = (text(&vault.store), text(&vault.mount_point), text(&vault.key));
    let word = file(vault.place_path(), "word", b"password");
    let with = ["--password-file", &word];
    fails(command(&["mount", store, mount]).args(with), 11, "no key slot for a password");
    fails(command(&["mount", store, mount]).args(with), 11, "opens with: key file");
    fails(&mut command(&["mount", store, mount, "--recovery-key"]), 11, "no key slot for a recovery key");
    fails(&mut command(&["key", "remove", store, "99", "--key-file", key]), 11, "no key slot 99");
}

#[test]
fn not_a_vault() {
    let vault = Vault::new(CIPHER);
    let (place, mount) = (text(vault.place_path()), text(&vault.mount_point));
    for args in [&["info", place][..], &["key", "list", place], &["mount", place, mount]] {
        fails(&mut command(args), 12, "is not a vault");
    }
    fails(&mut command(&["info", "/no/such/place"]), 12, "is not a vault");
    fails(&mut command(&["passwd", text(&vault.key)]), 12, "is not a vault");
}

/// Makes the same change to both copies.
fn edit_configs(vault: &Vault, change: impl Fn(&mut Vec<u8>)) {
    for name in ["warpcrypt.json", "warpcrypt.json.copy"] {
        edit(&vault.store.join(name), &change);
    }
}

fn edit_config(vault: &Vault, from: &str, to: &str) {
    edit_configs(vault, |bytes| {
        let text = String::from_utf8(std::mem::take(bytes)).expect("UTF-8");
        assert!(text.contains(from), "{text}");
        *bytes = text.replace(from, to).into_bytes();
    });
}

#[test]
fn unknown_version() {
    let vault = Vault::new(CIPHER);
    for (version, advice) in [(3, "use a newer warpcrypt"), (1, "it was made before")] {
        edit_configs(&vault, |bytes| {
            let mut config: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
            config["format"] = version.into();
            *bytes = config.to_string().into_bytes();
        });
        let says = format!("version {version}, which this program does not know: {advice}");
        fails(&mut command(&["info", text(&vault.store)]), 13, &says);
        fails(&mut mount_command(&vault), 13, &says);
    }
}

#[test]
fn edited_configuration() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    edit_config(&vault, "turboshake128x4", "kmac256");
    fails(&mut mount_command(&vault), 14, "was edited");
    edit_config(&vault, "{", "[");
    fails(&mut mount_command(&vault), 14, "malformed");
    fails(&mut command(&["info", text(&vault.store)]), 14, "malformed");
}

#[test]
fn already_mounted() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let mount = vault.mount();
    let second = vault.place_path().join("second");
    fs::create_dir(&second).expect("mkdir");
    let at = |options: &[&str]| {
        let mut command = Vault::program();
        command.arg("mount").arg(&vault.store).arg(&second).arg("--key-file").arg(&vault.key).args(options);
        command
    };
    let server = mount.pid.as_raw_nonzero();
    let place = format!("mounted for writing on {} by process {server} (warpcrypt)", text(mount.path()));
    fails(&mut at(&[]), 15, &place);
    fails(&mut mount_command(&vault), 23, "is already mounted there");
    fs::write(mount.join("x"), "y").expect("write");
    ok(&mut at(&["--read-only"]), 60);
    assert!(fs::write(second.join("z"), "").is_err());
    ok(command(&["umount"]).arg(&second), 60);
    mount.unmount();
}

#[test]
fn init_target_in_use() {
    let vault = Vault::new(CIPHER);
    let before = fs::read(vault.store.join("warpcrypt.json")).expect("configuration");
    let key = ["--key-file", text(&vault.key)];
    fails(command(&["init", text(&vault.store)]).args(key), 16, "is a vault already");
    fails(command(&["init", text(vault.place_path())]).args(key), 16, "empty");
    fails(command(&["init", text(&vault.key)]).args(key), 16, "empty");
    assert_eq!(fs::read(vault.store.join("warpcrypt.json")).expect("configuration"), before);
}

#[test]
fn mount_points() {
    let vault = Vault::new(CIPHER);
    let place = vault.place_path();
    let at = |mount: &Path| {
        let mut command = Vault::program();
        command.arg("mount").arg(&vault.store).arg(mount).arg("--key-file").arg(&vault.key);
        command
    };
    fails(&mut at(&place.join("missing")), 20, "does not exist");
    fails(&mut at(&place.join("key")), 21, "not a directory");
    fails(&mut at(&place.join("vault")), 22, "not empty");
}

#[test]
fn busy_and_not_mounted() {
    if !ready(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    let point = text(&vault.mount_point);
    fails(&mut command(&["umount", point]), 24, "no vault is mounted there");
    fails(&mut command(&["umount", "/no/such/place"]), 24, "/no/such/place");
    fails(&mut command(&["umount", "/proc"]), 24, "not a vault");
    let mount = vault.mount();
    let sleeper = Running::start(script(&vault.mount_point, "exec sleep 60").env("LC_ALL", "C"));
    thread::sleep(Duration::from_millis(200));
    fails(&mut command(&["umount", point]), 23, &format!("{} (sleep)", sleeper.pid()));
    // The command itself and the shell that started it are also in the way. Only the other process must
    // be listed.
    let sleeper_alone = format!("process {} (sleep).", sleeper.pid());
    fails(command(&["umount", "."]).current_dir(&vault.mount_point), 23, &sleeper_alone);
    drop(sleeper);
    mount.unmount();
}

/// A tmpfs that exists for the duration of a test.
pub struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    pub fn new(at: &'a Path, size: &str) -> Self {
        fs::create_dir_all(at).expect("mkdir");
        ok(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at), 30);
        Tmpfs(at)
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.0), 30);
    }
}

#[test]
fn read_only_store() {
    if !ready_as_root(&[]) {
        return;
    }
    let place = Vault::new(CIPHER);
    let disk = place.place_path().join("disk");
    let tmpfs = Tmpfs::new(&disk, "1m");
    let vault = Vault::at(&disk.join("vault"), CIPHER);
    let key = ["--key-file", text(&vault.key)];
    sh("/", "mount -o remount,ro \"$1\"", &[tmpfs.0], 30);
    fails(&mut mount_command(&vault), 30, "read-only");
    fails(command(&["init", text(&disk.join("other"))]).args(key), 30, "read-only");
    fails(command(&["key", "recovery", text(&vault.store)]).args(key), 30, "read-only");
    let mount = vault.mount_with(&["--read-only"]);
    assert_eq!(fs::read_dir(mount.path()).expect("list").count(), 0);
    mount.unmount();
}

#[test]
fn full_disk() {
    if !ready_as_root(&[]) {
        return;
    }
    let place = Vault::new(CIPHER);
    let disk = place.place_path().join("disk");
    let _tmpfs = Tmpfs::new(&disk, "64k");
    let vault = Vault::at(&disk.join("vault"), CIPHER);
    let key = ["--key-file", text(&vault.key)];
    run(&mut script(&disk, "cat /dev/zero > filler || true"), 30);
    fails(command(&["init", text(&disk.join("other"))]).args(key), 31, "no space left");
    assert!(!disk.join("other").exists(), "a failed init leaves its directory");
    let before = fs::read(vault.store.join("warpcrypt.json")).expect("configuration");
    fails(command(&["key", "recovery", text(&vault.store)]).args(key), 31, "no space left");
    // If nothing is written, nothing remains to be stored.
    let mount = vault.mount();
    assert_eq!(fs::read_dir(mount.path()).expect("list").count(), 0);
    mount.unmount();
    assert_eq!(fs::read(vault.store.join("warpcrypt.json")).expect("configuration"), before);
    // A failed write is reported to the writer, even if the lock file had to be created on the full
    // disk.
    fs::remove_file(vault.store.join("warpcrypt.lock")).expect("remove");
    run(&mut script(&disk, "cat /dev/zero >> filler || true"), 30);
    let mount = vault.mount();
    let wrote = run(&mut script(mount.path(), "/bin/echo content > file"), 30);
    assert!(wrote.code() != 0 && wrote.stderr.contains("No space left"), "{}", wrote.stderr);
    mount.unmount();
}

#[test]
fn no_fuse() {
    if !ready_as_root(&[]) {
        return;
    }
    let vault = Vault::new(CIPHER);
    // A namespace in which /dev has no fuse.
    let hidden = |args: &[&str]| -> Done {
        let text = "mount -t tmpfs tmpfs /dev && exec \"$@\"";
        run(in_namespace(text).arg(program_path()).args(args), 60)
    };
    let (store, mount, key) = (text(&vault.store), text(&vault.mount_point), text(&vault.key));
    for args in [&["mount", store, mount, "--key-file", key][..], &["try"]] {
        let done = hidden(args);
        assert_eq!(done.code(), 32, "{}", done.stderr);
        assert!(done.stderr.contains("/dev/fuse") && done.stderr.contains("modprobe"), "{}", done.stderr);
    }
}

#[test]
fn no_gpu() {
    let vault = Vault::new(CIPHER);
    // No driver is found here, whatever the machine has installed.
    let nowhere = file(vault.place_path(), "libcuda.so.1", b"no library");
    let nowhere = Path::new(&nowhere).parent().expect("a directory");
    for args in [["--engine", "gpu"], ["-o", "engine=gpu"]] {
        let mut command = mount_command(&vault);
        fails(command.args(args).env("LD_LIBRARY_PATH", nowhere), 33, "no GPU engine");
    }
}

#[test]
fn an_interrupted_init_leaves_nothing() {
    let vault = Vault::new(CIPHER);
    let word = file(vault.place_path(), "word", b"password");
    let (new, empty) = (vault.place_path().join("new"), vault.place_path().join("empty"));
    fs::create_dir(&empty).expect("mkdir");
    for (target, stays) in [(&new, false), (&empty, true)] {
        let mut init = command(&["init", text(target), "--password-file", &word]);
        let running = Running::start(&mut init);
        // The directory is created before the key is derived, so key derivation is in progress by now.
        let start = Instant::now();
        while !target.exists() && start.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(100));
        let pid = Pid::from_raw(running.pid() as i32).expect("a pid");
        kill_process(pid, Signal::INT).expect("kill");
        let done = running.finish(Duration::from_secs(60));
        assert_eq!(done.code(), 130, "{}", done.stderr);
        assert!(done.stderr.contains("interrupted"), "{}", done.stderr);
        assert_eq!(target.exists(), stays);
        assert!(!stays || fs::read_dir(target).expect("list").next().is_none());
    }
}

#[test]
fn a_user_without_the_helper() {
    crate::cli::users::without_the_helper();
}

#[test]
fn success() {
    for args in [&["--help"][..], &["--version"], &["help", "mount"], &["key", "--help"]] {
        assert_eq!(warpcrypt(args).code(), 0);
    }
}

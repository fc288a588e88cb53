//! Third-party suites on a mount: pjdfstest (POSIX rules for names, modes, owners and times) and fsx
//! (random operations on a file). `cargo install --locked pjdfstest@0.2.2 fsx@0.3.2` installs them.

use crate::support::{
    CACHES,
    command::{Done, Running, run},
    mounted::Vault,
    random::Random,
    ready, ready_as_root,
};
use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration,
};

/// Tests of pjdfstest that are skipped on a mount: FUSE has no way to query the link limit.
const WITHOUT_MEANING: [&str; 1] = ["link::link_count_max"];

/// Tests of pjdfstest that act as another user, who has no access to a mount without `--allow-other`.
const OF_OTHER_USERS: [&str; 22] = [
    "chmod::clear_isgid_bit",
    "ftruncate::affected_create_flags_only",
    "mkdir::uid_gid_eq_euid_egid",
    "mkfifo::uid_gid_eq_euid_egid",
    "mknod::uid_gid_eq_euid_egid",
    "open::uid_gid_eq_euid_egid",
    "posix_fallocate::affected_only_create_flags",
    "rename::unchanged_ctime_failed::block",
    "rename::unchanged_ctime_failed::char",
    "rename::unchanged_ctime_failed::dir",
    "rename::unchanged_ctime_failed::fifo",
    "rename::unchanged_ctime_failed::regular",
    "rename::unchanged_ctime_failed::socket",
    "rename::unchanged_ctime_failed::symlink",
    "rename::write_access_required_subdir",
    "unlink::unchanged_ctime_failed::block",
    "unlink::unchanged_ctime_failed::char",
    "unlink::unchanged_ctime_failed::fifo",
    "unlink::unchanged_ctime_failed::regular",
    "unlink::unchanged_ctime_failed::socket",
    "utimensat::nobody",
    "utimensat::write_perm",
];

/// Runs pjdfstest in a vault's mount.
fn pjdfstest(vault: &Vault) -> Done {
    let config = vault.place_path().join("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n
        [settings]\nnaptime = 0.01\n
        [dummy_auth]\nentries = [[\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]\n";
    fs::write(&config, text).expect("configuration");
    let mut command = Command::new("pjdfstest");
    command.arg("-c").arg(&config).arg("-s").arg(vault.place_path()).arg("-p").arg(&vault.mount_point);
    run(command.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0"), 300)
}

/// Names of the tests that ended with `word`.
fn ended(output: &str, word: &str) -> BTreeSet<String> {
    let of_word = output.lines().filter_map(|line| line.strip_suffix(word));
    of_word.map(|name| name.trim().to_owned()).filter(|name| name.contains("::")).collect()
}

/// The output lines of pjdfstest for tests that did not pass.
fn complaints(output: &str) -> String {
    output.lines().filter(|line| !line.ends_with(" ok")).map(|line| format!("{line}\n")).collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|n| n.to_string()).collect()
}

#[test]
fn pjdfstest_finds_a_posix_filesystem() {
    if !ready_as_root(&["pjdfstest"]) {
        return;
    }
    for cache in CACHES {
        let vault = Vault::new("aes-256-ctr");
        let mount = vault.mount_with(&["--allow-other", "--cache", cache]);
        // Only the owner may enter a vault's root by default.
        fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        let done = pjdfstest(&vault);
        let said = done.text();
        assert_eq!(ended(&said, "FAILED"), names(&[]), "--cache {cache}: {}", complaints(&said));
        // Tests that need a remount are skipped, too.
        let skipped: BTreeSet<_> =
            ended(&said, "skipped").into_iter().filter(|name| !name.contains("erofs")).collect();
        assert_eq!(skipped, names(&WITHOUT_MEANING), "--cache {cache}");
        assert!(
            done.status.success() && ended(&said, "ok").len() >= 380,
            "--cache {cache}: {}",
            complaints(&said)
        );
        mount.unmount();
    }
}

#[test]
fn pjdfstest_finds_others_kept_out_of_a_private_mount() {
    if !ready_as_root(&["pjdfstest"]) {
        return;
    }
    let vault = Vault::new("aes-256-ctr");
    let mount = vault.mount();
    let said = pjdfstest(&vault).text();
    assert_eq!(ended(&said, "FAILED"), names(&OF_OTHER_USERS), "{}", complaints(&said));
    assert!(ended(&said, "ok").len() >= 358, "{}", complaints(&said));
    mount.unmount();
}

/// Starts fsx on a file of at most `size` bytes. Artifacts of a failure go to `place`.
fn fsx(file: &Path, place: &Path, size: u64, steps: u64, sync_maps: bool, seed: u64) -> Running {
    let name = file.file_name().expect("a name").to_string_lossy();
    let config = place.join(format!("{name}.toml"));
    // With a length of zero, posix_fallocate fails as POSIX requires, which fsx does not expect.
    let text = format!(
        "flen = {size}\nnomsyncafterwrite = {}\n[opsize]\nmin = 1\nmax = {}\n
        [weights]\nclose_open = 2\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\ninvalidate = 1\n
        truncate = 4\nfsync = 1\nfdatasync = 1\nposix_fallocate = 2\npunch_hole = 3\nsendfile = 4\n
        posix_fadvise = 2\ncopy_file_range = 4\n",
        !sync_maps,
        (size / 4).min(128 << 10)
    );
    fs::write(&config, text).expect("configuration");
    let mut command = Command::new("fsx");
    command.arg("-f").arg(config).arg("-P").arg(place).args(["-S", &seed.to_string()]);
    Running::start(command.args(["-N", &steps.to_string()]).arg(file))
}

#[test]
fn fsx_reads_what_it_wrote() {
    if !ready(&["fsx"]) {
        return;
    }
    let mut random = Random::new("fsx, by others");
    for cache in CACHES {
        let vault = Vault::in_memory("aes-256-ctr");
        let mount = vault.mount_with(&["--cache", cache]);
        for (size, steps) in [(20_000, 4_000), (256 << 10, 4_000), (4 << 20, 1_500), (48 << 20, 200)] {
            // Run two at once, on two files.
            let both = [true, false].map(|sync_maps| {
                let file = mount.join(format!("{size}-{sync_maps}"));
                fsx(&file, vault.place_path(), size, steps, sync_maps, random.next())
            });
            for running in both {
                let done = running.finish(Duration::from_secs(200));
                let end: Vec<_> = done.stderr.lines().rev().take(40).collect();
                assert!(done.status.success(), "--cache {cache}, {size} bytes: {}\n{end:#?}", done.text());
            }
        }
        mount.unmount();
    }
}

//! `hash` with a GPU, over the fake driver: the digests equal the CPU's, whatever the driver does.

use crate::{
    fake,
    support::{command::run, mounted::Vault, random::Random},
};
use std::{fs, path::Path};

/// Files for every code path: empty, short, around the size of a part, longer than a slot.
fn tree() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("directory");
    let mut random = Random::new("hashing");
    let part = 512 << 10;
    for (number, len) in
        [0, 1, 511, 4096, 70_001, part, part + 1, 3 * part, 9_500_000].into_iter().enumerate()
    {
        fs::write(place.path().join(format!("{number}")), random.bytes(len)).expect("file");
    }
    fs::create_dir(place.path().join("many")).expect("folder");
    for number in 0..150 {
        let bytes = random.bytes(number * 41);
        fs::write(place.path().join(format!("many/{number}")), bytes).expect("file");
    }
    place
}

/// Standard output of `hash`, and its messages. `order` is an order for the driver (fake_libcuda.cc).
fn lines(root: &Path, driver: Option<(&Path, &str)>, args: &[&str]) -> (String, String) {
    let orders = tempfile::NamedTempFile::new().expect("file");
    let mut command = Vault::program();
    command.args(["hash", "-l"]).args(args).arg(".").current_dir(root);
    if let Some((library, order)) = driver {
        fs::write(orders.path(), order).expect("order");
        command.env("LD_LIBRARY_PATH", library).env("FAKE_CUDA_FAULT", orders.path());
    }
    let done = run(&mut command, 200);
    assert_eq!(done.code(), 0, "{args:?}, {driver:?}: {}", done.stderr);
    let digests =
        done.text().lines().filter(|line| !line.starts_with("##")).map(|line| format!("{line}\n")).collect();
    (digests, done.stderr)
}

#[test]
fn a_gpu_gives_the_same_digests() {
    let Some(library) = fake::driver() else { return };
    let place = tree();
    for functions in ["md6-256", "md6-128,k12", "md6-511"] {
        let (want, _) = lines(place.path(), None, &["-j", "2", "-c", functions, "--engine", "cpu"]);
        assert_eq!(want.lines().count(), 2 + 9 + 150, "{want}");
        let (found, said) =
            lines(place.path(), Some((library, "")), &["-j", "2", "-c", functions, "--engine", "gpu"]);
        assert!(found == want && said.is_empty(), "{functions}: {said}");
    }
}

#[test]
fn a_gpu_that_fails_costs_no_digest() {
    let Some(library) = fake::driver() else { return };
    let place = tree();
    let (want, _) = lines(place.path(), None, &["-j", "2", "-c", "md6-160", "--engine", "cpu"]);
    // The device test takes six launches.
    for order in [
        "1 cuLaunchKernel:13 error",
        "1 cuLaunchKernel:14 lost",
        "1 cuLaunchKernel:7 wrong",
        "1 cuLaunchKernel:12 hang",
        "1 cuMemcpyHtoDAsync_v2:5 error",
        "1 cuMemcpyDtoHAsync_v2:3 lost",
        "1 cuMemHostRegister_v2:5 memory",
        "1 cuMemAlloc_v2:9 memory",
    ] {
        let (found, said) =
            lines(place.path(), Some((library, order)), &["-j", "2", "-c", "md6-160", "--engine", "gpu"]);
        assert!(found == want, "{order}: other digests");
        assert!(said.contains("the CPU hashes in its place"), "{order}: {said}");
    }
}

/// Enough data for a device to be opened. It joins in at some point, or is still being opened at the
/// end.
#[test]
fn a_gpu_that_joins_in_changes_no_digest() {
    let Some(library) = fake::driver() else { return };
    let place = tempfile::tempdir().expect("directory");
    for (name, len) in [("long", 270 << 20), ("longer", 280 << 20)] {
        let file = fs::File::create(place.path().join(name)).expect("file");
        file.set_len(len + 77).expect("a hole");
    }
    let common = ["-j", "1", "-c", "md6-64"];
    let (want, _) = lines(place.path(), None, &[&common[..], &["--engine", "cpu"]].concat());
    let (found, said) = lines(place.path(), Some((library, "")), &common);
    assert!(found == want && said.is_empty(), "{said}");
}

#[test]
fn a_gpu_that_is_not_there_is_said() {
    let Some(library) = fake::driver() else { return };
    let place = tree();
    for (order, code, args) in [
        ("1 cuInit error", 33, ["-c", "md6-256"]),
        ("1 cuLaunchKernel:4 wrong", 33, ["-c", "md6-256"]),
        ("", 2, ["-c", "sha3-256"]),
    ] {
        let orders = tempfile::NamedTempFile::new().expect("file");
        fs::write(orders.path(), order).expect("order");
        let mut command = Vault::program();
        command.args(["hash", "--engine", "gpu"]).args(args).arg(place.path());
        command.env("LD_LIBRARY_PATH", library).env("FAKE_CUDA_FAULT", orders.path());
        let done = run(&mut command, 100);
        assert_eq!(done.code(), code, "{order}: {}", done.stderr);
    }
}

//! `warpcrypt-bench keccak`, `aes`, `kuznyechik` and `md6`: the CPU's columns everywhere, the kernels' where there is a GPU.
//! Each kernel is compared with the CPU by the command itself before it is measured.

mod support;

use std::fs;
use support::{bench, command::run, text};

fn experiment(name: &str, tables: &[&str], gpu_tables: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let done = run(&mut bench([name, "--quick", "--json", "--output", text(folder.path())]), 300);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let report: serde_json::Value = serde_json::from_str(&done.text()).expect("JSON");
    let has_gpu = !report["about"]["GPU"].as_str().expect("a device or none").starts_with("none");
    let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
    assert!(has_gpu || !required, "REQUIRE_GPU=1, but {}", report["about"]["GPU"]);
    if !has_gpu {
        println!("SKIPPED: the kernels of bench {name}: {}", report["about"]["GPU"]);
    }
    for table in tables.iter().chain(if has_gpu { gpu_tables } else { &[] }) {
        let csv = fs::read_to_string(folder.path().join(format!("{name}-{table}.csv"))).expect("a table");
        assert!(csv.lines().count() > 3 && csv.contains("CPU, all cores") | has_gpu, "{table}: {csv}");
    }
    let page = fs::read_to_string(folder.path().join(format!("{name}.html"))).expect("a page");
    assert!(page.contains("<svg") && page.contains("paper"), "a plot, and the paper's figures");
}

#[test]
fn keccak() {
    experiment("keccak", &["states", "rates"], &["transfers"]);
}

#[test]
fn aes() {
    experiment("aes", &["size-128", "size-256"], &["tables", "keys", "share", "threads"]);
}

#[test]
fn kuznyechik() {
    experiment("kuznyechik", &["encryption", "decryption"], &["threads", "order", "transfers"]);
}

#[test]
fn md6() {
    experiment("md6", &["size", "rounds", "folders"], &["nodes", "node-size"]);
}

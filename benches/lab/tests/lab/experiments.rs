//! `warpcrypt-bench keccak`, `aes`, `kuznyechik`, `md6`, `files` and `transfers`: the CPU's columns
//! everywhere, the kernels' columns if there is a GPU. The command itself compares each kernel with the
//! CPU before measuring it.

use crate::support::{bench, command::run, text};
use std::fs;

fn experiment(name: &str, tables: &[&str], gpu_tables: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let place = tempfile::tempdir().expect("a folder");
    let mut arguments = vec![name, "--quick", "--json", "--output", text(folder.path())];
    arguments.extend((name == "files").then_some(text(place.path())));
    let done = run(&mut bench(arguments), 300);
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
        assert!(csv.lines().count() >= 3, "{table}: {csv}");
        assert!(
            csv.contains("CPU, all cores") | has_gpu | ["grid", "paper"].contains(table),
            "{table}: {csv}"
        );
    }
    assert_eq!(fs::read_dir(place.path()).expect("the place").count(), 0, "files are removed");
    let page = fs::read_to_string(folder.path().join(format!("{name}.html"))).expect("a page");
    assert!(
        page.contains("<svg") | (name == "transfers") && page.contains("paper"),
        "a plot, and the paper's figures"
    );
    report
}

#[test]
fn keccak() {
    let report = experiment("keccak", &["states", "rates", "k12"], &["transfers", "saved", "speed-up"]);
    let device = report["about"]["OpenCL"].as_str().expect("a device or none");
    let has_rows = report["sections"][0].to_string().contains("OpenCL, III");
    assert_eq!(has_rows, !device.starts_with("none"), "{device}");
}

#[test]
fn aes() {
    experiment(
        "aes",
        &["size-128", "size-256"],
        &["tables", "keys", "share", "text", "threads", "speed-up", "publication", "calls"],
    );
}

#[test]
fn kuznyechik() {
    experiment(
        "kuznyechik",
        &["encryption", "decryption"],
        &["threads", "order", "transfers", "encryption-speed-up", "decryption-speed-up"],
    );
}

#[test]
fn md6() {
    let gpu = ["nodes", "node-size", "speed-up", "shares", "partitions", "archives"];
    experiment("md6", &["size", "rounds", "folders", "grid"], &gpu);
}

#[test]
fn files() {
    experiment("files", &["size"], &[]);
}

#[test]
fn transfers() {
    experiment("transfers", &["paper"], &["rates"]);
}

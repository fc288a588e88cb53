//! `warpcrypt-bench crypto`: its report is complete. No test asserts speeds.

use crate::support::{
    bench,
    command::{ok, run},
};
use crypto::cipher::Cipher;
use serde_json::Value;

#[test]
fn crypto_measures_every_cipher_beside_a_crate() {
    let text = ok(&mut bench(["crypto", "--seconds", "0.001", "--json"]), 120);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let tables = |name: &str| -> Vec<Value> {
        let sections = report["sections"].as_array().expect("sections").iter();
        let tables = sections.flat_map(|section| section["tables"].as_array().expect("tables"));
        let found = tables.filter(|table| table["name"] == name);
        found.flat_map(|table| table["rows"].as_array().expect("rows").clone()).collect()
    };
    for name in Cipher::ALL.map(Cipher::name).into_iter().chain(["turboshake128x4"]) {
        let rows = tables(name);
        assert!(rows.len() >= 2, "{name}: {rows:?}");
        assert_eq!(rows[0]["against it [times]"], 1.0, "{name}");
        for row in rows {
            assert!(row["rate [GB/s]"].as_f64() > Some(0.0), "{name}: {row}");
            assert!(row["all cores [GB/s]"].as_f64() > Some(0.0), "{name}: {row}");
        }
    }
    assert!(!tables("aes-256-ctr-chunks").is_empty() && !tables("engines").is_empty());
}

#[test]
fn a_time_that_is_none_is_refused() {
    for seconds in ["-1", "nan", "inf"] {
        let argument = format!("--seconds={seconds}");
        assert_eq!(run(&mut bench(["crypto", &argument]), 60).code(), 2, "{seconds}");
    }
}

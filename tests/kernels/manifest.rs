//! The committed fatbins match the committed sources. `kernels/build.sh --check` proves it with the
//! compiler; this test detects, without a compiler, that only one of the two was changed.

use super::runner::root;
use sha3::{Digest, Sha3_256};
use std::{collections::BTreeMap, fs, path::Path};

fn digest(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Sha3_256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_manifest_names_these_files() {
    let kernels = root().join("kernels");
    let text = fs::read_to_string(kernels.join("manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let listed: BTreeMap<String, String> =
        serde_json::from_value(manifest["sources"].clone()).expect("names and digests");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&kernels).expect("the folder of the kernels") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".cu") || name.ends_with(".cuh") || name == "requirements.txt" {
            found.insert(name, digest(&path));
        }
    }
    let advice = "run kernels/build.sh";
    assert_eq!(listed, found, "{advice}");
    let fatbins: BTreeMap<String, String> =
        serde_json::from_value(manifest["fatbins"].clone()).expect("names and digests");
    for source in found.keys().filter(|name| name.ends_with(".cu")) {
        let name = source.replace(".cu", ".fatbin");
        assert_eq!(fatbins.get(&name), Some(&digest(&kernels.join(&name))), "{name}: {advice}");
    }
}

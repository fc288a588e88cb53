//! The committed fatbins match the committed sources; see `tests/kernels/manifest.rs` for those of the
//! program.

use sha3::{Digest, Sha3_256};
use std::{collections::BTreeMap, fs, path::Path};

fn digest(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Sha3_256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_manifest_names_these_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let text = fs::read_to_string(folder.join("manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let listed = |what: &str| -> BTreeMap<String, String> {
        serde_json::from_value(manifest[what].clone()).expect("names and digests")
    };
    let (sources, fatbins) = (listed("sources"), listed("fatbins"));
    for (name, expected) in sources.iter().chain(&fatbins) {
        assert_eq!(*expected, digest(&folder.join(name)), "{name}: run kernels/build.sh");
    }
    for entry in fs::read_dir(&folder).expect("the folder of the experiments") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        // OpenCL is compiled at run time.
        let is_built = !name.ends_with(".cl") && name != "manifest.json";
        let known = !is_built || sources.contains_key(&name) || fatbins.contains_key(&name);
        assert!(known, "{name} is not in the manifest: run kernels/build.sh");
    }
}

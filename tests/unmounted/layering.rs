//! The rules of the module tree: which layer may use which, which modules may use one another, where
//! `unsafe` is allowed, and which calls may panic. The laboratory has no layers, but the last two rules
//! apply to it too.
//!
//! A layer is a crate in `crates`, whose manifest says what it may use.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The layers, and those that each of them may use.
const LAYERS: [(&str, &[&str]); 10] = [
    ("content", &["crypto", "engine", "format", "metrics", "store"]),
    ("crypto", &[]),
    ("engine", &["crypto", "metrics"]),
    ("format", &["crypto"]),
    ("fuse", &["content", "crypto", "format", "metrics", "reverse", "vault"]),
    ("hashing", &["content", "crypto", "engine", "vault"]),
    ("metrics", &[]),
    ("reverse", &["crypto", "engine", "format"]),
    ("store", &["metrics"]),
    ("vault", &["content", "crypto", "engine", "format", "store"]),
];

/// Directory of the layers, each of which is a crate.
const CRATES: &str = "crates";
/// Source directories of the program, without these crates, and of the laboratory.
const PROGRAM: &str = "src";
const LABORATORY: &str = "benches/lab/src";

/// Modules in one folder that use one another in a circle, and the justification. Submodules count as
/// part of their parent module.
const CIRCLES: [(&str, &str); 4] = [
    ("crypto/hash/md6: compress compress_avx2 compress_avx512", "a dispatcher, and vectors of its own types"),
    ("crypto/hash: lanes lanes_avx2 lanes_avx512 lanes_vl", "a dispatcher, and vectors of its own types"),
    ("crypto: keccak keccak_bmi keccak_vl", "a dispatcher, and variants of its own types"),
    ("crypto: kuznyechik kuznyechik_avx2 kuznyechik_planes", "a dispatcher, and variants of its own types"),
];

/// Files that may contain `unsafe`, and why it is unavoidable there.
const MAY_BE_UNSAFE: [(&str, &str); 33] = [
    ("cli/descriptors.rs", "close_range has no safe binding"),
    ("crypto/aes.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/allocator.rs", "an allocator has no safe form"),
    ("crypto/hash/lanes.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/hash/lanes_avx2.rs", "vectors are loaded and stored by address"),
    ("crypto/hash/lanes_avx512.rs", "vectors are loaded and stored by address"),
    ("crypto/hash/md6/compress.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/hash/md6/tests.rs", "tests a function that needs processor features, after detecting them"),
    ("crypto/hash/tests.rs", "tests functions that need processor features, after detecting them"),
    ("crypto/conformance.rs", "tests the functions that need processor features, after detecting them"),
    ("crypto/keccak.rs", "calls a function that needs processor features, after detecting them"),
    ("crypto/kuznyechik.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/kuznyechik_avx2.rs", "operators of a vector need processor features"),
    ("crypto/mlock.rs", "mlock takes an address: the system's call has no safe form"),
    ("crypto/tags.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/traces.rs", "vector registers have no other way to be cleared"),
    ("crypto/variants.rs", "calls functions that need processor features, after detecting them"),
    ("crypto/x86.rs", "vectors are loaded and stored by address"),
    ("engine/buffer/shared.rs", "memory that another process maps as well"),
    ("engine/gpu/driver/memory.rs", "memory that a C library locks, and that the device writes"),
    ("engine/gpu/driver/mod.rs", "the driver of the GPU is a C library"),
    ("engine/gpu/driver/stream.rs", "the driver of the GPU is a C library"),
    ("engine/gpu/kernels.rs", "launches a kernel whose contract only its author knows"),
    ("engine/gpu/pipeline.rs", "the device reads and writes a batch while its caller waits"),
    ("engine/gpu/slot.rs", "tells another process which memory to read and write"),
    ("engine/gpu/worker/gpu_queue.rs", "tells the device which memory to read and write"),
    ("engine/pool.rs", "threads that outlive a batch borrow it while its caller waits"),
    ("fuse/confinement/calls.rs", "seccomp has no safe binding that leaves speculation on"),
    ("fuse/ring/entry.rs", "memory that the kernel writes as well"),
    ("fuse/ring/thread.rs", "the kernel is given commands with addresses in them"),
    ("hashing/gpu/slot.rs", "tells the device which memory to read and write"),
    ("store/dir/generation.rs", "name_to_handle_at has no safe binding"),
    ("vault/process.rs", "neither the allocator's settings nor signals to threads have a safe binding"),
];

/// The same list for the laboratory.
const MAY_BE_UNSAFE_IN_LABORATORY: [(&str, &str); 2] = [
    ("device.rs", "the driver of the GPU is a C library"),
    (
        "keccak/opencl/device.rs",
        "OpenCL is a C library, and launches kernels whose contract only their author knows",
    ),
];

/// A source file.
struct Source {
    /// Relative to the source directory. For a crate, its name comes first.
    path: PathBuf,
    /// The name of its crate; `None` for the program and the laboratory.
    layer: Option<String>,
    text: String,
    /// `text` without comments and literals.
    code: String,
}

impl Source {
    fn new(path: PathBuf, layer: Option<String>, text: String) -> Self {
        let code = code_only(&text);
        Source { path, layer, text, code }
    }

    /// The path of the file's modules: `vault/file/state.rs` is in `vault`, `file`, `state`.
    fn module(&self) -> Vec<String> {
        let stem = self.path.with_extension("");
        let mut parts: Vec<String> = stem.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        if parts.last().is_some_and(|p| p == "mod" || p == "lib" || p == "main") {
            parts.pop();
        }
        parts
    }
}

/// Names of the layers that are crates.
fn crates() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CRATES);
    let entries = fs::read_dir(folder).expect("crates are readable");
    let names = entries.map(|entry| entry.expect("crates are readable").file_name());
    names.map(|name| name.into_string().expect("names are UTF-8")).collect()
}

/// All source files of the program and its crates.
fn product() -> Vec<Source> {
    let mut all = sources(PROGRAM);
    for layer in crates() {
        let sources = sources(&format!("{CRATES}/{layer}/src"));
        assert!(!sources.is_empty(), "{layer}");
        all.extend(sources.into_iter().map(|source| Source {
            path: Path::new(&layer).join(source.path),
            layer: Some(layer.clone()),
            ..source
        }));
    }
    all
}

/// All source files in `folder`.
fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("sources are readable") {
            let path = entry.expect("sources are readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                let path = path.strip_prefix(&root).expect("a path below the root").to_owned();
                found.push(Source::new(path, None, text));
            }
        }
    }
    found
}

/// Removes comments, and the content of string and character literals.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (skip, keep): (usize, &[u8]) = if rest.starts_with(b"//") {
            (until(rest, b"\n"), b"")
        } else if rest.starts_with(b"/*") {
            (2 + until(&rest[2..], b"*/") + 2, b"")
        } else if let Some(hashes) = raw_string(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            (open + until(&rest[open..], end.as_bytes()) + end.len(), b"\"\"")
        } else if rest[0] == b'"' {
            (quoted(rest), b"\"\"")
        } else if rest[0] == b'\'' && (rest.get(2) == Some(&b'\'') || rest.get(1) == Some(&b'\\')) {
            (3 + until(&rest[2..], b"'") - 1, b"' '")
        } else {
            (1, &rest[..1])
        };
        code.extend_from_slice(keep);
        at += skip.max(1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn until(bytes: &[u8], end: &[u8]) -> usize {
    bytes.windows(end.len()).position(|w| w == end).unwrap_or(bytes.len())
}

/// The number of hashes, if a raw string starts here.
fn raw_string(bytes: &[u8]) -> Option<usize> {
    let after = bytes.strip_prefix(b"r")?;
    let hashes = after.iter().take_while(|&&b| b == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

/// Length of the string literal that starts here, including the quotes.
fn quoted(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Code in one line, without spaces inside paths.
fn in_one_line(code: &str) -> String {
    code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" ::", "::").replace(":: ", "::")
}

/// Whether a path goes on to the left of its segment after this character.
fn is_part_of_path(c: char) -> bool {
    c.is_alphanumeric() || "_$:".contains(c)
}

/// The section of a manifest with the dependencies of the product.
fn dependencies(manifest: &str) -> &str {
    let section = manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
    section.split("\n[").next().unwrap_or_default()
}

/// The layers in a section of a manifest.
fn layers_in(section: &str, crates: &[String]) -> Vec<String> {
    let names = section.lines().filter_map(|line| line.split(['.', ' ']).next());
    names.filter(|name| crates.iter().any(|layer| layer == name)).map(str::to_owned).collect()
}

/// The compiler holds a layer to its manifest, and this test the manifest to the list.
#[test]
fn every_layer_uses_only_what_is_below_it() {
    let crates = crates();
    let manifest = "store = 1\n[dependencies]\ncrypto.workspace = true\nlog = \"1\"\n\n[x]\nstore = 1";
    assert_eq!(layers_in(dependencies(manifest), &crates), ["crypto"]);
    let uses = |layer: &String| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CRATES).join(layer).join("Cargo.toml");
        let manifest = fs::read_to_string(path).expect("a manifest");
        layers_in(dependencies(&manifest), &crates)
    };
    let found: BTreeMap<&str, Vec<String>> =
        crates.iter().map(|layer| (layer.as_str(), uses(layer))).collect();
    let listed = LAYERS.map(|(layer, below)| (layer, below.iter().map(|name| name.to_string()).collect()));
    assert_eq!(found, BTreeMap::from(listed), "dependencies (left) and the list (right)");
}

#[test]
fn unsafe_stands_only_where_the_list_allows_it() {
    let lists = [(product(), &MAY_BE_UNSAFE[..]), (sources(LABORATORY), &MAY_BE_UNSAFE_IN_LABORATORY)];
    for (sources, list) in lists {
        assert!(sources.len() > 20, "only {} sources were found", sources.len());
        let found: BTreeSet<String> = sources
            .iter()
            .filter(|s| has_word(&s.code, "unsafe"))
            .map(|s| s.path.to_string_lossy().into_owned())
            .collect();
        let listed: BTreeSet<String> = list.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(found, listed, "files with `unsafe` (left) and the list with its reasons (right)");
    }
}

/// Calls that panic if an assumption does not hold.
const MAY_PANIC: [&str; 6] =
    [".unwrap()", ".expect(", "panic!(", "unreachable!(", "todo!(", "unimplemented!("];

/// Lines outside tests that may panic without explaining on the same line why they never do.
fn bare_panics(text: &str) -> Vec<&str> {
    let program = text.split("#[cfg(test)]").next().unwrap_or_default();
    let bare = |line: &&str| {
        let code = line.split("//").next().unwrap_or_default();
        MAY_PANIC.iter().any(|call| code.contains(call)) && !line.contains("// invariant: ")
    };
    program.lines().filter(bare).collect()
}

/// Names of the modules in separate files that are compiled only for tests: of the same crate, or of others
/// with the only feature, `testing`.
fn test_modules(code: &str) -> Vec<&str> {
    let attributes =
        ["#[cfg(test)]", "#[cfg(feature = \"\")]", "#[cfg(any(test, feature = \"\"))]"].into_iter();
    let after = attributes.flat_map(|attribute| code.split(attribute).skip(1));
    let after = after.filter_map(|rest| rest.trim_start().trim_start_matches("pub ").strip_prefix("mod "));
    after.filter_map(|rest| rest.split_once(';')).map(|(name, _)| name).filter(|n| !n.contains('{')).collect()
}

/// The sources that are compiled into the program.
fn program(sources: &[Source]) -> Vec<&Source> {
    let of_tests = |s: &Source| {
        let name = |name: &str| [s.module(), vec![name.to_owned()]].concat();
        test_modules(&s.code).into_iter().map(name).collect::<Vec<_>>()
    };
    let only_tests: BTreeSet<Vec<String>> = sources.iter().flat_map(of_tests).collect();
    let is_test = |s: &&Source| {
        let module = s.module();
        let of_tests = (1..=module.len()).any(|len| only_tests.contains(&module[..len]));
        of_tests || s.path.to_string_lossy().contains("test")
    };
    let program: Vec<_> = sources.iter().filter(|source| !is_test(source)).collect();
    assert!(program.len() > 20, "only {} sources were found", program.len());
    program
}

/// Adds the paths in a path or `use` tree to `all`, each prefixed with `before`. Returns the remaining
/// text.
fn paths<'a>(text: &'a str, before: &[String], all: &mut Vec<Vec<String>>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            // A path may be followed by `as` and a name.
            rest = paths(rest.trim_start(), before, all).trim_start_matches(|c| c != ',' && c != '}');
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let path = [before, &[text[..end].to_owned()]].concat();
    let goes_on = |rest: &&str| rest.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{');
    match text[end..].strip_prefix("::").filter(goes_on) {
        Some(rest) => paths(rest, &path, all),
        None => {
            all.push(path);
            &text[end..]
        }
    }
}

/// The modules that a source names through `crate`, `super` or `self`, each cut to its longest prefix in
/// `modules`.
fn named_modules(source: &Source, modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let code = source.code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = in_one_line(code);
    let mut named = Vec::new();
    for (at, _) in ["crate::", "super::", "self::"].into_iter().flat_map(|start| code.match_indices(start)) {
        if !code[..at].ends_with(is_part_of_path) {
            paths(&code[at..], &[], &mut named);
        }
    }
    let resolve = |path: Vec<String>| {
        let mut module =
            if path[0] == "crate" { source.layer.iter().cloned().collect() } else { source.module() };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => _ = module.pop(),
                _ => {
                    module.push(name);
                    if !modules.contains(&module) {
                        module.pop();
                        break;
                    }
                }
            }
        }
        module
    };
    named.into_iter().map(resolve).collect()
}

/// The circles of modules: the folder, and the names of its modules that reach one another.
fn circles(sources: &[&Source]) -> BTreeSet<String> {
    let modules: BTreeSet<Vec<String>> = sources.iter().map(|s| s.module()).collect();
    let mut uses: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in sources {
        let module = source.module();
        for other in named_modules(source, &modules) {
            let shared = module.iter().zip(&other).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(shared), other.get(shared)) {
                let folder = uses.entry(module[..shared].to_vec()).or_default();
                folder.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let mut circles = BTreeSet::new();
    for (folder, uses) in uses {
        let reached = |from: &String| {
            let (mut reached, mut rest) = (BTreeSet::new(), vec![from]);
            while let Some(next) = rest.pop() {
                rest.extend(uses.get(next).into_iter().flatten().filter(|to| reached.insert((*to).clone())));
            }
            reached
        };
        let reaches: BTreeMap<&String, BTreeSet<String>> =
            uses.keys().map(|name| (name, reached(name))).collect();
        for (name, others) in &reaches {
            if others.contains(*name) {
                let back =
                    |other: &&String| reaches.get(other).is_some_and(|reached| reached.contains(*name));
                let names: Vec<&str> = others.iter().filter(back).map(String::as_str).collect();
                circles.insert(format!("{}: {}", folder.join("/"), names.join(" ")));
            }
        }
    }
    circles
}

#[test]
fn modules_use_one_another_only_where_the_list_allows_it() {
    let sources = product();
    let found = circles(&program(&sources));
    let listed: BTreeSet<String> = CIRCLES.iter().map(|(circle, _)| circle.to_string()).collect();
    assert_eq!(found, listed, "circles of modules (left) and the list with its reasons (right)");
}

#[test]
fn circles_are_found_in_every_way_of_writing_them() {
    let found = |texts: &[(&str, &str)]| {
        let sources: Vec<Source> =
            texts.iter().map(|(path, text)| Source::new(path.into(), None, text.to_string())).collect();
        circles(&sources.iter().collect::<Vec<_>>()).into_iter().collect::<Vec<_>>()
    };
    let (there, back) = ("use super::{c::X as Y, b::{self, Z}};", "fn f() { crate::a::one::g() }");
    assert_eq!(
        found(&[("a/one.rs", "use crate::a::two;"), ("a/two.rs", "use super::one::T;"), ("a/mod.rs", "")]),
        ["a: one two"]
    );
    assert_eq!(
        found(&[("a.rs", there), ("b.rs", "use crate::c::*;"), ("c.rs", "use super::a;")]),
        [": a b c"]
    );
    assert_eq!(
        found(&[("a/one.rs", "use crate::b::{d, };"), ("b/d.rs", back), ("a.rs", ""), ("b.rs", "")]),
        [": a b"]
    );
    assert_eq!(
        found(&[("a.rs", there), ("b.rs", "// use super::a;"), ("c.rs", "use super::{b, d};")]),
        [""; 0]
    );
}

#[test]
fn what_may_panic_names_its_invariant() {
    panics_name_their_invariants(&product());
    panics_name_their_invariants(&sources(LABORATORY));
    assert_eq!(bare_panics("a.unwrap();\n// b.unwrap()\nc.expect(\"\"); // invariant: so"), ["a.unwrap();"]);
}

fn panics_name_their_invariants(sources: &[Source]) {
    for source in program(sources) {
        let bare = bare_panics(&source.text);
        assert!(bare.is_empty(), "{}: without `// invariant: `: {bare:?}", source.path.display());
    }
}

/// Cargo unites the features of a package over everything that it builds at once, so a crate that enabled
/// the feature `testing` for its tests would also enable it in the program that the tests run.
#[test]
fn only_packages_for_tests_enable_what_is_for_tests() {
    let manifests = crates().into_iter().map(|name| format!("{CRATES}/{name}/Cargo.toml"));
    let manifests = manifests.chain(["Cargo.toml", "benches/lab/Cargo.toml"].map(str::to_owned));
    for manifest in manifests {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&manifest);
        let text = fs::read_to_string(path).expect("a manifest");
        let in_code = text.lines().filter(|line| !line.starts_with('#'));
        let enabling: Vec<_> = in_code.filter(|line| line.contains("\"testing\"")).collect();
        assert!(enabling.is_empty(), "{manifest}: {enabling:?}");
        assert!(
            !dependencies(&text).contains("_testing"),
            "{manifest}: a package for tests is in the program"
        );
    }
}

/// The compiler restricts the laboratory to the public interface, unless it includes a source of the
/// program directly.
#[test]
fn the_laboratory_takes_no_source_of_the_program() {
    for source in sources(LABORATORY) {
        let code: String = source.code.split_whitespace().collect();
        let takes = code.contains("#[path=") || code.contains("include!(");
        assert!(!takes, "{LABORATORY}/{}", source.path.display());
    }
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

#[test]
fn the_scanner_sees_what_it_should() {
    assert!(has_word(&code_only("unsafe { x() }"), "unsafe"));
    assert!(!has_word(&code_only("// unsafe\n\"unsafe\" unsafe_op"), "unsafe"));
}

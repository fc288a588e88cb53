//! Lists of hashes: any bytes parse or are refused; written lists parse back, whatever the names are;
//! and a parsed list survives another round trip.
#![no_main]

use crypto::hash::{Digest, Function};
use hashing::list::{KnownFile, functions_of, parse, write_hashdeep, write_header, write_sum};
use libfuzzer_sys::fuzz_target;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};
use warpcrypt_fuzz::{Edit, edited};

/// Sizes and names of files, a folder, the choice of functions, and edits to the lists.
type Parts<'a> = (Vec<(u64, &'a [u8])>, &'a [u8], [u8; 2], Vec<Edit<'a>>);

fuzz_target!(|parts: Parts| {
    let (files, folder, choice, edits) = parts;
    let named = ["sha3-256", "md6-13", "k12", "shake256", "md6-1", "sha3-224"];
    let [one, other] = choice.map(|number| named[usize::from(number) % named.len()]);
    let mut functions: Vec<Function> = [one, other].into_iter().filter_map(Function::from_name).collect();
    functions.dedup();
    let mut known = Vec::new();
    for (size, name) in files.iter().filter(|(_, name)| !name.is_empty()) {
        let digests = functions.iter().map(|f| Some(f.digests(&[name])[0])).collect();
        known.push(KnownFile { path: OsStr::from_bytes(name).into(), size: Some(*size), digests });
    }

    let list = hashdeep(&functions, &known, Path::new(OsStr::from_bytes(folder)));
    assert_eq!(functions_of(&list), Some(functions.clone()));
    assert_eq!(parse(&list, &functions).as_ref(), Ok(&known));
    again(&edited(&list, &edits), &functions);

    let first = &functions[..1];
    let mut sums = Vec::new();
    for file in &mut known {
        file.size = None;
        file.digests.truncate(1);
        write_sum(&mut sums, &file.digests[0].expect("a digest"), &file.path).expect("memory");
    }
    assert_eq!(parse(&sums, first).as_ref(), Ok(&known));
    again(&edited(&sums, &edits), first);
    again(folder, first);
});

/// Asserts that a parsed list parses the same after it is written again.
fn again(list: &[u8], functions: &[Function]) {
    let _ = functions_of(list);
    let Ok(known) = parse(list, functions) else { return };
    let all = known.iter().all(|file| file.size.is_some() && file.digests.iter().all(Option::is_some));
    if all && functions.len() > 1 {
        assert_eq!(parse(&hashdeep(functions, &known, Path::new("")), functions), Ok(known));
    }
}

fn hashdeep(functions: &[Function], known: &[KnownFile], folder: &Path) -> Vec<u8> {
    let mut list = Vec::new();
    write_header(&mut list, functions, folder).expect("memory");
    for file in known {
        let digests: Vec<Digest> = file.digests.iter().flatten().copied().collect();
        write_hashdeep(&mut list, file.size.unwrap_or_default(), &digests, &file.path).expect("memory");
    }
    list
}

//! Names created by copying: temporary names, and names of incomplete files.

use crypto::random;
use format::name::NAME_MAX;
use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Prefix and suffix of temporary names. Between them are hexadecimal digits.
const TEMPORARY: (&str, &str) = (".warpcrypt-", ".part");
const TEMPORARY_DIGITS: usize = 16;
/// Suffix for the name of an incomplete file.
const DAMAGED: &str = ".damaged";

/// The first free name for an incomplete file. Long names are truncated to fit.
pub fn damaged_name(name: &OsStr, taken: &mut dyn FnMut(&OsStr) -> bool) -> OsString {
    let mut number = 1;
    loop {
        let suffix = if number == 1 { DAMAGED.to_owned() } else { format!("{DAMAGED}-{number}") };
        let stem = &name.as_bytes()[..name.len().min(NAME_MAX - suffix.len())];
        let name = OsString::from_vec([stem, suffix.as_bytes()].concat());
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}

/// A new random temporary name.
pub fn temporary() -> io::Result<OsString> {
    let mut number = [0; TEMPORARY_DIGITS / 2];
    random::fill(&mut number)?;
    Ok(format!("{}{:016x}{}", TEMPORARY.0, u64::from_be_bytes(number), TEMPORARY.1).into())
}

/// Whether a name has the form made by [`temporary`]. Such a file was left by a copy that was killed.
pub fn is_temporary(name: &OsStr) -> bool {
    let within = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY.0)?.strip_suffix(TEMPORARY.1));
    within.is_some_and(|digits| {
        digits.len() == TEMPORARY_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_known_again_and_no_others() {
        assert!(is_temporary(&temporary().unwrap()));
        for other in
            [".warpcrypt-.part", ".warpcrypt-0123456789abcdeg.part", "warpcrypt-0123456789abcdef.part"]
        {
            assert!(!is_temporary(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn damaged_names_fit_and_are_free() {
        let taken = ["a.damaged", "a.damaged-2"];
        let name = damaged_name(OsStr::new("a"), &mut |name| taken.iter().any(|one| *one == name));
        assert_eq!(name, "a.damaged-3");
        let name = damaged_name(OsStr::new(&"x".repeat(255)), &mut |_| false);
        assert_eq!(name.to_str(), Some(&*("x".repeat(247) + ".damaged")));
    }
}

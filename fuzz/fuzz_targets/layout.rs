//! Every stored size has a plaintext size, and it is the largest that fits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpcrypt::format::layout::{MAX_SIZE, PAGE, plain_size, stored_size};

fuzz_target!(|stored: u64| {
    let plain = plain_size(stored);
    assert!(plain <= MAX_SIZE);
    if stored >= PAGE {
        assert!(stored_size(plain) <= stored);
        assert!(plain == MAX_SIZE || stored < stored_size(plain + 1));
    }
});

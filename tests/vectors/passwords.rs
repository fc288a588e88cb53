//! RFC 9106.

use super::hex;
use crypto::kdf::{Argon2Cost, argon2id};

/// The example of section 5.3 has a secret and associated data, which a vault's passwords have not: it shows
/// that the function beneath is the standard's. `second_opinion` checks the vault's own function.
#[test]
fn argon2id_example_of_rfc_9106() {
    let params = argon2::ParamsBuilder::new()
        .m_cost(32)
        .t_cost(3)
        .p_cost(4)
        .data(argon2::AssociatedData::new(&[4; 12]).expect("associated data"))
        .output_len(32)
        .build()
        .expect("parameters");
    let function =
        argon2::Argon2::new_with_secret(&[3; 8], argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .expect("secret");
    let mut out = [0; 32];
    function.hash_password_into(&[1; 32], &[2; 16], &mut out).expect("a hash");
    assert_eq!(out[..], hex("0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659"));
}

#[test]
fn costs_that_argon2_does_not_define_are_refused() {
    let good = Argon2Cost { memory_kib: 64, passes: 1, lanes: 1 };
    assert!(argon2id(b"password", &[0; 32], good).is_ok());
    for cost in [
        Argon2Cost { memory_kib: 7, ..good },
        Argon2Cost { memory_kib: 0, ..good },
        Argon2Cost { passes: 0, ..good },
        Argon2Cost { lanes: 0, ..good },
        Argon2Cost { lanes: 9, ..good },
        Argon2Cost { lanes: u32::MAX, ..good },
    ] {
        assert!(argon2id(b"password", &[0; 32], cost).is_err(), "{cost:?}");
    }
}

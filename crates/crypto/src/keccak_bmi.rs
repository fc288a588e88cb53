//! Keccak for x86-64 processors with BMI1 and BMI2. The portable code compiles to and-not and to
//! non-destructive rotations, a quarter fewer instructions.

use super::keccak::{KeccakState, Rounds, rounds_of};

/// Whether this processor has the features that `permute` requires.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
}

/// As `keccak::permute_portable`.
#[target_feature(enable = "bmi1,bmi2")]
pub(super) fn permute(state: &mut KeccakState, rounds: Rounds) {
    rounds_of(state, rounds);
}

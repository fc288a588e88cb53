# Common tasks; `just` lists them.

default:
    @just --list

# Run everything that CI runs
ci:
    .ci/run

# Format, lint, document
check:
    cargo fmt --all --check
    cargo clippy --release --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --release --no-deps

# All tests; skipped ones fail
test:
    REQUIRE_FUSE=1 cargo test --release

# Run all cases of sampled tests, millions of states, then real kills and power cuts (as root)
prove kills="1000" cuts="200" beside="":
    PROVE=1 REQUIRE_FUSE=1 cargo test --release
    cargo test --release --lib -- explore interleave --ignored --skip this_ --skip these_ --skip any_program_finds --nocapture
    KILLS={{kills}} CUTS={{cuts}} KILLS_BESIDE={{beside}} KILLS_OUT=target/kills REQUIRE_FUSE=1 cargo test --release --test alone kills -- --nocapture

# Fuzz a target for some seconds; needs a nightly compiler and cargo-fuzz
fuzz target seconds="600":
    cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}

# See it work
try:
    cargo run --release -- try

# Install the program, mount helpers, man pages, completions and systemd units below `prefix`
install prefix="/usr/local":
    cargo build --release -p warpcrypt
    mount-scripts/install.sh --prefix {{prefix}}

# Build the Debian package in target/
deb:
    cargo build --release -p warpcrypt
    mount-scripts/build-deb.sh

# Install the benchmark program for `warpcrypt bench`, man pages and completions below `prefix`
install-bench prefix="/usr/local":
    cargo build --release -p warpcrypt-bench
    install -D target/release/warpcrypt-bench {{prefix}}/bin/warpcrypt-bench
    mkdir -p {{prefix}}/share/man/man1 {{prefix}}/share/bash-completion/completions
    target/release/warpcrypt-bench man {{prefix}}/share/man/man1
    target/release/warpcrypt-bench completions bash > {{prefix}}/share/bash-completion/completions/warpcrypt-bench

# Check licences, advisories and sources of the dependencies
deny:
    cargo deny check

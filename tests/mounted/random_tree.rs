//! Random operations performed in parallel on a mount and on a kernel filesystem: the results must be
//! identical.

mod side;
mod steps;

use crate::support::{
    disk::Disk,
    mounted::{Mount, Vault},
    ordinary::memory_of_ordinary_user,
    random::Random,
    ready_as_root, say, setting, skip,
};
use crypto::cipher::Cipher;
use proptest::{
    collection::vec,
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use rustix::fs::Mode;
use side::{Side, tree};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use steps::{Op, any_op, any_op_of_a_user};

/// Number of sequences per cipher, and of operations per sequence.
const SEQUENCES: u32 = 100;
const LENGTH: usize = 200;
/// The same numbers for the run as an ordinary user.
const SEQUENCES_OF_A_USER: u32 = 40;
const LENGTH_OF_A_USER: usize = 400;

/// The mount and the model, each with a new directory for every sequence.
struct Pair<'v> {
    mount: Option<Mount<'v>>,
    model: PathBuf,
    runs: u32,
}

impl Pair<'_> {
    /// Runs one sequence on both. An error names the step at which they differ.
    fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        self.runs += 1;
        if !rustix::process::geteuid().is_root() {
            rustix::process::umask(Mode::from_raw_mode(0o022)); // left by the previous sequence
        }
        let name = format!("run {}", self.runs);
        let places = [self.model.join(&name), self.mount_path().join(&name)];
        let mut sides = places.clone().map(|p| Side::new(&p));
        for (step, op) in ops.iter().enumerate() {
            if let Op::Remount = op {
                sides.iter_mut().for_each(Side::close_all);
                self.mount = self.mount.take().map(Mount::remount);
                compare("the tree after a remount", step, tree(&places[0]), tree(&places[1]))?;
                continue;
            }
            let [model, mount] = [0, 1].map(|i: usize| sides[i].apply(op));
            compare(&format!("{op:?}"), step, model, mount)?;
        }
        sides.iter_mut().for_each(Side::close_all);
        let same = compare("the tree at the end", ops.len(), tree(&places[0]), tree(&places[1]));
        for place in &places {
            side::remove(place).map_err(|e| format!("cannot remove {}: {e}", place.display()))?;
        }
        same
    }

    fn mount_path(&self) -> &Path {
        self.mount.as_ref().expect("mounted").path()
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    step: usize,
    model: T,
    mount: T,
) -> Result<(), String> {
    if model == mount {
        return Ok(());
    }
    Err(format!("step {step}, {what}:\n   model: {model:?}\n   mount: {mount:?}"))
}

fn never_differs(cipher: &str, seed: u64) {
    // Root is needed to mount a tmpfs.
    if !ready_as_root(&[]) {
        return;
    }
    let disk = Disk::new("256m");
    let model = &disk.0;
    if !side::has_attributes(model.path()) {
        skip("needs a tmpfs with user attributes".into());
        return;
    }
    let vault = Vault::with(cipher, &[]);
    let pair = Pair { mount: Some(vault.mount()), model: model.path().to_path_buf(), runs: 0 };
    run_all(cipher, pair, Random::from_seed(seed), SEQUENCES, vec(any_op(), LENGTH));
}

fn run_all(
    what: &str,
    mut pair: Pair,
    mut random: Random,
    sequences: u32,
    sequence: impl Strategy<Value = Vec<Op>>,
) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &random.bytes(32));
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    // `TREE_SECONDS` replaces the number of sequences with a duration.
    let end = setting("TREE_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while end.map_or(pair.runs < sequences, |end| Instant::now() < end) {
        let mut ops = steps::start();
        ops.extend(sequence.new_tree(&mut runner).expect("a sequence").current());
        if let Err(why) = pair.run(&ops) {
            let (ops, why) = minimise(&mut pair, ops, why);
            let lines: Vec<String> = ops.iter().map(|op| format!("  {op:?}\n")).collect();
            panic!("{what}: {why}\nafter these operations:\n{}", lines.concat());
        }
    }
    if let Some(mount) = pair.mount.take() {
        mount.unmount();
    }
    say(format_args!("{what}: {} sequences", pair.runs));
}

/// As an ordinary user, with modes that deny access to the owner, umasks, groups and ACLs.
#[test]
fn a_users_mount_never_differs() {
    let Some((model, _place)) = memory_of_ordinary_user(64 << 20, 3600) else { return };
    if !side::has_attributes(&model) {
        skip("needs a tmpfs with user attributes".into());
        return;
    }
    let vault = Vault::in_memory("aes-256-ctr");
    let pair = Pair { mount: Some(vault.mount()), model, runs: 0 };
    let random = Random::new("tree of an ordinary user");
    let sequences = setting("TREE_SEQUENCES").unwrap_or(SEQUENCES_OF_A_USER);
    run_all("an ordinary user", pair, random, sequences, vec(any_op_of_a_user(), LENGTH_OF_A_USER));
}

/// Removes operations while the rest still fails, for at most about a minute.
fn minimise(pair: &mut Pair, mut ops: Vec<Op>, mut why: String) -> (Vec<Op>, String) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut piece = ops.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < ops.len() && Instant::now() < end {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + piece).min(ops.len()));
            match pair.run(&fewer) {
                Err(e) => (ops, why) = (fewer, e),
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    (ops, why)
}

/// One test per cipher, so that they run in parallel.
macro_rules! never_differs {
    ($($cipher:ident: $name:ident),+) => {
        const _: [Cipher; Cipher::ALL.len()] = [$(Cipher::$cipher),+]; // every cipher is listed

        $(
            #[test]
            fn $name() {
                never_differs(Cipher::$cipher.name(), Random::new(concat!("tree, ", stringify!($name))).next());
            }
        )+
    };
}

never_differs!(
    Aes128: aes128_never_differs,
    Aes192: aes192_never_differs,
    Aes256: aes256_never_differs,
    Kuznyechik: kuznyechik_never_differs
);

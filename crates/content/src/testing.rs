//! Contexts of files for the tests of this crate and of others.

use crate::{Background, Budget, Buffered, ContentKeys, Context, Durability, Error, File, SlotMemory, Space};
use crypto::{cipher::Cipher, integrity::Integrity, kdf::FileKdf, secret::Secret};
use engine::{EngineChoice, Router};
use std::sync::{Arc, atomic::Ordering};

/// Keys of one generation.
pub fn keys(cipher: Cipher, integrity: Integrity) -> ContentKeys {
    ContentKeys::new(0, FileKdf::new(Secret::new_with(|key| key.fill(7)), cipher, integrity))
}

/// A context with this cipher and these tags, and with background threads.
pub fn context_with(cipher: Cipher, integrity: Integrity, read_only: bool) -> Arc<Context> {
    let keys = keys(cipher, integrity);
    Arc::new(Context { keys, read_only, ..context_over(Background::default()) })
}

/// A context with these background threads. Extents are as short as possible, so that few bytes cross the
/// borders of several.
pub fn context_over(background: Background) -> Context {
    let context = context_of_few(background);
    context.buffered.streams.store(1 << 20, Ordering::Relaxed);
    context
}

/// Like `context_over`, but with few streamed files, so that extents are long.
pub fn context_of_few(background: Background) -> Context {
    let budget = Budget::of(64 << 20);
    Context {
        keys: keys(Cipher::Aes256, Integrity::Kmac128),
        router: Router::new(EngineChoice::Cpu, budget.buffers).unwrap(),
        durability: Durability::Strict,
        read_only: false,
        sharing: None,
        guard: Box::new(|| Ok(())),
        overwrites_in_place: true,
        space: Space::endless(),
        vacate: Box::new(|_| Ok(())),
        rewrites: None,
        bounds: None,
        buffered: Arc::new(Buffered::new(budget.behind)),
        ahead: Arc::default(),
        slots: SlotMemory::new(1 << 20),
        budget,
        background,
    }
}

/// A context with AES-256, KMAC128 and background threads.
pub fn context() -> Arc<Context> {
    context_with(Cipher::Aes256, Integrity::Kmac128, false)
}

/// Limit for singles where a test schedules the background work: its programs write little.
pub const SINGLES_BY_HAND: usize = 64 << 10;

/// A context whose background work is run by the returned function: one job per call, if there is one.
pub fn context_by_hand() -> (Arc<Context>, impl Fn() -> bool + Send + Sync) {
    let (background, jobs) = Background::by_hand();
    let context = context_of_few(background);
    let router = Router::of_one_thread(context.budget.buffers);
    let keys = keys(Cipher::Aes128, Integrity::TurboShake128x4);
    let work = move || jobs.try_recv().map(|job| job()).is_ok();
    let budget = Budget { singles: SINGLES_BY_HAND, ..context.budget };
    (Arc::new(Context { keys, router, budget, ..context }), work)
}

/// Reads the whole content.
///
/// # Errors
/// Those of `File::read`.
pub fn read_all(file: &Arc<File>) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; file.size() as usize + 100];
    let n = file.read(0, &mut out)?;
    assert_eq!(n as u64, file.size());
    out.truncate(n);
    Ok(out)
}

/// Number of cases a test runs: `sample`, or `whole` if `PROVE` is set, as `just prove` does.
pub fn cases(sample: u64, whole: u64) -> u64 {
    if std::env::var_os("PROVE").is_some() { whole } else { sample }
}

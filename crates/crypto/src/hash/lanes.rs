//! Absorbs into many sponges at once, one in each lane of a vector: the dispatcher over the vector
//! widths, and the scheduling of lanes. Messages of any lengths can be mixed; a lane that has finished
//! takes the next message.

#[cfg(target_arch = "x86_64")]
use super::{lanes_avx2, lanes_avx512, lanes_vl};
use crate::keccak::{self, KeccakState, Rounds};
use zeroize::Zeroizing;

/// Maximum rate in bytes: that of SHAKE128.
const RATE_MAX: usize = 168;
/// Rate of SHA3-256 in bytes.
const RATE_SHA3_256: usize = 136;
/// Maximum length of a message's end, before the padding: up to three bytes of the mode, and the domain byte.
const END_MAX: usize = 4;

/// `N` states, interleaved: lane (x, y) of state i is at `[x + 5 * y][i]`.
pub(crate) type States<const N: usize> = [[u64; N]; 25];

/// A state, and the data to absorb into it.
pub(crate) struct Job<'a> {
    /// Must be at a block boundary.
    pub state: &'a mut KeccakState,
    /// A whole number of blocks, unless `end` follows.
    pub data: &'a [u8],
    /// The last bytes, including the domain byte (suffix bits and the first bit of pad10*1). The block is
    /// padded after them. Empty if more data will follow.
    pub end: &'a [u8],
}

/// Absorbs all jobs. The rate is in bytes.
pub(crate) type Absorb = fn(&mut [Job], usize, Rounds);

/// Absorbs with the fastest implementation for this machine and this number of jobs.
pub(crate) fn absorb(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    suitable(jobs.len())(jobs, rate, rounds);
}

#[cfg(target_arch = "x86_64")]
fn suitable(jobs: usize) -> Absorb {
    if (2..=4).contains(&jobs) && lanes_vl::available() {
        return absorb_vl;
    }
    if jobs > 1 && lanes_avx512::available() {
        return absorb_avx512;
    }
    if jobs > 1 && lanes_avx2::available() {
        return absorb_avx2;
    }
    absorb_portable
}

#[cfg(not(target_arch = "x86_64"))]
fn suitable(_: usize) -> Absorb {
    absorb_portable
}

/// Absorbs with 256-bit vectors and the instructions of AVX-512.
///
/// # Panics
/// If the processor lacks AVX-512VL.
#[cfg(target_arch = "x86_64")]
pub(crate) fn absorb_vl(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    assert!(lanes_vl::available());
    // SAFETY: the required CPU features were just checked.
    fill::<4>(jobs, rate, rounds, |s, p| unsafe { lanes_vl::absorb(s, p, rate, rounds) });
}

/// Absorbs with 512-bit vectors.
///
/// # Panics
/// If the processor lacks AVX-512.
#[cfg(target_arch = "x86_64")]
pub(crate) fn absorb_avx512(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    assert!(lanes_avx512::available());
    // SAFETY: the required CPU features were just checked.
    fill::<8>(jobs, rate, rounds, |s, p| unsafe { lanes_avx512::absorb(s, p, rate, rounds) });
}

/// Absorbs with 256-bit vectors.
///
/// # Panics
/// If the processor lacks AVX2.
#[cfg(target_arch = "x86_64")]
pub(crate) fn absorb_avx2(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    assert!(lanes_avx2::available());
    // SAFETY: the required CPU features were just checked.
    fill::<4>(jobs, rate, rounds, |s, p| unsafe { lanes_avx2::absorb(s, p, rate, rounds) });
}

/// Permutes each state with the 24 rounds of SHA-3, several side by side if the processor has vectors.
pub fn permute_all(states: &mut [KeccakState]) {
    // This many states fit into the L1 cache.
    for some in states.chunks_mut(64) {
        let mut jobs: Vec<Job> =
            some.iter_mut().map(|state| Job { state, data: &[0; RATE_SHA3_256], end: &[] }).collect();
        absorb(&mut jobs, RATE_SHA3_256, Rounds::TwentyFour);
    }
}

/// The portable implementation: one job after the other.
pub(crate) fn absorb_portable(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    for job in jobs {
        let mut source = LaneSource::new(job.data, job.end, rate);
        absorb_one(job.state, &mut source, rate, rounds);
    }
}

fn absorb_one(state: &mut KeccakState, source: &mut LaneSource, rate: usize, rounds: Rounds) {
    while !source.is_done() {
        let blocks = source.ready();
        for block in blocks.chunks_exact(rate) {
            for (lane, word) in state.iter_mut().zip(block.as_chunks::<8>().0) {
                *lane ^= u64::from_le_bytes(*word);
            }
            keccak::permute(state, rounds);
        }
        let taken = blocks.len();
        source.advance(taken);
    }
}

/// The remaining blocks of a job: the whole blocks of its message, then the padded end.
struct LaneSource<'a> {
    blocks: &'a [u8],
    end: [u8; 2 * RATE_MAX],
    /// Position in `end`, and its length.
    taken: usize,
    len: usize,
}

impl<'a> LaneSource<'a> {
    fn new(data: &'a [u8], last: &[u8], rate: usize) -> Self {
        let (blocks, rest) = data.split_at(data.len() - data.len() % rate);
        let mut end = [0; 2 * RATE_MAX];
        let len = pad(rest, last, rate, &mut end);
        LaneSource { blocks, end, taken: 0, len }
    }

    fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.taken == self.len
    }

    /// The next contiguous whole blocks.
    fn ready(&self) -> &[u8] {
        if self.blocks.is_empty() { &self.end[self.taken..self.len] } else { self.blocks }
    }

    fn advance(&mut self, bytes: usize) {
        if self.blocks.is_empty() {
            self.taken += bytes;
        } else {
            self.blocks = &self.blocks[bytes..];
        }
    }
}

/// Absorbs with `N` lanes. `absorb` takes a list of pieces, each with the same number of whole blocks
/// for every lane.
pub(super) fn fill<const N: usize>(
    jobs: &mut [Job],
    rate: usize,
    rounds: Rounds,
    absorb: impl Fn(&mut States<N>, &[[&[u8]; N]]),
) {
    let mut done = 0;
    while let Some(some) = jobs.get_mut(done..jobs.len().min(done + N))
        && some.len() > N / 2
        && are_alike(some)
    {
        absorb_alike(some, rate, &absorb);
        done += some.len();
    }
    refill(&mut jobs[done..], rate, rounds, absorb);
}

/// Whether all jobs have the length of the first.
fn are_alike(jobs: &[Job]) -> bool {
    jobs.iter().all(|job| job.data.len() == jobs[0].data.len() && job.end.len() == jobs[0].end.len())
}

/// Absorbs up to `N` jobs of equal length.
fn absorb_alike<const N: usize>(
    jobs: &mut [Job],
    rate: usize,
    absorb: impl Fn(&mut States<N>, &[[&[u8]; N]]),
) {
    let last = jobs.len() - 1;
    // The states may be keyed, so they are wiped, and filled in place: a move would leave a copy behind.
    let mut states: Zeroizing<States<N>> = Zeroizing::new([[0; N]; 25]);
    // A lane without a job repeats the last job.
    for (word, lanes) in states.iter_mut().enumerate() {
        *lanes = std::array::from_fn(|lane| jobs[lane.min(last)].state[word]);
    }
    let whole = jobs[0].data.len() / rate * rate;
    let mut ends = [[0; 2 * RATE_MAX]; N];
    let mut len = 0;
    for (bytes, job) in ends.iter_mut().zip(&*jobs) {
        len = pad(&job.data[whole..], job.end, rate, bytes);
    }
    let pieces = [
        std::array::from_fn(|lane| &jobs[lane.min(last)].data[..whole]),
        std::array::from_fn(|lane| &ends[lane.min(last)][..len]),
    ];
    absorb(&mut states, &pieces);
    for (lane, job) in jobs.iter_mut().enumerate() {
        job.state.iter_mut().zip(&*states).for_each(|(word, lanes)| *word = lanes[lane]);
    }
}

/// Writes the padded end of a message: the bytes left over, its end and the padding. `out` must be zeros.
/// Returns the length, which is one block or two, or 0 if the message does not end here.
fn pad(rest: &[u8], last: &[u8], rate: usize, out: &mut [u8; 2 * RATE_MAX]) -> usize {
    if last.is_empty() {
        return 0;
    }
    out[..rest.len()].copy_from_slice(rest);
    out[rest.len()..][..last.len()].copy_from_slice(last);
    let len = (rest.len() + last.len()).next_multiple_of(rate);
    out[len - 1] ^= 0x80;
    len
}

/// Absorbs jobs of any lengths, keeping `N` lanes busy.
fn refill<const N: usize>(
    jobs: &mut [Job],
    rate: usize,
    rounds: Rounds,
    absorb: impl Fn(&mut States<N>, &[[&[u8]; N]]),
) {
    // The states may be keyed, so they are wiped.
    let mut states: Zeroizing<States<N>> = Zeroizing::new([[0; N]; 25]);
    let mut sources: [Option<(usize, LaneSource)>; N] = [const { None }; N];
    let mut next = 0;
    loop {
        for (lane, source) in sources.iter_mut().enumerate() {
            while source.is_none() && next < jobs.len() {
                let new = LaneSource::new(jobs[next].data, jobs[next].end, rate);
                if !new.is_done() {
                    (0..25).for_each(|word| states[word][lane] = jobs[next].state[word]);
                    *source = Some((next, new));
                }
                next += 1;
            }
        }
        if sources.iter().flatten().count() < 2 {
            // A single remaining message is faster alone.
            let Some(lane) = sources.iter().position(Option::is_some) else { return };
            if let Some((job, mut source)) = sources[lane].take() {
                let state = &mut *jobs[job].state;
                (0..25).for_each(|word| state[word] = states[word][lane]);
                absorb_one(state, &mut source, rate, rounds);
            }
            continue;
        }
        let ready: [Option<&[u8]>; N] =
            std::array::from_fn(|lane| sources[lane].as_ref().map(|(_, source)| source.ready()));
        // An idle lane repeats the blocks of another one; its state is discarded.
        let shortest = ready.into_iter().flatten().min_by_key(|blocks| blocks.len()).unwrap_or_default();
        let len = shortest.len();
        absorb(&mut states, &[ready.map(|blocks| &blocks.unwrap_or(shortest)[..len])]);
        for (lane, place) in sources.iter_mut().enumerate() {
            let Some((job, source)) = place else { continue };
            source.advance(len);
            if source.is_done() {
                let state = &mut *jobs[*job].state;
                (0..25).for_each(|word| state[word] = states[word][lane]);
                *place = None;
            }
        }
    }
}

const _: () = assert!(END_MAX <= RATE_MAX);

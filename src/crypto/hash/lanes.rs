//! Many sponges that absorb at once, one in each lane of a vector: the dispatcher over the vector widths,
//! and the filling of the lanes. Messages of any length may be mixed; a lane that is done takes the next.

#[cfg(target_arch = "x86_64")]
use super::{lanes_avx2, lanes_avx512, lanes_vl};
use crate::crypto::keccak::{self, Rounds, State};
use zeroize::Zeroizing;

/// The largest rate in bytes: that of SHAKE128.
const RATE_MAX: usize = 168;
/// The rate of SHA3-256 in bytes.
const RATE_SHA3_256: usize = 136;
/// What follows a message before the padding: up to three bytes of the mode's and the domain byte.
const END_MAX: usize = 4;

/// `N` states, lane by lane: lane (x, y) of state i at `[x + 5 * y][i]`.
pub(in crate::crypto) type States<const N: usize> = [[u64; N]; 25];

/// A state, and what it is to absorb.
pub(in crate::crypto) struct Job<'a> {
    /// Between two blocks.
    pub state: &'a mut State,
    /// Whole blocks, unless `end` follows.
    pub data: &'a [u8],
    /// The last bytes with the domain byte (suffix bits and pad10*1's first bit), after which the block is
    /// padded; empty if more is to come.
    pub end: &'a [u8],
}

/// Absorbs all of it, with the implementation that suits this machine. `rate` is in bytes.
pub(in crate::crypto) fn absorb(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    #[cfg(target_arch = "x86_64")]
    {
        if (2..=4).contains(&jobs.len()) && lanes_vl::available() {
            // SAFETY: the processor has the features, as was just seen.
            return fill::<4>(jobs, rate, rounds, |s, d| unsafe { lanes_vl::absorb(s, &[d], rate, rounds) });
        }
        if jobs.len() > 1 && lanes_avx512::available() {
            // SAFETY: the processor has the features, as was just seen.
            return fill::<8>(jobs, rate, rounds, |s, d| unsafe {
                lanes_avx512::absorb(s, &[d], rate, rounds)
            });
        }
        if jobs.len() > 1 && lanes_avx2::available() {
            // SAFETY: the processor has the features, as was just seen.
            return fill::<4>(jobs, rate, rounds, |s, d| unsafe {
                lanes_avx2::absorb(s, &[d], rate, rounds)
            });
        }
    }
    absorb_portable(jobs, rate, rounds);
}

/// Permutes each of these states with the 24 rounds of SHA-3, side by side where vectors take several.
pub fn permute_all(states: &mut [State]) {
    // As many as stay in the first cache.
    for some in states.chunks_mut(64) {
        let mut jobs: Vec<Job> =
            some.iter_mut().map(|state| Job { state, data: &[0; RATE_SHA3_256], end: &[] }).collect();
        absorb(&mut jobs, RATE_SHA3_256, Rounds::TwentyFour);
    }
}

/// The portable implementation: one after the other.
pub(super) fn absorb_portable(jobs: &mut [Job], rate: usize, rounds: Rounds) {
    for job in jobs {
        let mut source = Source::new(job.data, job.end, rate);
        absorb_one(job.state, &mut source, rate, rounds);
    }
}

fn absorb_one(state: &mut State, source: &mut Source, rate: usize, rounds: Rounds) {
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

/// The blocks of one job: its message's whole ones, then the padded end.
struct Source<'a> {
    blocks: &'a [u8],
    end: [u8; 2 * RATE_MAX],
    /// Of `end`: bytes taken, bytes in all.
    taken: usize,
    len: usize,
}

impl<'a> Source<'a> {
    fn new(data: &'a [u8], last: &[u8], rate: usize) -> Self {
        let (blocks, rest) = data.split_at(data.len() - data.len() % rate);
        let mut source = Source { blocks, end: [0; 2 * RATE_MAX], taken: 0, len: 0 };
        if !last.is_empty() {
            source.end[..rest.len()].copy_from_slice(rest);
            source.end[rest.len()..][..last.len()].copy_from_slice(last);
            source.len = (rest.len() + last.len()).next_multiple_of(rate);
            source.end[source.len - 1] ^= 0x80;
        }
        source
    }

    fn is_done(&self) -> bool {
        self.blocks.is_empty() && self.taken == self.len
    }

    /// Whole blocks that lie side by side.
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

/// Keeps `N` lanes filled with jobs; `absorb` takes as many whole blocks as each lane is given.
pub(super) fn fill<const N: usize>(
    jobs: &mut [Job],
    rate: usize,
    rounds: Rounds,
    absorb: impl Fn(&mut States<N>, [&[u8]; N]),
) {
    // They may be keyed.
    let mut states: Zeroizing<States<N>> = Zeroizing::new([[0; N]; 25]);
    let mut sources: [Option<(usize, Source)>; N] = [const { None }; N];
    let mut next = 0;
    loop {
        for (lane, source) in sources.iter_mut().enumerate() {
            while source.is_none() && next < jobs.len() {
                let new = Source::new(jobs[next].data, jobs[next].end, rate);
                if !new.is_done() {
                    (0..25).for_each(|word| states[word][lane] = jobs[next].state[word]);
                    *source = Some((next, new));
                }
                next += 1;
            }
        }
        if sources.iter().flatten().count() < 2 {
            // A single message is faster alone.
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
        // An idle lane repeats another's blocks; its state is nobody's.
        let shortest = ready.into_iter().flatten().min_by_key(|blocks| blocks.len()).unwrap_or_default();
        let len = shortest.len();
        absorb(&mut states, ready.map(|blocks| &blocks.unwrap_or(shortest)[..len]));
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

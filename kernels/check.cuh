// Check of a seal or open launch. Before its results count, another multiprocessor recomputes tags and
// keystream, with a copy of the tables from another source, and compares. The check is either a separate
// launch or the later blocks of the same launch. Those start on a chunk as soon as its ciphertext is
// available. They also write the output to host memory, so that no block that publishes a word has to
// wait for such writes.
//
// Blocks claim the work. An item is the work of one block of the launch, and only a block on another
// multiprocessor may claim it. An item that no such block can claim gets no verdict, and the host
// processes its chunks itself. Tags are computed by the thread variant, whichever variant the launch
// used. The warps of a block compute keystream and tags of an item in parallel.
//
// All known devices start the blocks of a launch in order, so no block waits for one that is itself
// waiting for a free multiprocessor. CUDA does not guarantee that order: a block whose wait times out
// gives no verdict.
#pragma once
#include "ciphers.cuh"
#include "tag.cuh"

// The launch to check, and its results. Block b processed `run` chunks from (b + k * blocks) * run on,
// for every k.
struct Launch {
  const KeySlot* keys;
  const Chunk* chunks;
  uint32_t count;
  const uint8_t* in;
  uint8_t* out;
  const void* made;  // if progress is not traced: tags, or whether each chunk verified
  Trace trace;
  uint32_t opens, blocks, run;

  // Number of places for chunks in an item. Some of the last ones may be empty.
  DEVICE uint32_t places() const { return (count + blocks * run - 1) / (blocks * run) * run; }
  // Index of the chunk at a place of an item; `count` or more if the place is empty.
  DEVICE uint32_t chunk_at(uint32_t item, uint32_t place) const {
    return (item + place / run * blocks) * run + place % run;
  }
  // Wait for a chunk's plaintext and ciphertext (`text_comes`) and for its results (`made_comes`). False
  // on timeout.
  DEVICE bool text_comes(uint32_t at) const {
    if (!trace.progress) return true;
    const uint64_t* text = &trace.progress[at].text;
    // The final acquire load makes the texts visible. Poll with relaxed loads, because every acquire
    // invalidates this multiprocessor's cache.
    return comes_in_time([&] { return get_word(text) == trace.launch; }) && published(text) == trace.launch;
  }
  DEVICE bool made_comes(uint32_t at) const {
    if (!trace.progress) return true;
    const Progress& progress = trace.progress[at];
    return comes_in_time([&] {
      bool all = progress.has(trace.launch, 0);
      for (int i = 1; i < 4 && !opens; i++) all &= progress.has(trace.launch, i);
      return all;
    });
  }
  DEVICE const uint8_t* input(uint32_t at) const {
    return trace.kept_in ? trace.kept_in + uint64_t(at) * CHUNK_BYTES : in + chunks[at].source;
  }
  DEVICE const uint8_t* output(uint32_t at) const {
    return trace.kept_out ? trace.kept_out + uint64_t(at) * CHUNK_BYTES : out + chunks[at].target;
  }
  DEVICE const uint8_t* ciphertext(uint32_t at) const { return opens ? input(at) : output(at); }
  DEVICE uint4 tag(uint32_t at) const {
    if (!trace.progress) return static_cast<const uint4*>(made)[at];
    const Progress& progress = trace.progress[at];
    return make_uint4(progress.word(0), progress.word(1), progress.word(2), progress.word(3));
  }
  // Result of open for a chunk: 1 if it verified, 0 if not.
  DEVICE uint32_t opening(uint32_t at) const {
    return trace.progress ? trace.progress[at].word(0) : static_cast<const uint32_t*>(made)[at];
  }
  DEVICE bool verified(uint32_t at) const { return !opens || opening(at) == 1; }
  // Whether the launch's result is consistent with `tag` being the correct tag. An open result other
  // than 0 or 1 never is.
  DEVICE bool agrees(uint32_t at, uint4 tag) const {
    if (opens) return opening(at) == uint32_t(same_tag(tag, chunks[at]));
    uint4 difference = tag ^ this->tag(at);
    return (difference.x | difference.y | difference.z | difference.w) == 0;
  }
};

// Per item: number of the last launch for which it was claimed.
using Claims = uint64_t*;

// Output that the host reads. A verdict is `number` * 4 plus a `Verdict`.
struct Results {
  uint4* tags;
  uint32_t* verdicts;
  uint32_t number;
};
enum Verdict : uint32_t { CONFIRMED = 1, UNVERIFIED = 2, REFUTED = 3 };

// Faults in a chunk: wrong text, wrong tag, or results not available in time.
enum Mark : uint32_t { WRONG_TEXT = 1, WRONG_TAG = 2, LATE = 4 };

// A checking block's shared memory: words that its threads agree on, and the marks for each place of an
// item.
struct CheckDesk {
  static constexpr uint32_t PLACES = 8192, OF_WORD = 8, BYTES = 16 + PLACES / 2;
  uint32_t* start;
  DEVICE explicit CheckDesk(uint8_t* at) : start(reinterpret_cast<uint32_t*>(at)) {}
  DEVICE uint32_t& agreed() const { return start[0]; }
  DEVICE uint32_t& coming() const { return start[1]; }
  DEVICE uint32_t& word(uint32_t place) const { return start[4 + place / OF_WORD]; }
  DEVICE void clear(uint32_t places) const {
    for (uint32_t i = threadIdx.x; OF_WORD * i < places; i += blockDim.x) start[4 + i] = 0;
    __syncthreads();
  }
  DEVICE void mark(uint32_t place, Mark mark) const { atomicOr(&word(place), mark << place % OF_WORD * 4); }
  DEVICE uint32_t marks(uint32_t place) const { return word(place) >> place % OF_WORD * 4 & 15; }
};

constexpr uint32_t NO_ITEM = 0xffffffff;

// Claims an item that another multiprocessor processed, or returns NO_ITEM if there is none left. Every
// thread of the block calls it and gets the same result.
DEVICE uint32_t claim_item(const CheckDesk& desk, const Launch& launch, Claims claims) {
  for (Patience patience;;) {
    __syncthreads();  // all threads are done with the desk
    if (threadIdx.x == 0) desk.agreed() = launch.blocks, desk.coming() = 0;
    __syncthreads();
    // Neighbouring blocks usually run on other multiprocessors.
    const uint32_t first = blockIdx.x + 1;
    for (uint32_t i = threadIdx.x; i < launch.blocks; i += blockDim.x) {
      const uint32_t item = (first + i) % launch.blocks;
      if (get_word(&claims[item]) == launch.trace.launch) continue;
      const uint32_t place = launch.trace.place_of(item);
      if (place == Trace::NOWHERE) {
        atomicOr(&desk.coming(), 1);
      } else if (place != multiprocessor()) {
        atomicMin(&desk.agreed(), i);
      }
    }
    __syncthreads();
    const uint32_t nearest = desk.agreed(), coming = desk.coming(), item = (first + nearest) % launch.blocks;
    __syncthreads();
    if (nearest == launch.blocks) {
      if (!coming || !patience.lasts()) return NO_ITEM;
      continue;
    }
    if (threadIdx.x == 0) desk.agreed() = exchange(&claims[item], launch.trace.launch) != launch.trace.launch;
    __syncthreads();
    if (desk.agreed()) return item;
  }
}

// Checks as many tags as a warp computes at once, from place `first` on.
template <class Integrity>
DEVICE void check_tags(const CheckDesk& desk, const Launch& launch, uint32_t item, uint32_t first) {
  const uint32_t place = first + lane_id() / Integrity::THREADS;
  uint32_t at = launch.chunk_at(item, place);
  const bool there = place < launch.places() && at < launch.count;
  if (!there) at = launch.chunk_at(item, first);
  const bool began = launch.text_comes(at);
  __syncwarp();
  const uint4 tag = tag_by_threads<Integrity>(launch.keys, launch.chunks[at], launch.ciphertext(at));
  if (!there) return;
  if (!began || !launch.made_comes(at)) {
    desk.mark(place, LATE);
  } else if (!launch.agrees(at, tag)) {
    desk.mark(place, WRONG_TAG);
  }
}

// Writes one block of a text of `length` bytes, and nothing past the text's end.
DEVICE void deliver_block(uint8_t* target, uint32_t length, uint32_t number, uint4 block) {
  const uint32_t start = number * BLOCK_BYTES;
  if (length - start >= BLOCK_BYTES) {
    reinterpret_cast<uint4*>(target)[number] = block;
    return;
  }
  const uint32_t words[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
  for (uint32_t i = 0; i < BLOCK_BYTES; i++) {
    if (start + i < length) target[start + i] = uint8_t(words[i / 4] >> 8 * (i % 4));
  }
}

// Checks a chunk's plaintext against its ciphertext, using one warp, and delivers exactly the blocks
// that it compared. If the chunk does not verify, the mark set here is ignored.
template <class Cipher>
DEVICE void check_text(const typename Cipher::TablesAgain& tables, const CheckDesk& desk, const Launch& launch,
                       uint32_t place, uint32_t at) {
  const bool began = launch.text_comes(at);
  __syncwarp();
  if (!began) return desk.mark(place, LATE);
  const Chunk& chunk = launch.chunks[at];
  const KeySlot& slot = launch.keys[chunk.key];
  uint8_t* target = launch.out + chunk.target;
  const uint32_t length = chunk.length;
  auto deliver = [&](uint32_t number, uint4 block) {
    if (launch.trace.progress) deliver_block(target, length, number, block);
  };
  auto stream = Cipher::stream(tables, GlobalKeys(slot.round_keys), __ldg(&slot.rounds), first_counter(chunk));
  if (ctr_differs<Cipher::BLOCKS>(stream, launch.input(at), launch.output(at), length, deliver))
    desk.mark(place, WRONG_TEXT);
}

template <class Cipher, class Integrity>
DEVICE void check_item(const typename Cipher::TablesAgain& tables, const CheckDesk& desk, const Launch& launch,
                       uint32_t item, const Results& results) {
  const uint32_t places = launch.places(), tags = (places + GROUP<Integrity> - 1) / GROUP<Integrity>;
  desk.clear(places);
  // Start with the last warps: when chunks are few, a processing block on the same multiprocessor has
  // them in its first warps.
  const uint32_t warps = blockDim.x / WARP;
  for (uint32_t unit = warps - 1 - threadIdx.x / WARP; unit < tags + places; unit += warps) {
    const uint32_t place = unit < tags ? unit * GROUP<Integrity> : unit - tags, at = launch.chunk_at(item, place);
    if (at >= launch.count) continue;
    if (unit < tags) {
      check_tags<Integrity>(desk, launch, item, place);
    } else {
      check_text<Cipher>(tables, desk, launch, place, at);
    }
  }
  __syncthreads();
  for (uint32_t place = threadIdx.x; place < places; place += blockDim.x) {
    const uint32_t at = launch.chunk_at(item, place);
    if (at >= launch.count || desk.marks(place) & LATE) continue;
    if (!launch.opens) results.tags[at] = launch.tag(at);
    const bool verified = launch.verified(at);
    const bool wrong = desk.marks(place) & (verified ? WRONG_TAG | WRONG_TEXT : WRONG_TAG);
    results.verdicts[at] = results.number << 2 | (wrong ? REFUTED : verified ? CONFIRMED : UNVERIFIED);
  }
}

template <class Cipher, class Integrity>
DEVICE void check_launch(uint8_t* shared, const Launch& launch, Claims claims, const Results& results) {
  const typename Cipher::TablesAgain tables(shared);
  const CheckDesk desk(shared + TABLES_BYTES);
  for (;;) {
    const uint32_t item = claim_item(desk, launch, claims);
    if (item == NO_ITEM) return;
    check_item<Cipher, Integrity>(tables, desk, launch, item, results);
  }
}

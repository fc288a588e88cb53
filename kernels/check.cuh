// The check of a launch of seal or open: before what it made counts, another multiprocessor makes tags and keystream
// again, from tables that come from another place, and compares. It is a launch of its own, or the later blocks of the
// same one, which begin with a chunk as soon as that has its ciphertext, and bring the output to the host's memory: so
// no block that publishes a word has to wait for that.
//
// The work is claimed by the block: what one block of the launch did is an item, and whoever claims it runs on another
// multiprocessor than that block did. An item that nobody could claim so gets no verdict, and the host does its chunks
// itself. Tags are made by the threads' variant whatever the launch used; keystream and tags of an item are made
// side by side by the warps of a block.
//
// Blocks of the same launch begin in order, as all devices have it, so none waits for one that waits for its place. No
// rule says so: who has waited in vain gives no verdict.
#pragma once
#include "ciphers.cuh"
#include "tag.cuh"

// What was launched, and what it made. Block b had the chunks of `run` from (b + k * blocks) * run on, for every k.
struct Launch {
  const KeySlot* keys;
  const Chunk* chunks;
  uint32_t count;
  const uint8_t* in;
  uint8_t* out;
  const void* made;  // tags, or whether each chunk verified, if progress is not traced
  Trace trace;
  uint32_t opens, blocks, run;

  // Places that an item has for chunks; some of the last ones may be empty.
  DEVICE uint32_t places() const { return (count + blocks * run - 1) / (blocks * run) * run; }
  // The chunk at a place of an item; `count` or more if there is none.
  DEVICE uint32_t chunk_at(uint32_t item, uint32_t place) const {
    return (item + place / run * blocks) * run + place % run;
  }
  // Whether the texts of a chunk, and what else was made of it, come in time.
  DEVICE bool text_comes(uint32_t at) const {
    if (!trace.progress) return true;
    const uint64_t* text = &trace.progress[at].text;
    // The last look sees the texts as well. Each such look forgets what this multiprocessor has cached.
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
  // What an opening says of a chunk: 1 if it verified, 0 if not.
  DEVICE uint32_t opening(uint32_t at) const {
    return trace.progress ? trace.progress[at].word(0) : static_cast<const uint32_t*>(made)[at];
  }
  DEVICE bool verified(uint32_t at) const { return !opens || opening(at) == 1; }
  // Whether what the launch says of the tag is what it must say if this is the tag; a word that is neither 0 nor 1
  // never is.
  DEVICE bool agrees(uint32_t at, uint4 tag) const {
    if (opens) return opening(at) == uint32_t(same_tag(tag, chunks[at]));
    uint4 difference = tag ^ this->tag(at);
    return (difference.x | difference.y | difference.z | difference.w) == 0;
  }
};

// By item: the number of the last launch for which it was claimed.
using Claims = uint64_t*;

// Where the host reads the result. A verdict is `number` * 4 and one of these.
struct Results {
  uint4* tags;
  uint32_t* verdicts;
  uint32_t number;
};
enum Verdict : uint32_t { CONFIRMED = 1, UNVERIFIED = 2, REFUTED = 3 };

// What may be wrong with a chunk: its text, its tag, or that it did not come in time.
enum Mark : uint32_t { WRONG_TEXT = 1, WRONG_TAG = 2, LATE = 4 };

// Words for what the block agrees on, and the marks of each place of an item.
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

// An item for this block that another multiprocessor did, if there is one left; every thread calls it and gets the
// same.
DEVICE uint32_t claim_item(const CheckDesk& desk, const Launch& launch, Claims claims) {
  for (Patience patience;;) {
    __syncthreads();  // all are done with the desk
    if (threadIdx.x == 0) desk.agreed() = launch.blocks, desk.coming() = 0;
    __syncthreads();
    // Neighbours run elsewhere, mostly.
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

// The tags of as many places as a warp makes tags at once.
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

// Writes a block of a text of `length` bytes, and nothing behind the text's end.
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

// Plaintext and ciphertext of a chunk, by one warp. Nobody asks for those of one that does not verify. What is
// delivered is what was compared.
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
  // The last warps first: few chunks are in the hands of the first warps of the block that makes them next to this one.
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

// The check of a launch of seal or open: before what it made counts, another multiprocessor makes tags and keystream
// again, from tables that come from another place, and compares.
//
// The work is claimed by the block: what one block of the launch did is an item, and whoever claims it runs on another
// multiprocessor than that block did. An item that nobody could claim so gets no verdict, and the host looks at its
// chunks itself. Tags are made by the threads' variant whatever the launch used; keystream and tags of an item are made
// side by side by the warps of a block.
#pragma once
#include "ciphers.cuh"
#include "tag.cuh"

// What was launched, and what it made. Block b had the chunks of `run` from (b + k * blocks) * run on, for every k.
struct Launch {
  const KeySlot* keys;
  const Chunk* chunks;
  uint32_t count;
  const uint8_t *in, *out;
  const void* made;  // tags, or whether each chunk verified
  Trace trace;
  uint32_t opens, blocks, run;

  // Places that an item has for chunks; some of the last ones may be empty.
  DEVICE uint32_t places() const { return (count + blocks * run - 1) / (blocks * run) * run; }
  // The chunk at a place of an item; `count` or more if there is none.
  DEVICE uint32_t chunk_at(uint32_t item, uint32_t place) const {
    return (item + place / run * blocks) * run + place % run;
  }
  DEVICE const uint8_t* input(uint32_t at) const {
    return trace.kept_in ? trace.kept_in + uint64_t(at) * CHUNK_BYTES : in + chunks[at].source;
  }
  DEVICE const uint8_t* output(uint32_t at) const {
    return trace.kept_out ? trace.kept_out + uint64_t(at) * CHUNK_BYTES : out + chunks[at].target;
  }
  DEVICE const uint8_t* ciphertext(uint32_t at) const { return opens ? input(at) : output(at); }
  DEVICE uint4 tag(uint32_t at) const { return static_cast<const uint4*>(made)[at]; }
  DEVICE bool verified(uint32_t at) const { return !opens || static_cast<const uint32_t*>(made)[at] == 1; }
  // Whether what the launch says of the tag is what it must say if this is the tag.
  DEVICE bool agrees(uint32_t at, uint4 tag) const {
    if (opens) return static_cast<const uint32_t*>(made)[at] == uint32_t(same_tag(tag, chunks[at]));
    uint4 difference = tag ^ this->tag(at);
    return (difference.x | difference.y | difference.z | difference.w) == 0;
  }
};

// Who has which item: the number of the last launch for which it was claimed.
struct Claims {
  volatile uint32_t* of_item;
  uint32_t launch;
};

// Where the host reads the result. A verdict is `number` * 4 and one of these.
struct Results {
  uint4* tags;
  uint32_t* verdicts;
  uint32_t number;
};
enum Verdict : uint32_t { CONFIRMED = 1, UNVERIFIED = 2, REFUTED = 3 };

// A word for what the block agrees on, and a bit for each place of an item that something is wrong with.
struct CheckDesk {
  static constexpr uint32_t PLACES = 8192, BYTES = 16 + PLACES / 8;
  uint32_t* start;
  DEVICE explicit CheckDesk(uint8_t* at) : start(reinterpret_cast<uint32_t*>(at)) {}
  DEVICE uint32_t& agreed() const { return start[0]; }
  DEVICE uint32_t& wrong(uint32_t place) const { return start[4 + place / 32]; }
  DEVICE void clear(uint32_t places) const {
    for (uint32_t i = threadIdx.x; 32 * i < places; i += blockDim.x) start[4 + i] = 0;
    __syncthreads();
  }
  DEVICE void mark(uint32_t place) const { atomicOr(&wrong(place), 1u << place % 32); }
  DEVICE bool marked(uint32_t place) const { return wrong(place) >> place % 32 & 1; }
};

constexpr uint32_t NO_ITEM = 0xffffffff;

// An item for this block that another multiprocessor did, if there is one left; every thread calls it and gets the same.
DEVICE uint32_t claim_item(const CheckDesk& desk, const Launch& launch, const Claims& claims) {
  for (;;) {
    __syncthreads();  // all are done with the desk
    if (threadIdx.x == 0) desk.agreed() = launch.blocks;
    __syncthreads();
    // Neighbours run elsewhere, mostly.
    const uint32_t first = blockIdx.x + 1;
    for (uint32_t i = threadIdx.x; i < launch.blocks; i += blockDim.x) {
      const uint32_t item = (first + i) % launch.blocks;
      if (claims.of_item[item] != claims.launch && launch.trace.done_by[item] != multiprocessor())
        atomicMin(&desk.agreed(), i);
    }
    __syncthreads();
    const uint32_t nearest = desk.agreed(), item = (first + nearest) % launch.blocks;
    if (nearest == launch.blocks) return NO_ITEM;
    __syncthreads();
    if (threadIdx.x == 0)
      desk.agreed() = atomicExch(const_cast<uint32_t*>(&claims.of_item[item]), claims.launch) != claims.launch;
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
  const uint4 tag = tag_by_threads<Integrity>(launch.keys, launch.chunks[at], launch.ciphertext(at));
  if (there && !launch.agrees(at, tag)) desk.mark(place);
}

// Plaintext and ciphertext of a chunk that verified, by one warp.
template <class Cipher>
DEVICE void check_text(const typename Cipher::TablesAgain& tables, const CheckDesk& desk, const Launch& launch,
                       uint32_t place, uint32_t at) {
  if (!launch.verified(at)) return;
  const Chunk& chunk = launch.chunks[at];
  const KeySlot& slot = launch.keys[chunk.key];
  auto stream = Cipher::stream(tables, GlobalKeys(slot.round_keys), __ldg(&slot.rounds), first_counter(chunk));
  if (ctr_differs<Cipher::BLOCKS>(stream, launch.input(at), launch.output(at), chunk.length)) desk.mark(place);
}

template <class Cipher, class Integrity>
DEVICE void check_item(const typename Cipher::TablesAgain& tables, const CheckDesk& desk, const Launch& launch,
                       uint32_t item, const Results& results) {
  const uint32_t places = launch.places(), tags = (places + GROUP<Integrity> - 1) / GROUP<Integrity>;
  desk.clear(places);
  for (uint32_t unit = threadIdx.x / WARP; unit < tags + places; unit += blockDim.x / WARP) {
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
    if (at >= launch.count) continue;
    if (!launch.opens) results.tags[at] = launch.tag(at);
    const uint32_t right = launch.verified(at) ? CONFIRMED : UNVERIFIED;
    results.verdicts[at] = results.number << 2 | (desk.marked(place) ? REFUTED : right);
  }
}

template <class Cipher, class Integrity>
DEVICE void check_launch(uint8_t* shared, const Launch& launch, const Claims& claims, const Results& results) {
  const typename Cipher::TablesAgain tables(shared);
  const CheckDesk desk(shared + TABLES_BYTES);
  for (;;) {
    const uint32_t item = claim_item(desk, launch, claims);
    if (item == NO_ITEM) return;
    check_item<Cipher, Integrity>(tables, desk, launch, item, results);
  }
}

// Random numbers in place, by the global index of an element: the same bits on every mesh and by
// every placement. A piece is this rank's box of a global tensor; strides do not matter.

#pragma once

#include <cstdint>

#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {

// The numbers of one stream of a seed (dtensor/base/philox.h).
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

// The next unnamed stream of the Context's Generator, which it takes: dropout's. Equal on all ranks
// that made the same calls.
RandomStream next_random_stream();

struct GlobalPiece {
  const Tensor& piece;
  const Box& box;       // what it is of the whole; of the piece's shape
  const Shape& global;  // of the whole
};

// mean + std z for standard normal z, and low + (high - low) u for u in [0, 1): computed in f64,
// rounded once; a uniform number that would round up to `high` (in a 16-bit type one of some
// hundreds does) is the one below it. Element i takes the first words of block i. ArgumentError for
// a dtype that is not floating.
void fill_normal(const GlobalPiece& to, RandomStream stream, double mean = 0.0, double std = 1.0);
void fill_uniform(const GlobalPiece& to, RandomStream stream, double low = 0.0, double high = 1.0);

// Random bits in bulk, four elements to a block: element i takes word i % 4 of block i / 4. Fills
// out[0..count) with those of the elements first, first + 1, ...
void random_words(RandomStream stream, uint64_t first, int64_t count, uint32_t* out);
// The element with these words happens, at probability p in [0, 1], where word < threshold(p).
uint64_t bernoulli_threshold(double p);

}  // namespace dtensor

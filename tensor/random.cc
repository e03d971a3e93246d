#include "dtensor/tensor/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/tensor/convert.h"
#include "dtensor/tensor/strided.h"

namespace dtensor {
namespace {

// f(offset in the piece, its step, global index of the first element, its step, length) for every
// row; global indices are row-major.
template <class F>
void for_each_global_row(const GlobalPiece& to, const F& f) {
  internal_check(to.piece.shape() == to.box.size, "a piece of another shape than its box");
  const Shape rows = contiguous_strides(to.global);
  int64_t first = 0;
  for (int d = 0; d < to.global.ndim(); ++d) first += to.box.offset[d] * rows[d];
  internal::for_each_row<2>(
      to.piece.shape(), {to.piece.strides(), rows},
      [&](const internal::Offsets<2>& at, int64_t n, const internal::Offsets<2>& step) {
        f(at[0], step[0], first + at[1], step[1], n);
      });
}

// Writes draw(global index) to every element, rounded to its type and then what `kept` makes of it.
template <class Draw, class Kept>
void fill(const GlobalPiece& to, const Draw& draw, const Kept& kept) {
  if (!is_floating(to.piece.dtype())) {
    throw ArgumentError("random numbers for a tensor of " + std::string(name_of(to.piece.dtype())) +
                        ": they are floating; make them in f32 and cast");
  }
  to.piece.storage()->bump_version();  // also of an empty piece, as on the other ranks
  if (to.piece.numel() == 0) return;
  visit_dtype(to.piece.dtype(), [&](auto type) {
    using T = decltype(type);
    T* out = to.piece.data<T>();
    for_each_global_row(
        to, [&](int64_t at, int64_t step, int64_t index, int64_t index_step, int64_t n) {
          for (int64_t k = 0; k < n; ++k) {
            const double x = draw(static_cast<uint64_t>(index + k * index_step));
            out[at + k * step] = kept(internal::convert<T>(x));
          }
        });
  });
}

// The next smaller number.
template <class T>
T below(T x) {
  if constexpr (internal::kIs16Bit<T>) {
    constexpr uint16_t kSign = 0x8000;
    if ((x.bits & ~kSign) == 0) {
      x.bits = kSign | 1U;
    } else {
      x.bits = static_cast<uint16_t>((x.bits & kSign) != 0 ? x.bits + 1 : x.bits - 1);
    }
    return x;
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  } else {
    return x;
  }
}

}  // namespace

RandomStream next_random_stream() {
  auto& generator = Context::current().slot<Generator>();
  return {generator.seed, generator.next_stream++};
}

void fill_normal(const GlobalPiece& to, RandomStream s, double mean, double std) {
  const auto draw = [&](uint64_t i) {
    return mean + std * static_cast<double>(philox_normal(s.seed, s.stream, i));
  };
  fill(to, draw, [](auto x) { return x; });
}

void fill_uniform(const GlobalPiece& to, RandomStream s, double low, double high) {
  const auto draw = [&](uint64_t i) {
    return low + (high - low) * static_cast<double>(philox_uniform(s.seed, s.stream, i));
  };
  const auto under_high = [&](auto x) {
    return low < high && internal::convert<double>(x) >= high ? below(x) : x;
  };
  fill(to, draw, under_high);
}

void random_words(RandomStream s, uint64_t first, int64_t count, uint32_t* out) {
  uint64_t block = first / 4;
  auto skip = static_cast<int64_t>(first % 4);
  while (count > 0) {
    const PhiloxBlock words = philox_at(s.seed, s.stream, block++);
    const int64_t n = std::min(4 - skip, count);
    std::copy_n(words.begin() + skip, n, out);
    out += n;
    count -= n;
    skip = 0;
  }
}

uint64_t bernoulli_threshold(double p) {
  if (!(p >= 0.0 && p <= 1.0)) {
    throw ArgumentError("a probability is in [0, 1], got " + std::to_string(p));
  }
  return static_cast<uint64_t>(std::llround(p * 0x1p32));
}

}  // namespace dtensor

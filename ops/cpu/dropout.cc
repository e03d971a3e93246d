#include "dtensor/ops/cpu/dropout.h"

#include <algorithm>
#include <array>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

// Runs of a piece whose elements lie behind each other in the whole: the last dims that the piece
// has all of, and one more.
struct Runs {
  int64_t count = 1;
  int64_t length = 1;
  int outer = 0;  // dims that count runs

  explicit Runs(const GlobalPiece& p) : outer(p.global.ndim()) {
    bool whole = true;
    while (outer > 0 && whole) {
      --outer;
      length *= p.piece.shape()[outer];
      whole = p.piece.shape()[outer] == p.global[outer];
    }
    for (int d = 0; d < outer; ++d) count *= p.piece.shape()[d];
  }

  // The global row-major index of a run's first element.
  uint64_t first(const GlobalPiece& p, int64_t run) const {
    uint64_t index = 0;
    uint64_t stride = 1;
    for (int d = p.global.ndim() - 1; d >= 0; --d) {
      int64_t at = p.box.offset[d];
      if (d < outer) {
        at += run % p.piece.shape()[d];
        run /= p.piece.shape()[d];
      }
      index += static_cast<uint64_t>(at) * stride;
      stride *= static_cast<uint64_t>(p.global[d]);
    }
    return index;
  }
};

constexpr int64_t kWords = 1024;  // drawn at once

template <class T>
void drop(const GlobalPiece& p, const Tensor& x, RandomStream stream, double probability, T* out) {
  using A = simd::Compute<T>;
  const T* from = x.data<T>();
  const Runs runs(p);
  const uint64_t threshold = bernoulli_threshold(1 - probability);
  const A factor = probability < 1 ? static_cast<A>(1 / (1 - probability)) : A{0};
  const auto some = [&](int64_t begin, int64_t end, uint64_t first) {
    std::array<uint32_t, kWords> words;
    for (int64_t done = begin; done < end; done += kWords) {
      const int64_t n = std::min(kWords, end - done);
      random_words(stream, first + static_cast<uint64_t>(done - begin), n, words.data());
      for (int64_t i = 0; i < n; ++i) {
        const A v = static_cast<A>(from[done + i]) * factor;
        out[done + i] = words[static_cast<size_t>(i)] < threshold ? T(v) : T(A{0});
      }
    }
  };
  if (runs.count == 1) {
    const uint64_t first = runs.first(p, 0);
    return parallel_for(runs.length, kGrain, [&](int64_t begin, int64_t end) {
      some(begin, end, first + static_cast<uint64_t>(begin));
    });
  }
  parallel_rows(runs.count, runs.length, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      some(run * runs.length, (run + 1) * runs.length, runs.first(p, run));
    }
  });
}

}  // namespace

Tensor dropout(const GlobalPiece& p, RandomStream stream, double probability) {
  const Tensor x = p.piece.contiguous();
  const Tensor out = Tensor::empty(x.shape(), x.dtype());
  if (x.dtype() == DType::kFloat16) {
    const Tensor wide = x.to(DType::kFloat32);
    return dropout({wide, p.box, p.global}, stream, probability).to(DType::kFloat16);
  }
  visit_floating("dropout", x.dtype(), [&](auto t) {
    if (x.numel() > 0) drop(p, x, stream, probability, out.data<decltype(t)>());
  });
  return out;
}

}  // namespace dtensor::cpu

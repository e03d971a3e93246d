#include "dtensor/ops/cpu/attention_backward.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dtensor/ops/cpu/block_gemm.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu::internal {
namespace {

template <class A>
struct Rows {
  A* data;
  int64_t pitch;
};

template <class A>
class Backward {
 public:
  Backward(const AttentionSizes& n, KeyLimit limit, const ScoreMask<A>& mask)
      : n_(n),
        limit_(limit),
        mask_(mask),
        p_(kQueryTile * kKeyTile),
        ds_(kQueryTile * kKeyTile),
        delta_(kQueryTile) {}

  // A tile of `rows` queries from `position` on, of one head, against all keys that they see.
  struct Tile {
    int64_t b, g, r;
    int64_t position;
    int64_t rows;
    Rows<A> q, grad, out, dq;
    const A* lse;
    int64_t lse_pitch;
  };
  void run(const Tile& tile, const Rows<A>& k, const Rows<A>& v, const Rows<A>& dk,
           const Rows<A>& dv) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const A* g = tile.grad.data + i * tile.grad.pitch;
      const A* o = tile.out.data + i * tile.out.pitch;
      A sum = 0;
      for (int64_t c = 0; c < n_.d; ++c) sum += g[c] * o[c];
      delta_[static_cast<size_t>(i)] = sum;
    }
    const int64_t visible = limit_(tile.position + tile.rows - 1, 0, n_.s);
    for (int64_t first = 0; first < visible; first += kKeyTile) {
      keys(tile, k, v, dk, dv, first, std::min(kKeyTile, visible - first));
    }
  }

 private:
  void keys(const Tile& tile, const Rows<A>& k, const Rows<A>& v, const Rows<A>& dk,
            const Rows<A>& dv, int64_t first, int64_t count) {
    const Block<A> q{tile.q.data, tile.q.pitch};
    const Block<A> g{tile.grad.data, tile.grad.pitch};
    const A* kj = k.data + first * k.pitch;
    const A* vj = v.data + first * v.pitch;
    const OutBlock<A> p{p_.data(), kKeyTile};
    const OutBlock<A> ds{ds_.data(), kKeyTile};
    const GemmSize scores{tile.rows, count, n_.d};
    block_gemm(scores, q, Block<A>{kj, k.pitch, Op::kTranspose}, p,
               {.alpha = static_cast<A>(n_.scale)});
    block_gemm(scores, g, Block<A>{vj, v.pitch, Op::kTranspose}, ds);
    if (mask_.defined()) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        mask_.apply({tile.b, tile.g, tile.r, tile.position + i}, first, count,
                    p_.data() + i * kKeyTile);
      }
    }
    simd::dispatch([&](auto isa) {
      for (int64_t i = 0; i < tile.rows; ++i) {
        const A lse = tile.lse[i * tile.lse_pitch];
        const bool sees_none = lse == -std::numeric_limits<A>::infinity();
        const int64_t seen = sees_none ? 0 : limit_(tile.position + i, first, count);
        row<decltype(isa)>(i, lse, seen, count);
      }
    });
    const GemmSize into_keys{count, n_.d, tile.rows};
    block_gemm(into_keys, Block<A>{p_.data(), kKeyTile, Op::kTranspose}, g,
               OutBlock<A>{dv.data + first * dv.pitch, dv.pitch}, {.beta = 1});
    block_gemm(into_keys, Block<A>{ds_.data(), kKeyTile, Op::kTranspose}, q,
               OutBlock<A>{dk.data + first * dk.pitch, dk.pitch}, {.beta = 1});
    block_gemm({tile.rows, n_.d, count}, Block<A>{ds_.data(), kKeyTile}, Block<A>{kj, k.pitch},
               OutBlock<A>{tile.dq.data, tile.dq.pitch}, {.beta = 1});
  }

  // Scores become probabilities, g vᵀ becomes the gradient of the scores before scaling by q or k.
  template <class Isa>
  DTENSOR_INLINE void row(int64_t i, A lse, int64_t seen, int64_t count) {
    constexpr int kLanes = Isa::template lanes<A>();
    A* p = p_.data() + i * kKeyTile;
    A* ds = ds_.data() + i * kKeyTile;
    const A delta = delta_[static_cast<size_t>(i)];
    const auto scale = static_cast<A>(n_.scale);
    // Whole vectors: lanes beyond the keys that are seen have probability exp(-inf) = 0.
    const int64_t whole = (seen + kLanes - 1) / kLanes * kLanes;
    std::fill(p + seen, p + whole, -std::numeric_limits<A>::infinity());
    for (int64_t j = 0; j < whole; j += kLanes) {
      const auto e = simd::exp<kLanes>(simd::load<kLanes>(p + j) - lse);
      simd::store<kLanes>(p + j, e);
      simd::store<kLanes>(ds + j, e * (simd::load<kLanes>(ds + j) - delta) * scale);
    }
    if (whole >= count) return;
    std::fill(p + whole, p + count, A{0});
    std::fill(ds + whole, ds + count, A{0});
  }

  AttentionSizes n_;
  KeyLimit limit_;
  const ScoreMask<A>& mask_;
  std::vector<A> p_;
  std::vector<A> ds_;
  std::vector<A> delta_;
};

}  // namespace

template <class A>
void attention_backward_into(const AttentionSizes& n, KeyLimit limit,
                             const AttentionBackwardInputs& inputs, const AttentionSums& sums) {
  const Heads<A> q(inputs.q);
  const Heads<A> k(inputs.k);
  const Heads<A> v(inputs.v);
  const Heads<A> grad(inputs.grad);
  const Heads<A> out(inputs.out);
  const Heads<A> dq(sums.dq);
  const Heads<A> dk(sums.dk);
  const Heads<A> dv(sums.dv);
  const ScoreMask<A> mask("attention_backward", inputs.mask, n, inputs.q.dtype());
  const Tensor lse = inputs.lse.to(kDTypeOf<A>).contiguous();
  parallel_for(n.b * n.g, 1, [&](int64_t begin, int64_t end) {
    Backward<A> work(n, limit, mask);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / n.g;
      const int64_t g = task % n.g;
      for (int64_t r = 0; r < n.r; ++r) {
        for (int64_t t = 0; t < n.t; t += kQueryTile) {
          work.run({.b = b,
                    .g = g,
                    .r = r,
                    .position = t,
                    .rows = std::min(kQueryTile, n.t - t),
                    .q = {q.at(b, t, g, r), q.pitch()},
                    .grad = {grad.at(b, t, g, r), grad.pitch()},
                    .out = {out.at(b, t, g, r), out.pitch()},
                    .dq = {dq.at(b, t, g, r), dq.pitch()},
                    .lse = lse.data<A>() + ((b * n.t + t) * n.g + g) * n.r + r,
                    .lse_pitch = n.g * n.r},
                   {k.at(b, 0, g), k.pitch()}, {v.at(b, 0, g), v.pitch()},
                   {dk.at(b, 0, g), dk.pitch()}, {dv.at(b, 0, g), dv.pitch()});
        }
      }
    }
  });
}

template void attention_backward_into<float>(const AttentionSizes&, KeyLimit,
                                             const AttentionBackwardInputs&, const AttentionSums&);
template void attention_backward_into<double>(const AttentionSizes&, KeyLimit,
                                              const AttentionBackwardInputs&, const AttentionSums&);

}  // namespace dtensor::cpu::internal

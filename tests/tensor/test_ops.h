// A few ops on the local pieces, recorded by record(): what tests of autograd need without the
// package of ops.

#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::testing {

inline DTensor like(const DTensor& t, Tensor local, const Layout& layout) {
  return t.mesh().defined() ? DTensor(std::move(local), layout, t.mesh())
                            : DTensor(std::move(local));
}

template <class F>
Tensor map(const Tensor& t, F f) {
  std::vector<float> values = t.to_vector<float>();
  for (float& x : values) x = f(x);
  return Tensor::of(std::span<const float>(values), t.shape());
}

inline float sum_of(const Tensor& t) {
  float sum = 0;
  for (const float x : t.to_vector<float>()) sum += x;
  return sum;
}

inline DTensor recorded(const std::string& op, const std::vector<DTensor>& in, DTensor out,
                        BackwardFn backward, const Node::Options& options = {}) {
  record(op, in, {&out, 1}, std::move(backward), options);
  return out;
}

// c x: linear, by any placement.
inline DTensor scale(const DTensor& x, float c) {
  const auto times = [c](const DTensor& t) {
    return like(t, map(t.local_tensor(), [c](float v) { return c * v; }), t.layout());
  };
  return recorded("scale", {x}, times(x),
                  [times](std::span<const DTensor> g) { return std::vector<DTensor>{times(g[0])}; },
                  {.passes_partial = true});
}

// a + b of one layout: jointly linear, so a Partial gradient is resolved first where both want one.
inline DTensor plus(const DTensor& a, const DTensor& b) {
  const Tensor sum = Tensor::empty(a.local_tensor().shape(), a.dtype());
  kernels::add(a.local_tensor(), b.local_tensor(), sum);
  return recorded("plus", {a, b}, like(a, sum, a.layout()),
                  [](std::span<const DTensor> g) {
                    return std::vector<DTensor>{g[0], g[0]};
                  },
                  {.passes_partial = true});
}

// exp: not linear.
inline DTensor exponential(const DTensor& x) {
  const auto f = [](float v) { return std::exp(v); };
  const DTensor y = like(x, map(x.local_tensor(), f), x.layout());
  return recorded("exp", {x}, y, [saved = Saved(y, "exp")](std::span<const DTensor> g) {
    const auto values = saved.value().local_tensor().to_vector<float>();
    size_t i = 0;
    return std::vector<DTensor>{like(
        g[0], map(g[0].local_tensor(), [&](float v) { return v * values[i++]; }), g[0].layout())};
  });
}

// The cut mesh dims of a layout, as Partial of a scalar.
inline Layout summed(const Layout& layout) {
  Layout out = Layout::replicated(layout.mesh(), Shape{});
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (!layout.placement(m).is_replicate()) out = out.with(m, Partial());
  }
  return out;
}

// The layout of a gradient spread over x: cut like x, Partial where the upstream one is.
inline Layout spread(const Layout& x, const Layout& upstream) {
  Layout out = x;
  for (int m = 0; m < x.mesh().ndim(); ++m) {
    if (x.placement(m).is_partial()) out = out.with(m, Replicate());
    if (x.placement(m).is_replicate() && upstream.placement(m).is_partial()) {
      out = out.with(m, upstream.placement(m));
    }
  }
  return out;
}

// The sum of all elements: Partial where x is cut.
inline DTensor total(const DTensor& x) {
  const Tensor sum = Tensor::full({}, sum_of(x.local_tensor()));
  const DTensor out = like(x, sum, summed(x.layout()));
  return recorded(
      "total", {x}, out,
      [x = x.detach()](std::span<const DTensor> g) {
        const float v = g[0].local_tensor().to_vector<float>()[0];
        const Layout layout = spread(x.layout(), g[0].layout());
        return std::vector<DTensor>{like(x, Tensor::full(x.local_tensor().shape(), v), layout)};
      },
      {.passes_partial = true});
}

// w times the sum of x, for a scalar w: its gradient is Partial where x is cut.
inline DTensor weighted(const DTensor& w, const DTensor& x) {
  const float sum = sum_of(x.local_tensor());
  const float v = w.local_tensor().to_vector<float>()[0];
  return recorded("weighted", {w}, like(w, Tensor::full({}, v * sum), summed(x.layout())),
                  [sum, layout = summed(x.layout())](std::span<const DTensor> g) {
                    const float up = g[0].local_tensor().to_vector<float>()[0];
                    return std::vector<DTensor>{like(g[0], Tensor::full({}, up * sum), layout)};
                  });
}

}  // namespace dtensor::testing

// Pieces of a global array by plain loops: what a rank holds under a layout, and the array that the
// pieces of all ranks stand for. The oracle of tests that move tensors.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::testing {

// Calls f(global index, row-major position in the whole, position in the box).
inline void for_each_element(const Box& box, const Shape& whole,
                             const std::function<void(int64_t, int64_t)>& f) {
  const int64_t n = box.numel();
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = k;
    int64_t at = 0;
    int64_t step = 1;
    for (int d = whole.ndim() - 1; d >= 0; --d) {
      at += (box.offset[d] + rest % box.size[d]) * step;
      rest /= box.size[d];
      step *= whole[d];
    }
    f(at, k);
  }
}

inline std::vector<int> partial_dims(const Layout& layout) {
  std::vector<int> dims;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_partial()) dims.push_back(m);
  }
  return dims;
}

// Number of terms of a Partial tensor, and which one a coordinate holds.
inline int64_t terms(const Layout& layout) {
  int64_t n = 1;
  for (const int m : partial_dims(layout)) n *= layout.mesh().size(m);
  return n;
}
inline int64_t term_at(const Layout& layout, const Coordinate& at) {
  int64_t c = 0;
  for (const int m : partial_dims(layout)) c = c * layout.mesh().size(m) + at[m];
  return c;
}

// Term c of n of a value: small whole numbers, so that every order of reduction is exact.
inline float term(float value, int64_t element, int64_t c, int64_t n, PartialOp op) {
  const auto noise = [&](int64_t k) { return static_cast<float>((element * 31 + k * 17) % 7); };
  const int64_t holder = element % n;  // of the value, for min and max
  switch (op) {
    case PartialOp::kSum: {
      if (c > 0) return noise(c) - 3;
      float rest = value;
      for (int64_t k = 1; k < n; ++k) rest -= noise(k) - 3;
      return rest;
    }
    case PartialOp::kMax:
      return c == holder ? value : value - 1 - noise(c);
    case PartialOp::kMin:
      return c == holder ? value : value + 1 + noise(c);
    case PartialOp::kProd:
      break;
  }
  const float sign = (element + c) % 2 == 0 ? 1.0F : -1.0F;
  if (c > 0) return sign;
  float all = value;
  for (int64_t k = 1; k < n; ++k) all *= (element + k) % 2 == 0 ? 1.0F : -1.0F;
  return all;
}

// What the rank at a coordinate holds of an array.
inline Tensor piece_of(const Layout& layout, const Coordinate& at,
                       const std::vector<float>& global) {
  const Box box = layout.box(at);
  std::vector<float> values(static_cast<size_t>(box.numel()));
  const int64_t n = terms(layout);
  const PartialOp op = layout.spec().has_partial() ? layout.spec().partial_op() : PartialOp::kSum;
  for_each_element(box, layout.shape(), [&](int64_t i, int64_t k) {
    const float x = global[static_cast<size_t>(i)];
    values[static_cast<size_t>(k)] = n == 1 ? x : term(x, i, term_at(layout, at), n, op);
  });
  return Tensor::of(std::span<const float>(values), box.size);
}

inline float reduced(PartialOp op, float a, float b) {
  switch (op) {
    case PartialOp::kSum:
      return a + b;
    case PartialOp::kMin:
      return std::min(a, b);
    case PartialOp::kMax:
      return std::max(a, b);
    case PartialOp::kProd:
      break;
  }
  return a * b;
}

// Checks that the pieces of all ranks, in the order of the mesh's ranks, stand for `global`: every
// rank's box, reduced over the ranks that differ from it only on Partial mesh dims. The first fault
// as text, else empty.
inline std::string fault(const Layout& layout, const std::vector<std::vector<float>>& pieces,
                         const std::vector<float>& global) {
  const MeshLayout& mesh = layout.mesh();
  const std::vector<int> dims = partial_dims(layout);
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    const Box box = layout.box(at);
    if (pieces[static_cast<size_t>(i)].size() != static_cast<size_t>(box.numel())) {
      return "rank index " + std::to_string(i) + " has another number of elements";
    }
    std::string wrong;
    for_each_element(box, layout.shape(), [&](int64_t e, int64_t k) {
      std::optional<float> value;
      for (const int rank : mesh.group(at, dims)) {
        const auto& ranks = mesh.ranks();
        const auto j =
            static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
        const float x = pieces[j][static_cast<size_t>(k)];
        value = value ? reduced(layout.spec().partial_op(), *value, x) : x;
      }
      if (*value == global[static_cast<size_t>(e)] || !wrong.empty()) return;
      wrong = "rank index " + std::to_string(i) + ", element " + std::to_string(e) + ": " +
              std::to_string(*value) + " instead of " +
              std::to_string(global[static_cast<size_t>(e)]);
    });
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace dtensor::testing

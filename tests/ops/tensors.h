// Tensors of written-out values for the tests of ops, and their values back.

#pragma once

#include <functional>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"

namespace dtensor::testing {

using Placed = std::initializer_list<Placement>;

inline Tensor floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::of(std::span<const float>(values), shape);
}

inline Tensor counted(const Shape& shape) {  // 0, 1, 2, ...
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0F);
  return floats(values, shape);
}

inline Tensor ids(std::initializer_list<int64_t> values, const Shape& shape) {
  return Tensor::of(values, shape);
}

inline DTensor leaf(const Tensor& whole, const DeviceMesh& mesh, Placed placements) {
  DTensor t = distribute(whole, mesh, placements);
  t.set_requires_grad(true);
  return t;
}

// A P(sum) tensor on a mesh of one dim from every rank's part.
inline DTensor partial(const std::vector<std::vector<float>>& parts, const Shape& shape,
                       const DeviceMesh& mesh, PartialOp op = PartialOp::kSum) {
  const auto& mine = parts[static_cast<size_t>((*mesh.coordinate())[0])];
  return DTensor(floats(mine, shape), Layout(mesh.layout(), shape, {Partial(op)}), mesh);
}

// This rank's piece, and the whole value (a collective).
inline std::vector<float> piece(const DTensor& t) {
  return t.local_tensor().contiguous().to_vector<float>();
}
inline std::vector<float> whole(const DTensor& t) {
  return full(t).contiguous().to_vector<float>();
}

inline int64_t moved_bytes() { return Context::current().slot<Ledger>().payload_bytes(); }

// The text of the PlacementError that f throws; "" where it throws none.
inline std::string placement_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const PlacementError& e) {
    return e.what();
  }
  return "";
}

}  // namespace dtensor::testing

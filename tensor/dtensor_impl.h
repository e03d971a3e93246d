// What is behind a DTensor handle, for the files of this package.

#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

struct DTensor::Impl {
  Impl(Tensor l, DType d, Layout where, DeviceMesh m)
      : local(std::move(l)), dtype(d), layout(std::move(where)), mesh(std::move(m)) {}

  Tensor local;  // undefined where this rank is outside the mesh
  DType dtype = DType::kFloat32;
  Layout layout;
  DeviceMesh mesh;

  bool requires_grad = false;   // as a leaf
  DTensor grad;                 // of a leaf
  std::vector<GradHook> hooks;  // of a leaf; others keep theirs in their node
  std::shared_ptr<Node> node;   // that made it
  int output = 0;               // which of the node's outputs it is
  uint64_t made_version = 0;    // of the storage, when the node made it
};

namespace internal {

// "x f32[4,4] [tp:S(0)]" without the name: for messages.
std::string describe(const DTensor& t);

// This rank's piece; undefined outside the mesh.
Tensor local_or_none(const DTensor& t);
// The DTensor of a piece that a Move gave, which is undefined outside the mesh.
DTensor placed(Tensor local, DType dtype, const Layout& layout, const DeviceMesh& mesh);

}  // namespace internal
}  // namespace dtensor

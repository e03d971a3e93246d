// What the files of this package do with DTensors beside what their users do.

#pragma once

#include <string>

#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

namespace internal {

// "x f32[4,4] [tp:S(0)]" without the name: for messages.
std::string describe(const DTensor& t);

// A DTensor of a local tensor that is known to have the layout's local shape.
DTensor of_piece(Tensor local, Layout layout, const DeviceMesh& mesh);

// This rank's piece; undefined outside the mesh.
Tensor local_or_none(const DTensor& t);
// The DTensor of a piece that a Move gave, which is undefined outside the mesh.
DTensor placed(Tensor local, DType dtype, const Layout& layout, const DeviceMesh& mesh);

}  // namespace internal
}  // namespace dtensor

// New tensors that lie like a given one. No messages, no gradient.

#pragma once

#include <optional>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// The shape, mesh and cuts of `like` (R where it is Partial), and its dtype unless one is given.
struct LikeOptions {
  std::optional<DType> dtype = {};
};
DTensor full_like(const DTensor& like, double value, const LikeOptions& options = {});
DTensor zeros_like(const DTensor& like, const LikeOptions& options = {});
DTensor ones_like(const DTensor& like, const LikeOptions& options = {});

// R on the mesh of `like`, on none where it is on none; dtype f32 unless one is given.
//   arange    begin, begin + step, ... below end (above it where step is negative)
//   linspace  n numbers from begin to end, both included
//   eye       [n,m], 1 on the diagonal; m = n where not given
struct ArangeOptions {
  double step = 1.0;
  DType dtype = DType::kFloat32;
};
DTensor arange(double begin, double end, const DTensor& like, const ArangeOptions& options);
DTensor linspace(double begin, double end, int64_t n, const DTensor& like,
                 DType dtype = DType::kFloat32);
DTensor eye(int64_t n, const DTensor& like, std::optional<int64_t> m = {},
            DType dtype = DType::kFloat32);

}  // namespace dtensor

// New tensors, and whole tensors onto a mesh. No messages: every rank makes its own piece. A
// Partial one holds the value at coordinate 0 and the op's identity elsewhere (min and max: the
// value everywhere). Missing placements at the end are R.

#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Every rank has `full`, of the global shape; its piece is copied.
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                                 std::span<const Placement> placements);
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                                 std::initializer_list<Placement> placements);
[[nodiscard]] DTensor distribute(const Tensor& full, const DeviceMesh& mesh, const Layout& layout);

struct FactoryOptions {
  DType dtype = DType::kFloat32;
  uint64_t seed = 0;             // of randn and uniform
  std::string_view stream = {};  // a name; the bits depend on (seed, stream, global index) alone
};
// Without a mesh: on no mesh.
DTensor zeros(const Shape& shape, const DeviceMesh& mesh = {},
              std::span<const Placement> placements = {}, const FactoryOptions& options = {});
// For integers the fraction of `value` is dropped; ArgumentError where it is beyond their range.
DTensor full(const Shape& shape, double value, const DeviceMesh& mesh = {},
             std::span<const Placement> placements = {}, const FactoryOptions& options = {});
// Standard normal, and uniform in [0, 1): the same bits on every mesh and by every placement.
// ArgumentError for a dtype that is not floating.
DTensor randn(const Shape& shape, const DeviceMesh& mesh = {},
              std::span<const Placement> placements = {}, const FactoryOptions& options = {});
DTensor uniform(const Shape& shape, const DeviceMesh& mesh = {},
                std::span<const Placement> placements = {}, const FactoryOptions& options = {});
// The same with placements written in place: zeros({4, 11}, mesh, {Replicate(), Shard(0)}).
DTensor zeros(const Shape& shape, const DeviceMesh& mesh,
              std::initializer_list<Placement> placements, const FactoryOptions& options = {});
DTensor full(const Shape& shape, double value, const DeviceMesh& mesh,
             std::initializer_list<Placement> placements, const FactoryOptions& options = {});
DTensor randn(const Shape& shape, const DeviceMesh& mesh,
              std::initializer_list<Placement> placements, const FactoryOptions& options = {});
DTensor uniform(const Shape& shape, const DeviceMesh& mesh,
                std::initializer_list<Placement> placements, const FactoryOptions& options = {});

// R on the mesh of `like`, on none where it is on none: 0, 1, ..., n-1; and a value that every rank
// has, sharing its memory.
DTensor arange(int64_t n, const DTensor& like, const FactoryOptions& options = {});
DTensor constant(const Tensor& value, const DTensor& like);

// ArgumentError, in the name of `op`, where integers of the dtype do not reach to the number.
void check_range(std::string_view op, DType dtype, double value);
// Fills a tensor in place with a number: a Partial one at coordinate 0, elsewhere with the op's
// identity (min and max: everywhere). The caller has checked the range.
void fill_value(const DTensor& t, double value);
// Fills a tensor in place with standard normal numbers times `std`, keyed as randn.
void fill_normal(const DTensor& t, double std, uint64_t seed, std::string_view stream);

}  // namespace dtensor

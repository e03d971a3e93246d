// Chain: groups whose gradients are sums of their inputs, for tests of when they are gathered and
// reduced.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"

namespace dtensor::testing {

// y = x w, or x where `used` says no.
class Scale : public nn::Module {
 public:
  explicit Scale(int64_t n) : weight(add_parameter("weight", {n})) {
    weight.value().replace(DTensor(Tensor::full({n}, 1.0)));
  }
  std::string_view kind() const override { return "Scale"; }
  nn::Parameter weight;
  bool used = true;

 protected:
  DTensor forward(const nn::Inputs& in) override { return used ? mul(in[0], weight.use()) : in[0]; }
};

class Chain : public nn::Module {
 public:
  Chain(int groups, int64_t n) : own(n) {
    add_child("own", own);
    for (int i = 0; i < groups; ++i) {
      parts.push_back(std::make_unique<Scale>(n));
      add_child("parts." + std::to_string(i), *parts.back());
    }
  }
  std::string_view kind() const override { return "Chain"; }
  Scale own;  // of the root's group
  std::vector<std::unique_ptr<Scale>> parts;
  size_t first = 0;  // the first part that runs

 protected:
  DTensor forward(const nn::Inputs& in) override {
    DTensor x = own(in[0]);
    for (size_t i = first; i < parts.size(); ++i) x = (*parts[i])(x);
    return x;
  }
};

inline void shard_all(Chain& net, const MeshSlice& dims, const fsdp::Options& options = {}) {
  for (auto& part : net.parts) fsdp::fully_shard(*part, dims);
  fsdp::fully_shard(net, dims, options);
}

// [ranks, n] with row r of value f(r); cut by rows over all mesh dims, or placed as told.
inline DTensor row_per_rank(const DeviceMesh& mesh, int64_t n, const std::function<double(int)>& f,
                            std::vector<Placement> placements = {}) {
  Tensor x = Tensor::empty({mesh.size(), n});
  for (int r = 0; r < mesh.size(); ++r) {
    for (int64_t i = 0; i < n; ++i) x.data<float>()[r * n + i] = static_cast<float>(f(r));
  }
  if (placements.empty()) placements.assign(static_cast<size_t>(mesh.ndim()), Shard(0));
  return distribute(x, mesh, placements);
}

}  // namespace dtensor::testing

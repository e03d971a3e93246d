// Small models for tests of wrappers, and data for them.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"

namespace dtensor::testing {

// y = down(relu(up(x)))
class Mlp : public nn::Module {
 public:
  struct Sizes {
    int64_t in = 3;
    int64_t hidden = 5;
    int64_t out = 2;
    bool bias = true;
  };
  explicit Mlp(const Sizes& s)
      : up(s.in, s.hidden, {.bias = s.bias}), down(s.hidden, s.out, {.bias = s.bias}) {
    add_child("up", up);
    add_child("down", down);
  }
  std::string_view kind() const override { return "Mlp"; }
  nn::Linear up;
  nn::Linear down;

 protected:
  DTensor forward(const nn::Inputs& inputs) override { return down(relu(up(inputs[0]))); }
};

// Blocks one after the other, x + block(x), and a Linear head.
class Stack : public nn::Module {
 public:
  struct Sizes {
    int64_t width = 3;
    int64_t hidden = 5;
    int64_t out = 2;
    int blocks = 2;
  };
  explicit Stack(const Sizes& s) : head(s.width, s.out) {
    for (int i = 0; i < s.blocks; ++i) {
      blocks.push_back(
          std::make_unique<Mlp>(Mlp::Sizes{.in = s.width, .hidden = s.hidden, .out = s.width}));
      add_child("blocks." + std::to_string(i), *blocks.back());
    }
    add_child("head", head);
  }
  std::string_view kind() const override { return "Stack"; }
  std::vector<std::unique_ptr<Mlp>> blocks;
  nn::Linear head;

 protected:
  DTensor forward(const nn::Inputs& inputs) override {
    DTensor x = inputs[0];
    for (auto& block : blocks) x = add(x, (*block)(x));
    return head(x);
  }
};

// The same on every rank, by a fixed stream.
inline Tensor random(const Shape& shape, uint64_t seed) {
  return randn(shape, {}, {}, {.seed = seed, .stream = "test data"}).local_tensor();
}

// On a mesh, cut by rows over the mesh dims named here; on none as it is.
inline DTensor rows(const Tensor& whole, const DeviceMesh& mesh,
                    const std::vector<std::string>& over) {
  if (!mesh.defined()) return DTensor(whole);
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate());
  for (const std::string& name : over) {
    placements[static_cast<size_t>(mesh.layout().dim(name))] = Shard(0);
  }
  return distribute(whole, mesh, placements);
}

// mean((y - t)²) over all elements of the global tensors.
inline DTensor mean_square(const DTensor& y, const DTensor& t) {
  const DTensor d = sub(y, t);
  return mean(mul(d, d));
}

}  // namespace dtensor::testing

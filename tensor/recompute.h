// Activation checkpointing: a part of a model whose inner results are not kept for backward but
// computed again there.

#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

using Region = std::function<DTensor(std::span<const DTensor> inputs)>;

// f(inputs), without a graph; backward runs f again, with the random numbers and the policy of the
// first time, and then backward through it. f computes the same both times; what its collectives
// send is sent twice. Tensors that f captures get their gradients, too: one that an op made as if
// it were an input, a leaf as if by a backward of its own (its hooks run for this part). Where no
// input wants a gradient f is run as it is, and keeps what it saves.
DTensor recomputed(const Region& f, std::span<const DTensor> inputs,
                   CallSite site = CallSite::here());
DTensor recomputed(const Region& f, std::initializer_list<DTensor> inputs,
                   CallSite site = CallSite::here());

// What f finds set around it, and has to find when it runs again, as the parameters' cast of
// nn::mixed_precision.
class RegionScope {
 public:
  RegionScope() = default;
  virtual ~RegionScope() = default;
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;
  virtual void enter() = 0;  // nests
  virtual void leave() = 0;  // back to what was before enter()
};

// The Context's slot: those that are open, outermost first. Who opens one adds it here.
struct RegionScopes {
  std::vector<std::shared_ptr<RegionScope>> open;
};

}  // namespace dtensor

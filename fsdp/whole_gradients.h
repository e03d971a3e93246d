// WholeGradients: gradients of a group's gathered parameters, whole and not reduced yet. Within a
// backward they wait for the rest of the group; those of a deferred backward stand on the
// parameter, Partial, until a later backward adds to them and reduces: an optimizer that steps
// before that finds them and refuses, and zero_grad() drops them.

#pragma once

#include <span>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/fsdp/reduction.h"
#include "dtensor/nn/module.h"

namespace dtensor::fsdp {

class WholeGradients {
 public:
  explicit WholeGradients(std::vector<nn::Parameter> parameters);

  // Adds what one backward brought, to be reduced in the dtype of the wire. What several deferred
  // ones bring is added in float32 where that is a 16-bit one, so that it is rounded once.
  void add(size_t index, const DTensor& grad, DType wire);
  bool has(size_t index) const { return held_[index].grad.defined(); }
  // Keeps it for a later backward, and shows it on the parameter.
  void show(size_t index);
  // Takes it off the parameter again, where it still stands there; else it is dropped.
  void take_back(size_t index);
  // Drops what is not shown: left by a backward that threw.
  void drop_unshown();

  // To be reduced; no longer held.
  std::vector<WholeGradient> take(std::span<const size_t> indices);
  // Those that deferred backwards have left.
  std::vector<WholeGradient> take_deferred();

 private:
  struct Held {
    DTensor grad;  // undefined: none
    DType wire = DType::kFloat32;
    DTensor shown;   // what stands on the parameter for it
    DTensor before;  // what stood there before
  };

  std::vector<nn::Parameter> parameters_;
  std::vector<Held> held_;
};

}  // namespace dtensor::fsdp

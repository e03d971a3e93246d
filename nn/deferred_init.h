// Deferred initialisation: a model is described first, wrapped next, and gets memory last, each
// rank for its own pieces only; so a model may be larger than any machine.
//
//   std::unique_ptr<Llama> model;
//   {
//     const nn::DeferredInit deferred;
//     model = std::make_unique<Llama>(config);      // names, shapes, placements; no memory
//   }
//   ... parallelize_module, fully_shard ...
//   nn::materialize(*model);                        // this rank's pieces, zero
//   nn::init_normal(*model, seed);                  // the bits that any mesh has
//   ... or checkpoint::load(dir, {.model = *model}) // reads this rank's pieces

#pragma once

#include "dtensor/base/context.h"
#include "dtensor/nn/module.h"

namespace dtensor::nn {

// The Context's slot: do new parameters have memory?
struct ParameterMemory {
  bool deferred = false;
};

// Parameters that modules make while it is open have none: reading or computing with one is an
// error until materialize(). (Tensors that a module makes itself are as ever.)
class DeferredInit {
 public:
  DeferredInit() : scope_(ParameterMemory{.deferred = true}) {}

 private:
  ScopedSlot<ParameterMemory> scope_;
};

// Has it a shape, and no memory?
bool is_described(const DTensor& value);
// Memory for every parameter that has none, from the Context's allocator, zero. No message.
void materialize(Module& module);

namespace internal {

// A tensor of that shape that has no memory until its storage is refilled.
Tensor describe(const Shape& shape, DType dtype = DType::kFloat32);
// The same for a parameter: its storage is refilled where the parameter's memory comes from.
Tensor describe(const Parameter& p, const Shape& shape, DType dtype);

}  // namespace internal
}  // namespace dtensor::nn

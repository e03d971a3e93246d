#include "dtensor/nn/deferred_init.h"

#include "dtensor/tensor/kernels.h"

namespace dtensor::nn {

bool is_described(const DTensor& value) {
  return value.has_local() && value.local_tensor().storage()->is_empty();
}

Tensor internal::describe(const Shape& shape, DType dtype) {
  static char nothing = 0;  // never read: it is given back at once
  const Tensor t = Tensor::wrap(&nothing, shape, dtype, nullptr);
  t.storage()->release();
  return t;
}

Tensor internal::describe(const Parameter& p, const Shape& shape, DType dtype) {
  const Tensor t = describe(shape, dtype);
  if (p.memory() == nullptr) return t;
  const MemoryOf there(p);  // where it is refilled first it is refilled again
  t.storage()->refill();
  t.storage()->release();
  return t;
}

void materialize(Module& module) {
  for (const Parameter& p : module.parameters()) {
    if (!is_described(p.value())) continue;
    const Tensor& local = p.value().local_tensor();
    local.storage()->refill();
    kernels::fill(local, 0.0);
  }
}

}  // namespace dtensor::nn

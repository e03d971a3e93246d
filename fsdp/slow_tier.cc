#include "dtensor/fsdp/slow_tier.h"

#include "dtensor/base/file_allocator.h"

namespace dtensor::fsdp {
namespace {

const FileAllocator* tier_of(const nn::Parameter& p) {
  return p.value().has_local() ? dynamic_cast<const FileAllocator*>(p.memory().get()) : nullptr;
}
const void* data_of(const nn::Parameter& p) { return p.value().local_tensor().storage()->data(); }

}  // namespace

void read_ahead(const nn::Parameter& p) {
  if (const FileAllocator* tier = tier_of(p)) tier->will_need(data_of(p));
}

void let_go(const nn::Parameter& p) {
  if (const FileAllocator* tier = tier_of(p)) tier->let_go(data_of(p));
}

void let_go_gradient(const nn::Parameter& p) {
  const FileAllocator* tier = tier_of(p);
  const DTensor grad = p.value().grad();
  if (tier == nullptr || !grad.defined() || !grad.has_local()) return;
  tier->let_go(grad.local_tensor().storage()->data());
}

}  // namespace dtensor::fsdp

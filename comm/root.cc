#include "dtensor/comm/root.h"

#include <memory>

#include "dtensor/base/allocator.h"
#include "dtensor/base/block_source.h"
#include "dtensor/base/context.h"

namespace dtensor::comm {
namespace {

// A slot of the Context.
struct RootComm {
  std::weak_ptr<Comm*> comm;
};

}  // namespace

Comm* root() {
  const auto comm = Context::current().slot<RootComm>().comm.lock();
  return comm == nullptr ? nullptr : *comm;
}

void set_root(const Comm& comm) {
  Context& context = Context::current();
  context.slot<RootComm>().comm = comm.handle();
  context.slot<MemoryUser>().rank = comm.rank();
  context.slot<LargeBlocks>().source = comm.large_blocks();
}

}  // namespace dtensor::comm

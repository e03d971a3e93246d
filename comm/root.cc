#include "dtensor/comm/root.h"

#include <memory>

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

void set_root(const Comm& comm) { Context::current().slot<RootComm>().comm = comm.handle(); }

}  // namespace dtensor::comm

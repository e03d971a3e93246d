#include "dtensor/ops/automatic_copy.h"

#include <memory>
#include <vector>

#include "dtensor/base/context.h"

namespace dtensor::ops {
namespace {

struct Copy {
  std::weak_ptr<Storage> memory;
  std::string op;
};

// The Context's slot.
struct AutomaticCopies {
  std::vector<Copy> live;
};

}  // namespace

void note_automatic_copy(const DTensor& original, const DTensor& copy, std::string_view op) {
  if (!copy.has_local() || !original.has_local()) return;
  const auto& memory = copy.local_tensor().storage();
  if (memory == original.local_tensor().storage()) return;
  std::vector<Copy>& live = Context::current().slot<AutomaticCopies>().live;
  std::erase_if(live, [](const Copy& c) { return c.memory.expired(); });
  live.push_back({memory, std::string(op)});
}

std::string automatic_copy_for(const DTensor& t) {
  if (!t.has_local()) return {};
  for (const Copy& c : Context::current().slot<AutomaticCopies>().live) {
    if (c.memory.lock() == t.local_tensor().storage()) return c.op;
  }
  return {};
}

}  // namespace dtensor::ops

#include "dtensor/base/context.h"

#include <atomic>

namespace dtensor {
namespace {

thread_local Context* bound = nullptr;

}  // namespace

Context& Context::current() {
  if (bound != nullptr) return *bound;
  thread_local Context own;
  return own;
}

size_t Context::new_index() {
  static std::atomic<size_t> next{0};  // numbers slot types; holds no state of a rank
  return next++;
}

ContextScope::ContextScope(Context& context) : before_(bound) { bound = &context; }
ContextScope::~ContextScope() { bound = before_; }

}  // namespace dtensor

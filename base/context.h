// Context: what is not in a value. One per rank; a rank may be a process or a thread.
// It has typed slots that the packages fill (policy, ledger, generator, gradient mode, allocator,
// thread pool, interned Specs, ...). A slot's type is its key: context.slot<Ledger>() is made by
// Ledger's default constructor when it is first asked for.
// A Context is used by one dispatching thread at a time and is not itself thread-safe; worker
// threads that act for a rank bind it with a ContextScope. There is no other mutable global state.

#pragma once

#include <memory>
#include <vector>

#include "dtensor/base/language.h"

namespace dtensor {

class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The Context bound to this thread; where none is, one that belongs to the thread.
  static Context& current();

  template <class T>
  T& slot() {
    const size_t i = index_of<T>();
    if (i >= slots_.size()) slots_.resize(i + 1);
    if (!slots_[i]) slots_[i] = std::make_shared<T>();
    return *static_cast<T*>(slots_[i].get());
  }

 private:
  friend class ContextScope;
  static size_t new_index();
  template <class T>
  static size_t index_of() {
    static const size_t index = new_index();
    return index;
  }

  std::vector<std::shared_ptr<void>> slots_;
};

// Binds a Context to this thread until the end of the scope.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* before_;
};

// Sets a slot to a value until the end of the scope: ScopedSlot<GradMode> no_grad({false}).
template <class T>
class ScopedSlot {
 public:
  explicit ScopedSlot(T value) : slot_(Context::current().slot<T>()), before_(slot_) {
    slot_ = std::move(value);
  }
  ~ScopedSlot() { slot_ = std::move(before_); }
  ScopedSlot(const ScopedSlot&) = delete;
  ScopedSlot& operator=(const ScopedSlot&) = delete;

 private:
  T& slot_;
  T before_;
};

}  // namespace dtensor

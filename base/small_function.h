// SmallFunction: owns a callable, as std::function does. One of up to kInline bytes lies in the
// object; a larger one in small memory, so that making one asks the heap for nothing in steady
// state.

#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "dtensor/base/small_memory.h"

namespace dtensor {

template <class Signature, size_t kInline = 48>
class SmallFunction;

template <class Result, class... Arguments, size_t kInline>
class SmallFunction<Result(Arguments...), kInline> {
 public:
  SmallFunction() = default;
  SmallFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, SmallFunction> &&
           std::is_invocable_r_v<Result, std::remove_cvref_t<F>&, Arguments...>)
      SmallFunction(F&& f) {  // NOLINT(google-explicit-constructor, bugprone-forwarding-*)
    using Held = std::decay_t<F>;
    if constexpr (std::is_pointer_v<std::remove_cvref_t<F>>) {
      if (f == nullptr) return;
    }
    new (place<Held>()) Held(std::forward<F>(f));
    table_ = &kTable<Held>;
  }
  SmallFunction(const SmallFunction& other) {
    if (other.table_ != nullptr) other.table_->copy(other, *this);
  }
  SmallFunction(SmallFunction&& other) noexcept { take(other); }
  SmallFunction& operator=(const SmallFunction& other) { return *this = SmallFunction(other); }
  SmallFunction& operator=(SmallFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  SmallFunction& operator=(std::nullptr_t) {
    reset();
    return *this;
  }
  ~SmallFunction() { reset(); }

  explicit operator bool() const { return table_ != nullptr; }
  friend bool operator==(const SmallFunction& f, std::nullptr_t) { return f.table_ == nullptr; }
  // Of a function that is there.
  Result operator()(Arguments... arguments) const {
    return table_->call(*this, std::forward<Arguments>(arguments)...);
  }

 private:
  struct Table {
    Result (*call)(const SmallFunction&, Arguments&&...);
    void (*copy)(const SmallFunction& from, SmallFunction& to);
    void (*move)(SmallFunction& from, SmallFunction& to) noexcept;
    void (*destroy)(SmallFunction&) noexcept;
  };

  template <class F>
  static constexpr bool kFits =
      sizeof(F) <= kInline &&
      alignof(F) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<F>;

  // Where an F is to be made.
  template <class F>
  void* place() {
    if constexpr (kFits<F>) {
      return buffer_;
    } else {
      return *new (buffer_) void*(small_allocate(sizeof(F)));
    }
  }
  template <class F>
  F& held() const {
    if constexpr (kFits<F>) {
      return *reinterpret_cast<F*>(const_cast<std::byte*>(buffer_));
    } else {
      return **reinterpret_cast<F* const*>(buffer_);
    }
  }

  template <class F>
  static constexpr Table kTable{
      [](const SmallFunction& self, Arguments&&... arguments) -> Result {
        if constexpr (std::is_void_v<Result>) {
          self.template held<F>()(std::forward<Arguments>(arguments)...);
        } else {
          return self.template held<F>()(std::forward<Arguments>(arguments)...);
        }
      },
      [](const SmallFunction& from, SmallFunction& to) {
        new (to.template place<F>()) F(from.template held<F>());
        to.table_ = from.table_;
      },
      [](SmallFunction& from, SmallFunction& to) noexcept {
        if constexpr (kFits<F>) {
          new (to.buffer_) F(std::move(from.template held<F>()));
          std::destroy_at(&from.template held<F>());
        } else {
          new (to.buffer_) void*(&from.template held<F>());
        }
      },
      [](SmallFunction& self) noexcept {
        F* f = &self.template held<F>();
        std::destroy_at(f);
        if constexpr (!kFits<F>) small_deallocate(f, sizeof(F));
      }};

  void reset() {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(*this);
  }
  void take(SmallFunction& other) noexcept {
    if (other.table_ == nullptr) return;
    other.table_->move(other, *this);
    table_ = std::exchange(other.table_, nullptr);
  }

  const Table* table_ = nullptr;
  alignas(std::max_align_t) std::byte buffer_[kInline < sizeof(void*) ? sizeof(void*) : kInline];
};

}  // namespace dtensor

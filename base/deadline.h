// Deadline: how long an operation may take. Deadline{} means the Context's default (300 s unless
// set): no wait of dtensor is without one.

#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "dtensor/base/context.h"

namespace dtensor {

// The Context's slot for the default deadline.
struct DefaultDeadline {
  std::chrono::milliseconds duration{300'000};
};

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline() = default;
  static Deadline after(std::chrono::nanoseconds duration) {
    Deadline d;
    d.at_ = Clock::now() + duration;
    return d;
  }

  // The same with the Context's default put in where none was given. Call it once, when an
  // operation is issued.
  Deadline resolved() const {
    return at_ ? *this : after(Context::current().slot<DefaultDeadline>().duration);
  }
  // Of a resolved deadline; never negative.
  std::chrono::nanoseconds left() const {
    const auto d = resolved();
    return std::max(std::chrono::nanoseconds{0}, std::chrono::nanoseconds(*d.at_ - Clock::now()));
  }
  bool expired() const { return left().count() == 0; }

 private:
  std::optional<Clock::time_point> at_;
};

}  // namespace dtensor

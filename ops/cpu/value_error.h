// ValueError: an element of an integer operand is wrong, an id out of range or a divisor of 0. Only
// ranks that hold the element know; ops/dispatch.cc tells the others.

#pragma once

#include "dtensor/base/error.h"

namespace dtensor::cpu {

class ValueError : public ArgumentError {
 public:
  using ArgumentError::ArgumentError;
};

}  // namespace dtensor::cpu

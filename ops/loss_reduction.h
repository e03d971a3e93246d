// LossReduction: what a loss makes of the losses of elements.

#pragma once

#include <cstdint>

namespace dtensor {

enum class LossReduction : uint8_t {
  kMean,  // divided by the global count
  kSum,
  kNone,  // one loss for each element
};

}  // namespace dtensor

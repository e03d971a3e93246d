// Capabilities: what a backend does of (operation, dtype, reduction, device), as data.

#pragma once

#include <functional>
#include <string>

#include "dtensor/comm/types.h"

namespace dtensor::comm {

enum class Support : uint8_t { kNone, kStaged, kNative };  // staged: by way of a copy

struct Capabilities {
  std::string backend;                 // "local", "gloo"
  std::string version;                 // of the library beneath
  bool float32_sums_of_16_bit = true;  // rounded once
  bool fixed_order = true;             // the same bits on every run
  // kNone for a reduction that has no meaning (an average of integers, a sum of bool).
  std::function<Support(OpKind, DType, ReduceOp, DeviceType)> support;
  // What a call of so many bytes in all (of the larger of its buffers) uses, for people. May be
  // empty.
  std::function<std::string(OpKind, int64_t bytes)> algorithm;
};

// What every backend over a Transport does: all dtypes on the CPU, all reductions that have a
// meaning.
Support transport_support(OpKind op, DType dtype, ReduceOp reduce, DeviceType device);

}  // namespace dtensor::comm

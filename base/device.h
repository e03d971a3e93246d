// Device: where memory lives. Stream and Event: opaque handles of a device's queue; on the CPU
// both are empty and every operation on them is a no-op.

#pragma once

#include <cstdint>

#include "dtensor/base/language.h"

namespace dtensor {

enum class DeviceType : uint8_t { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

struct Stream {
  void* handle = nullptr;
};

struct Event {
  void* handle = nullptr;
};

}  // namespace dtensor

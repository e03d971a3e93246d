// Dims: which dims an op works on; and whether a reduced dim stays.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/shape.h"

namespace dtensor {

// Given in place, sum(x, {0, -1}), or as a vector. Negative ones count from the end; none means
// all.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  Dims(const std::vector<int>& dims) : Dims(std::span(dims)) {}  // NOLINT(google-explicit-*)
  explicit Dims(std::span<const int> dims) : count_(dims.size()) {
    if (dims.size() > kMaxDims) {
      throw ArgumentError("a tensor has at most 8 dims, " + std::to_string(dims.size()) +
                          " are named");
    }
    std::ranges::copy(dims, dims_.begin());
  }

  std::span<const int> span() const { return {dims_.data(), count_}; }

 private:
  std::array<int, kMaxDims> dims_{};
  size_t count_ = 0;
};

// kYes: a reduced dim stays, with size 1.
enum class KeepDims : uint8_t { kNo, kYes };

}  // namespace dtensor

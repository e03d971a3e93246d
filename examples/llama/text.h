// Text: a file of bytes as training rows. Row b of step s is the bytes [(s * B + b) * T, +T] of
// the file modulo its length; the target of a byte is the one after it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/tensor/tensor.h"

namespace dtensor::examples {

struct Batch {
  Tensor tokens;   // [B,T] int64
  Tensor targets;  // [B,T] int64
};

class Text {
 public:
  // ArgumentError naming the file where it cannot be read or is empty.
  explicit Text(const std::string& path);
  Batch batch(int64_t step, int64_t rows, int64_t length) const;
  // The largest byte: a vocabulary must be larger.
  int64_t largest() const;

 private:
  std::vector<unsigned char> bytes_;
};

}  // namespace dtensor::examples

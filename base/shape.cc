#include "dtensor/base/shape.h"

namespace dtensor {

int64_t Shape::numel() const {
  if (std::ranges::find(*this, 0) != end()) return 0;
  int64_t n = 1;
  for (const int64_t d : *this) n = checked_mul(n, d);
  return n;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != 0) text += ',';
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    strides[d] = step;
    step = checked_mul(step, std::max<int64_t>(shape[d], 1));
  }
  return strides;
}

int normalize_dim(int dim, int ndim, const char* what) {
  if (dim < -ndim || dim >= ndim) {
    throw ArgumentError(std::string(what) + ": dim " + std::to_string(dim) + " of a tensor with " +
                        std::to_string(ndim) + " dims; give " +
                        (ndim == 0 ? "a tensor that has dims"
                                   : std::to_string(-ndim) + " to " + std::to_string(ndim - 1)));
  }
  return dim < 0 ? dim + ndim : dim;
}

void check_shape(const Shape& shape, const char* what) {
  for (const int64_t d : shape) {
    if (d < 0) {
      throw ArgumentError(std::string(what) + ": shape " + to_string(shape) +
                          " has a negative dim; dims are 0 or more");
    }
  }
  if (std::ranges::find(shape, 0) != shape.end()) return;
  int64_t numel = 1;
  for (const int64_t d : shape) {
    if (__builtin_mul_overflow(numel, d, &numel)) {
      throw ArgumentError(std::string(what) + ": shape " + to_string(shape) +
                          " has more elements than 64 bits count");
    }
  }
}

}  // namespace dtensor

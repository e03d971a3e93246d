#include "dtensor/tensor/tensor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/base/small_memory.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

std::string describe(const Tensor& t) {
  return std::string(name_of(t.dtype())) + to_string(t.shape());
}

// Strides of `to` over the memory of `t`, or none where no strides give that view. Dims of `t` that
// lie one after the other in memory form a run; each run is divided among dims of `to`.
std::optional<Shape> view_strides(const Tensor& t, const Shape& to) {
  if (t.numel() == 0) return contiguous_strides(to);
  Shape strides = Shape::filled(to.ndim(), 0);
  int next = to.ndim() - 1;  // dims of `to` are given out from the last
  int64_t run = 1;           // elements of the run so far
  int64_t step = 1;          // stride of the run's last dim
  bool open = false;
  for (int d = t.ndim() - 1; d >= 0; --d) {
    if (t.shape()[d] == 1) continue;
    if (!open) step = t.strides()[d];
    open = true;
    run *= t.shape()[d];
    int outer = d - 1;  // the next dim that counts
    while (outer >= 0 && t.shape()[outer] == 1) --outer;
    if (outer >= 0 && t.strides()[outer] == run * step) continue;
    int64_t taken = 1;
    while (next >= 0 && (taken < run || to[next] == 1)) {
      strides[next] = taken * step;
      taken *= to[next--];
    }
    if (taken != run) return std::nullopt;
    run = 1;
    open = false;
  }
  for (; next >= 0; --next) strides[next] = 1;  // only dims of size 1 are left
  return strides;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  check_shape(shape, "Tensor::empty");
  Tensor t;
  t.storage_ = make_small<Storage>(checked_mul(shape.numel(), size_of(dtype)));
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) { return full(shape, 0.0, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor t = empty(shape, dtype);
  kernels::fill(t, value);
  return t;
}

Tensor Tensor::arange(int64_t n, DType dtype) {
  Tensor counted = empty({n}, DType::kInt64);
  auto* out = counted.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) out[i] = i;
  return counted.to(dtype);
}

Tensor Tensor::wrap(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner) {
  check_shape(shape, "Tensor::wrap");
  Tensor t;
  t.storage_ =
      make_small<Storage>(data, checked_mul(shape.numel(), size_of(dtype)), std::move(owner));
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  for (int d = ndim() - 1; d >= 0; --d) {
    if (shape_[d] == 0) return true;
    if (shape_[d] != 1 && strides_[d] != step) return false;
    step *= shape_[d];
  }
  return true;
}

void* Tensor::raw() const {
  internal_check(defined(), "the memory of an undefined Tensor was asked for");
  if (storage_->is_empty()) {
    internal_check(numel() == 0, "a Tensor was read whose storage is empty (released)");
    return nullptr;
  }
  return static_cast<std::byte*>(storage_->data()) + offset_ * size_of(dtype_);
}

void Tensor::check_dtype(DType wanted) const {
  if (wanted == dtype_) return;
  throw ArgumentError("the elements of " + describe(*this) + " were asked for as " +
                      std::string(name_of(wanted)) + "; use to(dtype) to convert");
}

void Tensor::check_count(int64_t values, const Shape& shape) {
  check_shape(shape, "Tensor::of");
  if (values == shape.numel()) return;
  throw ArgumentError("Tensor::of: " + std::to_string(values) + " values for shape " +
                      to_string(shape) + ", which has " + std::to_string(shape.numel()));
}

Tensor Tensor::narrow(int dim, int64_t begin, int64_t length) const {
  const int d = normalize_dim(dim, ndim(), "narrow");
  if (begin < 0 || length < 0 || length > shape_[d] - begin) {
    throw ArgumentError("narrow: " + std::to_string(length) + " from " + std::to_string(begin) +
                        " of dim " + std::to_string(d) + " of " + describe(*this));
  }
  Tensor t = *this;
  t.shape_[d] = length;
  t.offset_ += begin * strides_[d];
  return t;
}

Tensor Tensor::transpose(int a, int b) const {
  const int i = normalize_dim(a, ndim(), "transpose");
  const int j = normalize_dim(b, ndim(), "transpose");
  Tensor t = *this;
  std::swap(t.shape_[i], t.shape_[j]);
  std::swap(t.strides_[i], t.strides_[j]);
  return t;
}

Tensor Tensor::permute(std::span<const int> dims) const {
  Tensor t = *this;
  std::array<bool, kMaxDims> seen{};
  if (dims.size() != static_cast<size_t>(ndim())) {
    throw ArgumentError("permute: " + std::to_string(dims.size()) + " dims for " + describe(*this));
  }
  for (int d = 0; d < ndim(); ++d) {
    const int from = normalize_dim(dims[static_cast<size_t>(d)], ndim(), "permute");
    if (std::exchange(seen[static_cast<size_t>(from)], true)) {
      throw ArgumentError("permute: dim " + std::to_string(from) + " is named twice");
    }
    t.shape_[d] = shape_[from];
    t.strides_[d] = strides_[from];
  }
  return t;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int added = shape.ndim() - ndim();
  bool fits = added >= 0;
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = Shape::filled(shape.ndim(), 0);
  for (int d = 0; fits && d < ndim(); ++d) {
    if (shape_[d] == shape[d + added]) {
      t.strides_[d + added] = strides_[d];
    } else {
      fits = shape_[d] == 1;
    }
  }
  if (!fits) {
    throw ArgumentError("expand: " + describe(*this) + " to " + to_string(shape) +
                        "; dims of size 1 and new leading dims can be expanded");
  }
  check_shape(shape, "expand");
  return t;
}

Tensor Tensor::view(const Shape& shape) const {
  check_shape(shape, "view");
  if (shape.numel() != numel()) {
    throw ArgumentError("view: " + describe(*this) + " has " + std::to_string(numel()) +
                        " elements, " + to_string(shape) + " has " + std::to_string(shape.numel()));
  }
  const auto strides = view_strides(*this, shape);
  if (!strides) {
    throw ArgumentError("view: " + describe(*this) + " with strides " + to_string(strides_) +
                        " is not a view of shape " + to_string(shape) + "; use reshape");
  }
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = *strides;
  return t;
}

Tensor Tensor::as_strided(const Shape& shape, const Shape& strides, int64_t offset) const {
  check_shape(shape, "as_strided");
  internal_check(defined(), "as_strided of an undefined Tensor");
  bool fits = strides.ndim() == shape.ndim() && offset >= 0;
  int64_t last = offset;
  for (int d = 0; fits && d < shape.ndim(); ++d) {
    fits = strides[d] >= 0;
    last = checked_add(last, checked_mul(std::max<int64_t>(shape[d] - 1, 0), strides[d]));
  }
  if (!fits || (shape.numel() > 0 && last >= storage_->size_bytes() / size_of(dtype_))) {
    throw ArgumentError("as_strided: shape " + to_string(shape) + ", strides " +
                        to_string(strides) + ", offset " + std::to_string(offset) +
                        " is not within the storage of " + describe(*this));
  }
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = strides;
  t.offset_ = offset;
  return t;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::reshape(const Shape& shape) const {
  check_shape(shape, "reshape");
  if (shape.numel() == numel() && !view_strides(*this, shape)) return clone().view(shape);
  return view(shape);
}

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_);
  kernels::copy(*this, t);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor t = empty(shape_, dtype);
  kernels::cast(*this, t);
  return t;
}

}  // namespace dtensor

// Tensor: bytes with a shape: a local strided array on one device. No autograd, no distribution;
// kernels work on it. Copying copies a handle: views share storage. Strides are in elements.

#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/device.h"
#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/base/shape.h"
#include "dtensor/tensor/storage.h"

namespace dtensor {

class Tensor {
 public:
  Tensor() = default;  // undefined
  bool defined() const { return storage_ != nullptr; }

  // Not initialised.
  static Tensor empty(const Shape& shape, DType dtype = DType::kFloat32);
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32);
  static Tensor arange(int64_t n, DType dtype = DType::kFloat32);
  // Copies row-major values. ArgumentError where their number is not shape.numel().
  template <class T>
  static Tensor of(std::span<const T> values, const Shape& shape) {
    check_count(static_cast<int64_t>(values.size()), shape);
    Tensor t = empty(shape, kDTypeOf<T>);
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }
  template <class T>
  static Tensor of(std::initializer_list<T> values, const Shape& shape) {
    return of(std::span<const T>(values.begin(), values.size()), shape);
  }
  // Over the memory of somebody else.
  static Tensor wrap(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner);

  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int ndim() const { return shape_.ndim(); }
  int64_t size(int dim) const { return shape_[normalize_dim(dim, ndim(), "size")]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t size_bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return {}; }
  bool is_contiguous() const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  // of the first element in the storage

  // The first element. InternalError where the storage is empty (and has elements).
  void* raw() const;
  // ArgumentError where T is not the dtype.
  template <class T>
  T* data() const {
    check_dtype(kDTypeOf<T>);
    return static_cast<T*>(raw());
  }
  // All elements, row-major.
  template <class T>
  std::vector<T> to_vector() const {
    const Tensor t = contiguous();
    const T* first = t.data<T>();
    return std::vector<T>(first, first + t.numel());
  }

  // Views: no copy.
  Tensor narrow(int dim, int64_t begin, int64_t length) const;
  Tensor transpose(int a, int b) const;
  Tensor permute(std::span<const int> dims) const;
  Tensor expand(const Shape& shape) const;  // size-1 and new leading dims, by stride 0
  // Of the same number of elements. ArgumentError where the strides do not allow a view.
  Tensor view(const Shape& shape) const;
  Tensor as_strided(const Shape& shape, const Shape& strides, int64_t offset) const;

  // Copies, with the kernels of dtensor/tensor/kernels.h. Results are contiguous.
  Tensor contiguous() const;                 // itself where it is
  Tensor reshape(const Shape& shape) const;  // a view where that is possible
  Tensor clone() const;
  Tensor to(DType dtype) const;  // itself where it has it

 private:
  void check_dtype(DType wanted) const;
  static void check_count(int64_t values, const Shape& shape);

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Shape strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::kFloat32;
};

}  // namespace dtensor

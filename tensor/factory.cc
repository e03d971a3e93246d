#include "dtensor/tensor/factory.h"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/random.h"
#include "dtensor/tensor/step.h"

namespace dtensor {
namespace {

std::span<const Placement> span_of(std::initializer_list<Placement> placements) {
  return {placements.begin(), placements.size()};
}

// Does this rank hold the identity of a Partial tensor instead of its value?
bool holds_identity(const Layout& layout, const Coordinate& at) {
  if (!layout.spec().has_partial()) return false;
  const PartialOp op = layout.spec().partial_op();
  if (op == PartialOp::kMin || op == PartialOp::kMax) return false;
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_partial() && at[m] != 0) return true;
  }
  return false;
}

// A tensor whose piece is written by make(piece, its box); what Partial asks for is done here.
template <class Make>
DTensor make_pieces(const Layout& layout, const DeviceMesh& mesh, DType dtype, const Make& make) {
  const auto& at = mesh.coordinate();
  if (mesh.defined() && !at) return DTensor(dtype, layout, mesh);
  const Box box = layout.box(at.value_or(Coordinate{}));
  const Tensor piece = Tensor::empty(box.size, dtype);
  if (at && holds_identity(layout, *at)) {
    kernels::fill(piece, internal::identity_of(layout.spec().partial_op(), dtype));
  } else {
    make(piece, box);
  }
  return mesh.defined() ? DTensor(piece, layout, mesh) : DTensor(piece);
}

template <class Make>
DTensor make_pieces(const Shape& shape, const DeviceMesh& mesh,
                    std::span<const Placement> placements, DType dtype, const Make& make) {
  check_shape(shape, "a new tensor");
  return make_pieces(Layout(mesh.layout(), shape, placements), mesh, dtype, make);
}

// On every rank, also where none of it lies.
void check_random(const char* call, DType dtype) {
  if (is_floating(dtype)) return;
  throw ArgumentError(std::string(call) + " of " + std::string(name_of(dtype)) +
                      ": random numbers are floating; make them in f32 and cast");
}

}  // namespace

DTensor distribute(const Tensor& full, const DeviceMesh& mesh, const Layout& layout) {
  if (!(full.shape() == layout.shape())) {
    throw ArgumentError("distribute: the tensor has shape " + to_string(full.shape()) +
                        ", the layout " + to_string(layout.shape()) +
                        "; give the whole tensor on every rank");
  }
  const Box whole{Shape::filled(full.ndim(), 0), full.shape()};
  return make_pieces(layout, mesh, full.dtype(), [&](const Tensor& piece, const Box& box) {
    kernels::copy(internal::part_of(full, whole, box), piece);
  });
}

DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::span<const Placement> placements) {
  return distribute(full, mesh, Layout(mesh.layout(), full.shape(), placements));
}

DTensor distribute(const Tensor& full, const DeviceMesh& mesh,
                   std::initializer_list<Placement> placements) {
  return distribute(full, mesh, span_of(placements));
}

DTensor zeros(const Shape& shape, const DeviceMesh& mesh, std::span<const Placement> placements,
              const FactoryOptions& options) {
  return full(shape, 0.0, mesh, placements, options);
}

DTensor full(const Shape& shape, double value, const DeviceMesh& mesh,
             std::span<const Placement> placements, const FactoryOptions& options) {
  check_range("full", options.dtype, value);
  return make_pieces(shape, mesh, placements, options.dtype,
                     [&](const Tensor& piece, const Box&) { kernels::fill(piece, value); });
}

DTensor randn(const Shape& shape, const DeviceMesh& mesh, std::span<const Placement> placements,
              const FactoryOptions& options) {
  check_random("randn", options.dtype);
  const uint64_t stream = stream_of(options.stream);
  return make_pieces(shape, mesh, placements, options.dtype,
                     [&](const Tensor& piece, const Box& box) {
                       fill_normal({piece, box, shape}, {options.seed, stream});
                     });
}

DTensor uniform(const Shape& shape, const DeviceMesh& mesh, std::span<const Placement> placements,
                const FactoryOptions& options) {
  check_random("uniform", options.dtype);
  const uint64_t stream = stream_of(options.stream);
  return make_pieces(shape, mesh, placements, options.dtype,
                     [&](const Tensor& piece, const Box& box) {
                       fill_uniform({piece, box, shape}, {options.seed, stream});
                     });
}

DTensor zeros(const Shape& shape, const DeviceMesh& mesh,
              std::initializer_list<Placement> placements, const FactoryOptions& options) {
  return zeros(shape, mesh, span_of(placements), options);
}

DTensor full(const Shape& shape, double value, const DeviceMesh& mesh,
             std::initializer_list<Placement> placements, const FactoryOptions& options) {
  return full(shape, value, mesh, span_of(placements), options);
}

DTensor randn(const Shape& shape, const DeviceMesh& mesh,
              std::initializer_list<Placement> placements, const FactoryOptions& options) {
  return randn(shape, mesh, span_of(placements), options);
}

DTensor uniform(const Shape& shape, const DeviceMesh& mesh,
                std::initializer_list<Placement> placements, const FactoryOptions& options) {
  return uniform(shape, mesh, span_of(placements), options);
}

DTensor arange(int64_t n, const DTensor& like, const FactoryOptions& options) {
  return constant(Tensor::arange(n, options.dtype), like);
}

DTensor constant(const Tensor& value, const DTensor& like) {
  const DeviceMesh& mesh = like.mesh();
  if (!mesh.defined()) return DTensor(value);
  const Layout layout = Layout::replicated(mesh.layout(), value.shape());
  return mesh.coordinate() ? DTensor(value, layout, mesh) : DTensor(value.dtype(), layout, mesh);
}

void check_range(std::string_view op, DType dtype, double value) {
  const bool fits = visit_dtype(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      // The limits themselves are no doubles; 2^digits is, and it is one above the largest.
      const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
      const double whole = std::trunc(value);
      return whole < above && whole >= (std::is_signed_v<T> ? -above : 0.0);
    }
    return true;
  });
  if (fits) return;
  throw ArgumentError(std::string(op) + ": " + std::to_string(value) +
                      " is beyond what a tensor of " + std::string(name_of(dtype)) +
                      " holds; use another dtype");
}

void fill_value(const DTensor& t, double value) {
  if (!t.has_local()) return;
  const Coordinate at = t.mesh().coordinate().value_or(Coordinate{});
  const bool identity = holds_identity(t.layout(), at);
  kernels::fill(t.local_tensor(),
                identity ? internal::identity_of(t.spec().partial_op(), t.dtype()) : value);
}

void fill_normal(const DTensor& t, double std, uint64_t seed, std::string_view stream) {
  check_random("fill_normal", t.dtype());
  if (!t.has_local()) return;
  const Coordinate at = t.mesh().coordinate().value_or(Coordinate{});
  const Tensor& piece = t.local_tensor();
  if (holds_identity(t.layout(), at)) {
    kernels::fill(piece, internal::identity_of(t.spec().partial_op(), t.dtype()));
    return;
  }
  fill_normal({piece, t.layout().box(at), t.shape()}, {seed, stream_of(stream)}, 0.0, std);
}

}  // namespace dtensor

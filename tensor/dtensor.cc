#include "dtensor/tensor/dtensor.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtensor/base/error.h"
#include "dtensor/base/small_memory.h"
#include "dtensor/tensor/convert.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/move.h"

namespace dtensor {
namespace {

constexpr int64_t kPrintedElements = 16;

// Elements of a dtype as numbers, row-major; the first `most` of them.
std::vector<double> numbers(const Tensor& t, int64_t most) {
  std::vector<double> all;
  const Tensor flat = t.contiguous();
  const int64_t n = std::min(most, flat.numel());
  if (n == 0) return all;
  visit_dtype(flat.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* x = flat.data<T>();
    for (int64_t i = 0; i < n; ++i) all.push_back(internal::convert<double>(x[i]));
  });
  return all;
}

std::string values_text(const Tensor& t) {
  std::string text = "{";
  for (const double x : numbers(t, kPrintedElements)) {
    text += fmt::format("{}{:.6g}", text.size() > 1 ? ", " : "", x);
  }
  if (t.numel() > kPrintedElements) text += ", ...";
  return text + "}";
}

void check_mesh(const Layout& layout, const DeviceMesh& mesh) {
  if (layout.mesh() == mesh.layout()) return;
  throw ArgumentError("DTensor: layout " + to_string(layout) + " is not of the mesh " +
                      to_string(mesh.layout()) + "; make the layout from mesh.layout()");
}

}  // namespace

std::string internal::describe(const DTensor& t) {
  std::string text = std::string(name_of(t.dtype())) + to_string(t.shape());
  if (t.mesh().defined()) text += " " + to_string(t.spec());
  return text;
}

DTensor internal::of_piece(Tensor local, Layout layout, const DeviceMesh& mesh) {
  const DType dtype = local.dtype();
  return DTensor(make_small<DTensor::Impl>(std::move(local), dtype, std::move(layout), mesh));
}

Tensor internal::local_or_none(const DTensor& t) {
  return t.has_local() ? t.local_tensor() : Tensor();
}

DTensor internal::placed(Tensor local, DType dtype, const Layout& layout, const DeviceMesh& mesh) {
  if (!local.defined()) return DTensor(dtype, layout, mesh);
  return mesh.defined() ? DTensor(std::move(local), layout, mesh) : DTensor(std::move(local));
}

DTensor::DTensor(Tensor local) {
  internal_check(local.defined(), "a DTensor was made from an undefined Tensor");
  const DType dtype = local.dtype();
  Layout layout = Layout::replicated(MeshLayout(), local.shape());
  impl_ = make_small<Impl>(std::move(local), dtype, std::move(layout), DeviceMesh());
}

DTensor::DTensor(Tensor local, Layout layout, DeviceMesh mesh) {
  check_mesh(layout, mesh);
  const DType dtype = local.defined() ? local.dtype() : DType::kFloat32;
  if (const auto& at = mesh.coordinate()) {
    internal_check(local.defined(), "a DTensor was made from an undefined Tensor inside its mesh");
    const Shape want = layout.local_shape(*at);
    if (local.shape() != want) {
      throw ArgumentError("DTensor: the local tensor of rank " + std::to_string(mesh.rank()) +
                          " has shape " + to_string(local.shape()) + ", layout " +
                          to_string(layout) + " of global shape " + to_string(layout.shape()) +
                          " needs " + to_string(want) + " there");
    }
  } else {
    local = Tensor();
  }
  impl_ = make_small<Impl>(std::move(local), dtype, std::move(layout), std::move(mesh));
}

DTensor::DTensor(DType dtype, Layout layout, DeviceMesh mesh) {
  check_mesh(layout, mesh);
  if (mesh.coordinate()) {
    throw ArgumentError("DTensor: rank " + std::to_string(mesh.rank()) + " is in the mesh " +
                        to_string(mesh.layout()) + " and needs a local tensor");
  }
  impl_ = make_small<Impl>(Tensor(), dtype, std::move(layout), std::move(mesh));
}

void DTensor::refuse_undefined() { throw InternalError("an undefined DTensor was used"); }

void DTensor::refuse_without_local() const {
  throw InternalError("rank " + std::to_string(mesh().rank()) + " is outside the mesh " +
                      to_string(mesh().layout()) + " and has no local part of " +
                      internal::describe(*this));
}

int64_t DTensor::size(int dim) const { return shape()[normalize_dim(dim, ndim(), "size")]; }

DTensor& DTensor::set_requires_grad(bool wanted) {
  if (get().node != nullptr) {
    if (wanted) return *this;
    throw ArgumentError("set_requires_grad(false) on a tensor that an op made; use detach()");
  }
  if (wanted && !is_floating(dtype())) {
    throw ArgumentError("set_requires_grad on " + internal::describe(*this) +
                        "; only floating tensors have gradients");
  }
  if (wanted && spec().has_partial()) {
    throw PlacementError("set_requires_grad on " + internal::describe(*this) +
                         ": a leaf that requires grad may not be Partial; use redistribute to R "
                         "or S first");
  }
  impl_->requires_grad = wanted;
  return *this;
}

DTensor DTensor::grad() const { return get().grad; }

void DTensor::set_grad(DTensor grad) {
  static_cast<void>(get());
  if (grad.defined() && (grad.shape() != shape() || grad.dtype() != dtype() ||
                         !(grad.mesh().layout() == mesh().layout()))) {
    throw ArgumentError("set_grad: " + internal::describe(grad) + " is not a gradient of " +
                        internal::describe(*this));
  }
  impl_->grad = std::move(grad);
}

DTensor DTensor::detach() const {
  const Impl& impl = get();
  DTensor same(make_small<Impl>(impl.local, impl.dtype, impl.layout, impl.mesh));
  same.impl_->borrowed = impl.borrowed;
  return same;
}

void DTensor::replace(const DTensor& other) {
  if (get().requires_grad && (other.spec().has_partial() || !is_floating(other.dtype()))) {
    throw PlacementError("replace: " + internal::describe(*this) + " requires grad and cannot be " +
                         internal::describe(other));
  }
  impl_->local = other.impl()->local;
  impl_->dtype = other.dtype();
  impl_->layout = other.layout();
  impl_->mesh = other.mesh();
  impl_->borrowed = other.impl()->borrowed;
  impl_->view = false;
  impl_->grad = DTensor();
  impl_->node = nullptr;
  impl_->output = 0;
}

double DTensor::item(CallSite site) const {
  if (numel() != 1 || !has_local()) {
    throw ArgumentError("item() of " + internal::describe(*this) +
                        (numel() != 1 ? ": it has not one element"
                                      : ": this rank is outside its mesh and has no part of it"));
  }
  Tensor number = impl_->local;
  if (!spec().is_replicated()) {
    const MoveItem item{.local = impl_->local,
                        .from = layout(),
                        .to = Layout::replicated(layout().mesh(), shape())};
    number = move_local(mesh(), item, {.op = "item", .site = site});
  }
  return numbers(number, 1)[0];
}

std::string to_string(const DTensor& t) {
  if (!t.defined()) return "undefined";
  const std::string head = internal::describe(t);
  if (!t.has_local()) return head + ", no part on this rank";
  if (t.spec().has_partial()) return head + ", a part of the value on every rank";
  const std::string values = values_text(t.local_tensor());
  if (t.spec().is_replicated()) return head + " " + values;
  return head + ", on rank " + std::to_string(t.mesh().rank()) + " " + values;
}

}  // namespace dtensor

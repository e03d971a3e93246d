// DTensor: what people compute with: a local Tensor, a Layout on a mesh, and autograd state. On no
// mesh it is an ordinary tensor, so one model source runs on one device and on a mesh. Copying
// copies a handle; two handles of one tensor share its gradient.
// Every rank of the mesh makes the same calls. A rank outside the mesh may hold the handle without
// a local part (has_local() is false).

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {

class DTensor;
class Node;  // dtensor/tensor/autograd.h

// Runs once a gradient is complete in a backward pass, before it goes on. What it returns goes on
// instead; undefined: nothing does.
using GradHook = std::function<DTensor(const DTensor& grad)>;

class DTensor {
 public:
  DTensor() = default;  // undefined
  // On no mesh.
  explicit DTensor(Tensor local);
  // ArgumentError where the local shape is not the layout's on this rank: the message names both.
  // The caller vouches for the contents. On a rank outside the mesh `local` is dropped and may be
  // undefined (of dtype f32 then).
  DTensor(Tensor local, Layout layout, DeviceMesh mesh);
  // The handle of a rank outside the mesh: no local part. ArgumentError inside.
  DTensor(DType dtype, Layout layout, DeviceMesh mesh);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;  // global
  int ndim() const { return shape().ndim(); }
  int64_t size(int dim) const;  // global
  int64_t numel() const { return shape().numel(); }
  DType dtype() const;
  const Layout& layout() const;
  const Spec& spec() const { return layout().spec(); }
  const DeviceMesh& mesh() const;
  bool has_local() const;
  // This rank's piece, for kernels and for reading: no autograd. InternalError without a local
  // part.
  const Tensor& local_tensor() const;

  // A leaf that a gradient is wanted for. PlacementError where it is Partial, ArgumentError for a
  // dtype that is not floating, or for `false` on a tensor that an op made.
  DTensor& set_requires_grad(bool wanted);
  bool requires_grad() const;
  bool is_leaf() const;
  // The accumulated gradient of a leaf; undefined where there is none.
  DTensor grad() const;
  // Undefined clears it. ArgumentError where shape, dtype or mesh are not this tensor's.
  void set_grad(DTensor grad);
  DTensor detach() const;  // the same memory, no graph

  // Runs backward from this tensor of one element; every rank of the mesh calls it.
  // defer: leaves keep Partial gradients as they are; the next backward without it adds and
  // resolves them (gradient accumulation).
  struct BackwardOptions {
    bool defer = false;
    bool retain_graph = false;
    // Gradients get a graph, so that they can be differentiated again; keeps this graph, too. Error
    // naming the op where an op on the way cannot (docs/autograd.md). A leaf then holds its
    // gradient and that the leaf: set_grad({}) takes them apart.
    bool create_graph = false;
    CallSite site = CallSite::here();  // of what leaves send, in the ledger
  };
  void backward(const BackwardOptions& options);
  void backward(CallSite site = CallSite::here()) { backward(BackwardOptions{.site = site}); }

  // Takes over another tensor's memory, layout and mesh, in place: every handle of this tensor
  // sees them; gradient and graph are dropped, requires_grad stays. For wrappers that re-place
  // parameters.
  void replace(const DTensor& other);

  // The number of a tensor of one element, the same on every rank: a collective where the tensor
  // is cut or Partial. ArgumentError for another number of elements, or outside the mesh.
  double item(CallSite site = CallSite::here()) const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit DTensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  const Impl& get() const;
  [[noreturn]] static void refuse_undefined();  // InternalError
  [[noreturn]] void refuse_without_local() const;

  std::shared_ptr<Impl> impl_;
};

// What is behind a handle; for the files of this package.
struct DTensor::Impl {
  Impl(Tensor l, DType d, Layout where, DeviceMesh m)
      : local(std::move(l)), dtype(d), layout(std::move(where)), mesh(std::move(m)) {}

  Tensor local;  // undefined where this rank is outside the mesh
  DType dtype = DType::kFloat32;
  Layout layout;
  DeviceMesh mesh;

  // Lies in the memory of a tensor that is placed otherwise: a move without messages made it. The
  // same on every rank. What is written into it would reach a part of that tensor only.
  bool borrowed = false;
  bool view = false;            // of a tensor that was there before
  bool requires_grad = false;   // as a leaf
  DTensor grad;                 // of a leaf
  std::vector<GradHook> hooks;  // of a leaf; others keep theirs in their node
  std::shared_ptr<Node> node;   // that made it
  int output = 0;               // which of the node's outputs it is
  uint64_t made_version = 0;    // of the storage, when the node made it
};

// Here, since every op asks many times.
inline const DTensor::Impl& DTensor::get() const {
  if (impl_ == nullptr) refuse_undefined();
  return *impl_;
}
inline const Shape& DTensor::shape() const { return get().layout.shape(); }
inline DType DTensor::dtype() const { return get().dtype; }
inline const Layout& DTensor::layout() const { return get().layout; }
inline const DeviceMesh& DTensor::mesh() const { return get().mesh; }
inline bool DTensor::has_local() const { return get().local.defined(); }
inline const Tensor& DTensor::local_tensor() const {
  if (!has_local()) refuse_without_local();
  return impl_->local;
}
inline bool DTensor::requires_grad() const { return get().requires_grad || impl_->node != nullptr; }
inline bool DTensor::is_leaf() const { return get().node == nullptr; }

// Shape, dtype, layout, and the values of a tensor on no mesh; of a distributed one this rank's
// piece, marked as such; of a Partial one no number.
std::string to_string(const DTensor& t);

}  // namespace dtensor

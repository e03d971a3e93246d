#include "dtensor/tensor/agreed_shape.h"

#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/move.h"

namespace dtensor::internal {
namespace {

constexpr int64_t kColumns = kMaxDims + 2;  // number of dims, dtype, dims
constexpr int kMostShown = 8;

// What one rank told.
struct Told {
  Shape shape;
  DType dtype = DType::kFloat32;
};

// The mesh without weights: on it every rank has one row of a table with as many as there are
// ranks.
MeshLayout even(const MeshLayout& mesh) {
  std::vector<MeshDim> dims;
  for (int m = 0; m < mesh.ndim(); ++m) dims.push_back({mesh.name(m), mesh.size(m)});
  return MeshLayout(std::move(dims), mesh.ranks());
}

// Of all ranks, in the order of mesh.ranks().
std::vector<Told> exchange(const DTensor& piece, const DeviceMesh& mesh, CallSite site) {
  std::vector<int64_t> row(kColumns, 0);
  row[0] = piece.ndim();
  row[1] = static_cast<int64_t>(piece.dtype());
  for (int d = 0; d < piece.ndim(); ++d) row[static_cast<size_t>(d) + 2] = piece.shape()[d];
  const Shape table{mesh.size(), kColumns};
  const std::vector<Placement> rows(static_cast<size_t>(mesh.ndim()), Shard(0));
  const MoveItem item{.local = Tensor::of(std::span<const int64_t>(row), {1, kColumns}),
                      .from = Layout(even(mesh.layout()), table, rows),
                      .to = Layout::replicated(even(mesh.layout()), table)};
  const auto all = move_local(mesh, item, {.op = "from_local", .site = site}).to_vector<int64_t>();
  std::vector<Told> told;
  for (auto at = all.begin(); at != all.end(); at += kColumns) {
    told.push_back({Shape(std::span<const int64_t>(at + 2, static_cast<size_t>(at[0]))),
                    static_cast<DType>(at[1])});
  }
  return told;
}

// "rank 1 f32[3,2], rank 2 ..." of those for which wanted(i) holds.
template <class F, class G>
std::string list(const MeshLayout& mesh, const F& wanted, const G& text) {
  std::string all;
  int shown = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    if (!wanted(i)) continue;
    if (++shown > kMostShown) return all + ", and more";
    all += (all.empty() ? "rank " : ", rank ") +
           std::to_string(mesh.ranks()[static_cast<size_t>(i)]) + " " + text(i);
  }
  return all;
}

int64_t length(const std::vector<Told>& told, const Spec& spec, int dim) {
  if (spec.levels(dim).empty()) return told[0].shape[dim];
  int64_t sum = 0;
  for (int i = 0; i < spec.mesh().size(); ++i) {
    const Coordinate at = spec.mesh().coordinate_at(i);
    bool counts = true;  // one of the replicas
    for (int m = 0; m < spec.mesh().ndim(); ++m) {
      const Placement p = spec.placement(m);
      counts = counts && (at[m] == 0 || (p.is_shard() && p.dim() == dim));
    }
    if (counts) sum = checked_add(sum, told[static_cast<size_t>(i)].shape[dim]);
  }
  return sum;
}

}  // namespace

Shape agreed_shape(const DTensor& piece, const DeviceMesh& mesh,
                   std::span<const Placement> placements, CallSite site) {
  if (!mesh.coordinate()) {
    throw ArgumentError("from_local with {.shape = kAgree}: rank " + std::to_string(mesh.rank()) +
                        " is outside the mesh " + to_string(mesh.layout()) +
                        " and does not hear the others' sizes; give {.shape = {...}}");
  }
  const std::vector<Told> told = exchange(piece, mesh, site);
  const auto text = [&](int i) {
    const Told& t = told[static_cast<size_t>(i)];
    return std::string(name_of(t.dtype)) + to_string(t.shape);
  };
  for (const Told& t : told) {
    if (t.dtype == told[0].dtype && t.shape.ndim() == told[0].shape.ndim()) continue;
    throw ArgumentError(
        "from_local with an agreed shape: the pieces differ in dtype or number of "
        "dims: " +
        list(
            mesh.layout(), [](int) { return true; }, text));
  }
  const int ndim = told[0].shape.ndim();
  const Spec spec(mesh.layout(), ndim, placements);
  Shape shape = Shape::filled(ndim, 0);
  for (int d = 0; d < ndim; ++d) shape[d] = length(told, spec, d);
  const Layout layout(spec, shape);
  const auto right = [&](int i) { return layout.local_shape(mesh.layout().coordinate_at(i)); };
  const auto wrong = [&](int i) { return !(right(i) == told[static_cast<size_t>(i)].shape); };
  const std::string faults = list(mesh.layout(), wrong, [&](int i) {
    return "needs " + to_string(right(i)) + " and has " +
           to_string(told[static_cast<size_t>(i)].shape);
  });
  if (faults.empty()) return shape;
  throw ArgumentError("from_local with an agreed shape: the pieces together are " +
                      to_string(shape) + ", of which " + to_string(spec) +
                      " gives each rank a part by the cut rule: " + faults);
}

}  // namespace dtensor::internal

#include "dtensor/mesh/device_mesh.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/root.h"

namespace dtensor {
namespace {

// How many meshes this rank has made on a root Comm: a slot of the Context. All ranks of the root
// make the same meshes in the same order, so the number tells the groups of two meshes apart
// without a message, also where their layouts are equal or one of them is gone.
struct MeshCount {
  std::map<std::weak_ptr<comm::Comm*>, int64_t, std::owner_less<>> made;

  // Another Comm at the address of one that has ended starts anew.
  int64_t next(const comm::Comm& root) {
    std::erase_if(made, [](const auto& entry) { return entry.first.expired(); });
    return made[root.handle()]++;
  }
};

const MeshLayout& no_layout() {
  static const MeshLayout none;
  return none;
}

}  // namespace

struct DeviceMesh::State {
  comm::Comm* root = nullptr;
  MeshLayout layout;
  std::optional<Coordinate> coordinate;
  int64_t number = 0;
  std::map<std::vector<int>, std::unique_ptr<comm::Comm>> groups;           // by dims
  std::map<std::vector<int>, std::unique_ptr<comm::Comm>> groups_of_ranks;  // by ranks
};

DeviceMesh::DeviceMesh() = default;

DeviceMesh::DeviceMesh(comm::Comm& root, std::vector<MeshDim> dims, std::vector<int> ranks)
    : DeviceMesh(root, MeshLayout(std::move(dims), std::move(ranks))) {}

DeviceMesh::DeviceMesh(comm::Comm& root, MeshLayout layout) : state_(std::make_shared<State>()) {
  for (const int rank : layout.ranks()) {
    if (rank < 0 || rank >= root.size()) {
      throw ArgumentError("DeviceMesh " + to_string(layout) + ": rank " + std::to_string(rank) +
                          " is not in \"" + root.name() + "\", which has " +
                          std::to_string(root.size()) + " ranks");
    }
  }
  state_->root = &root;
  state_->coordinate = layout.coordinate_of(root.rank());
  state_->layout = std::move(layout);
  state_->number = Context::current().slot<MeshCount>().next(root);
  if (comm::root() == nullptr) comm::set_root(root);
}

const MeshLayout& DeviceMesh::layout() const { return defined() ? state_->layout : no_layout(); }

int DeviceMesh::rank() const { return defined() ? state_->root->rank() : 0; }

const std::optional<Coordinate>& DeviceMesh::coordinate() const {
  static const std::optional<Coordinate> alone = Coordinate{};  // on no mesh there is one holder
  return defined() ? state_->coordinate : alone;
}

int DeviceMesh::coordinate(std::string_view dim) const {
  const int index = layout().dim(dim);
  if (!coordinate()) {
    throw ArgumentError("coordinate(\"" + std::string(dim) + "\"): rank " + std::to_string(rank()) +
                        " is outside the mesh " + to_string(layout()));
  }
  return (*coordinate())[index];
}

MeshSlice DeviceMesh::operator[](std::string_view dim) const { return slice({dim}); }

MeshSlice DeviceMesh::slice(std::initializer_list<std::string_view> dims) const {
  MeshSlice slice{*this, {}};
  for (const std::string_view name : dims) {
    const int index = layout().dim(name);
    for (const int other : slice.dims) {
      if (other == index) {
        throw ArgumentError("slice: mesh dim \"" + std::string(name) + "\" is named twice");
      }
    }
    slice.dims.push_back(index);
  }
  return slice;
}

MeshSlice DeviceMesh::all() const {
  MeshSlice slice{*this, {}};
  for (int m = 0; m < ndim(); ++m) slice.dims.push_back(m);
  return slice;
}

comm::Comm& DeviceMesh::group(std::span<const int> dims) const {
  internal_check(defined(), "a group of no mesh was asked for");
  std::vector<int> key(dims.begin(), dims.end());
  if (const auto it = state_->groups.find(key); it != state_->groups.end()) return *it->second;
  if (!state_->coordinate) {
    throw ArgumentError("group: rank " + std::to_string(rank()) + " is outside the mesh " +
                        to_string(layout()));
  }
  std::string name;
  for (const int m : dims) name += (name.empty() ? "" : ",") + layout().name(m);
  if (state_->number > 0) name += " of mesh " + std::to_string(state_->number);
  auto made = state_->root->group(layout().group(*state_->coordinate, dims), name);
  return *state_->groups.emplace(std::move(key), std::move(made)).first->second;
}

comm::Comm& DeviceMesh::group_of_ranks(std::span<const int> ranks) const {
  internal_check(defined(), "a group of no mesh was asked for");
  std::vector<int> key(ranks.begin(), ranks.end());
  const auto& made = state_->groups_of_ranks;
  if (const auto it = made.find(key); it != made.end()) return *it->second;
  // No mesh dim has such a name, so that it differs from all of group().
  const std::string name = "(ranks) of mesh " + std::to_string(state_->number);
  auto group = state_->root->group(key, name);
  return *state_->groups_of_ranks.emplace(std::move(key), std::move(group)).first->second;
}

comm::Comm& DeviceMesh::root() const {
  internal_check(defined(), "the root Comm of no mesh was asked for");
  return *state_->root;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.state_ == b.state_) return true;
  return a.defined() && b.defined() && a.state_->root == b.state_->root &&
         a.state_->layout == b.state_->layout;
}

}  // namespace dtensor

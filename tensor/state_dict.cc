#include "dtensor/tensor/state_dict.h"

#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/from_rank.h"
#include "dtensor/tensor/move.h"

namespace dtensor {
namespace {

void add_to_list(std::string& list, const std::string& name) {
  list += (list.empty() ? "\"" : ", \"") + name + "\"";
}

void check_dict(const TensorMap& full, const StatePlaces& places) {
  std::string missing;
  std::string unknown;
  std::string wrong;
  for (const auto& [name, place] : places) {
    const auto it = full.find(name);
    if (it == full.end() || !it->second.defined()) {
      add_to_list(missing, name);
      continue;
    }
    const Tensor& t = it->second;
    if (t.shape() == place.layout.shape() && t.dtype() == place.dtype) continue;
    add_to_list(wrong, name);
    wrong += " is " + std::string(name_of(t.dtype())) + to_string(t.shape()) + " and shall be " +
             std::string(name_of(place.dtype)) + to_string(place.layout.shape());
  }
  for (const auto& [name, t] : full) {
    if (!places.contains(name)) add_to_list(unknown, name);
  }
  if (missing.empty() && unknown.empty() && wrong.empty()) return;
  std::string text = "distribute_state:";
  if (!missing.empty()) text += " not in the dict: " + missing + ";";
  if (!unknown.empty()) text += " without a place: " + unknown + ";";
  if (!wrong.empty()) text += " of another shape or dtype: " + wrong + ";";
  text.back() = '.';
  throw ArgumentError(text);
}

const DeviceMesh& mesh_of(const DTensorMap& state) {
  static const DeviceMesh none;
  const DTensor* first = nullptr;
  for (const auto& [name, t] : state) {
    if (first == nullptr) first = &t;
    if (t.mesh() == first->mesh()) continue;
    throw ArgumentError("gather_state: \"" + name + "\" is " + internal::describe(t) +
                        ", on another mesh than \"" + state.begin()->first +
                        "\"; gather the tensors of each mesh apart");
  }
  return first == nullptr ? none : first->mesh();
}

std::vector<std::string> names_of(const auto& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

}  // namespace

Pending<DTensorMap> distribute_state_async(const TensorMap& full, const DeviceMesh& mesh,
                                           const StatePlaces& places,
                                           const DistributeStateOptions& options) {
  if (options.from_rank) internal::check_rank(*options.from_rank, mesh, "distribute_state");
  const bool has_it = !options.from_rank || mesh.rank() == *options.from_rank;
  if (has_it) check_dict(full, places);
  std::vector<MoveItem> items;
  for (const auto& [name, place] : places) {
    const Shape& shape = place.layout.shape();
    items.push_back({.local = has_it ? full.at(name) : Tensor(),
                     .from = options.from_rank ? internal::on_rank(*options.from_rank, shape)
                                               : Layout::replicated(mesh.layout(), shape),
                     .to = place.layout,
                     .label = name,
                     .dtype = place.dtype});
    // Where every rank has it, one outside the mesh has it, too, and needs nothing.
    if (!options.from_rank && !mesh.coordinate()) items.back().local = Tensor();
  }
  Move move = Move::start(mesh, std::move(items), {.op = "distribute_state", .site = options.site});
  const auto make = [full = has_it ? full : TensorMap(), mesh, places](std::vector<Tensor> pieces) {
    DTensorMap out;
    size_t i = 0;
    for (const auto& [name, place] : places) {
      Tensor piece = std::move(pieces[i++]);
      const auto it = full.find(name);
      const bool shared =
          piece.defined() && it != full.end() && piece.storage() == it->second.storage();
      out.emplace(name, internal::placed(shared ? piece.clone() : std::move(piece), place.dtype,
                                         place.layout, mesh));
    }
    return out;
  };
  return Pending<DTensorMap>(std::move(move), make);
}

DTensorMap distribute_state(const TensorMap& full, const DeviceMesh& mesh,
                            const StatePlaces& places, const DistributeStateOptions& options) {
  return distribute_state_async(full, mesh, places, options).wait();
}

Pending<TensorMap> gather_state_async(const DTensorMap& state, const GatherStateOptions& options) {
  const DeviceMesh& mesh = mesh_of(state);
  if (options.to_rank && mesh.defined()) {
    internal::check_rank(*options.to_rank, mesh, "gather_state");
  }
  std::vector<MoveItem> items;
  for (const auto& [name, t] : state) {
    items.push_back({.local = internal::local_or_none(t),
                     .from = t.layout(),
                     .to = options.to_rank && mesh.defined()
                               ? internal::on_rank(*options.to_rank, t.shape())
                               : Layout::replicated(mesh.layout(), t.shape()),
                     .label = name,
                     .dtype = t.dtype()});
  }
  Move move = Move::start(mesh, std::move(items), {.op = "gather_state", .site = options.site});
  return Pending<TensorMap>(std::move(move), [names = names_of(state)](std::vector<Tensor> whole) {
    TensorMap out;
    for (size_t i = 0; i < names.size(); ++i) {
      out.emplace(names[i], std::move(whole[i]));
    }
    return out;
  });
}

TensorMap gather_state(const DTensorMap& state, const GatherStateOptions& options) {
  return gather_state_async(state, options).wait();
}

}  // namespace dtensor

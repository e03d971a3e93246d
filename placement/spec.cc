#include "dtensor/placement/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "dtensor/base/context.h"
#include "dtensor/base/shape.h"

namespace dtensor {

// Everything inline, so that a Spec is read without following pointers. Entries that are not in
// use keep their defaults: equal Specs have equal arrays.
struct Spec::Data {
  MeshLayout mesh;
  int ndim = 0;
  std::array<Placement, kMaxMeshDims> placements{};
  std::array<Level, kMaxMeshDims> levels{};   // by tensor dim, then in shard order
  std::array<uint8_t, kMaxDims + 1> first{};  // levels of dim d: [first[d], first[d + 1])
  std::optional<PartialOp> op;
  uint64_t hash = 0;

  // The first half of a Spec's making: no mesh dim does anything yet.
  Data(const MeshLayout& m, int n) : mesh(m), ndim(n) {
    if (n < 0 || n > kMaxDims) {
      throw ArgumentError(fmt::format("a tensor has 0 to {} dims, asked for {}", kMaxDims, n));
    }
  }

  std::span<const Level> levels_of(int d) const {
    return {levels.data() + first[static_cast<size_t>(d)],
            levels.data() + first[static_cast<size_t>(d) + 1]};
  }

  void set(int mesh_dim, Placement p) { placements[static_cast<size_t>(mesh_dim)] = p; }

  void append(int d, Level level) {
    const auto at = static_cast<ptrdiff_t>(first[static_cast<size_t>(d) + 1]);
    const auto end = static_cast<ptrdiff_t>(first[static_cast<size_t>(ndim)]);
    std::copy_backward(levels.begin() + at, levels.begin() + end, levels.begin() + end + 1);
    levels[static_cast<size_t>(at)] = level;
    for (auto i = static_cast<size_t>(d) + 1; i <= static_cast<size_t>(ndim); ++i) ++first[i];
    set(level.mesh_dim, Shard(d));
  }

  void clear(int mesh_dim) {
    const Placement old = placements[static_cast<size_t>(mesh_dim)];
    set(mesh_dim, Replicate());
    if (!old.is_shard()) return;
    const auto end = levels.begin() + first[static_cast<size_t>(ndim)];
    const auto at =
        std::find_if(levels.begin(), end, [&](const Level& l) { return l.mesh_dim == mesh_dim; });
    std::copy(at + 1, end, at);
    *(end - 1) = Level{};
    for (auto i = static_cast<size_t>(old.dim()) + 1; i <= static_cast<size_t>(ndim); ++i) {
      --first[i];
    }
  }

  // The second half: checks the ops and hashes.
  void finish() {
    op.reset();
    for (const Placement p : placements) {
      if (!p.is_partial()) continue;
      if (op && *op != p.op()) {
        throw PlacementError(fmt::format(
            "{} and {} in one tensor: a Partial tensor has one reduction; redistribute one of the "
            "two to Replicate() or a Shard first",
            to_string(Partial(*op)), to_string(p)));
      }
      op = p.op();
    }
    hash = mesh.hash() * 31 + static_cast<uint64_t>(ndim);
    const auto mix = [&](uint64_t v) {
      hash = (hash ^ v) * 0x9fb21c651e98df25U;
      hash ^= hash >> 28;
    };
    for (const Placement p : placements) {
      mix(static_cast<uint64_t>(p.kind()) * 64 + static_cast<uint64_t>(p.op()) * 16 +
          static_cast<uint64_t>(p.dim()));
    }
    for (const Level& l : levels)
      mix(static_cast<uint64_t>(l.mesh_dim) ^ (static_cast<uint64_t>(l.unit) << 8));
  }

  bool same_as(const Data& other) const {
    return hash == other.hash && ndim == other.ndim && placements == other.placements &&
           levels == other.levels && first == other.first && mesh == other.mesh;
  }
};

// The Context's slot: the Specs that somebody holds, by hash.
class Spec::Table {
 public:
  std::shared_ptr<const Data> intern(const Data& data) {
    const auto [begin, end] = specs_.equal_range(data.hash);
    auto unused = end;
    for (auto it = begin; it != end; ++it) {
      const auto known = it->second.lock();
      if (known == nullptr) {
        unused = it;
      } else if (known->same_as(data)) {
        return known;
      }
    }
    auto made = std::make_shared<const Data>(data);
    if (unused != end) {
      unused->second = made;
      return made;
    }
    if (specs_.size() >= sweep_at_) sweep();
    specs_.emplace(data.hash, made);
    return made;
  }

 private:
  void sweep() {
    std::erase_if(specs_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * specs_.size() + 64;
  }

  std::unordered_multimap<uint64_t, std::weak_ptr<const Data>> specs_;
  size_t sweep_at_ = 64;
};

namespace {

int checked_dim(Placement p, int ndim) {
  if (p.dim() < -ndim || p.dim() >= ndim) {
    throw PlacementError(
        fmt::format("Shard({}) of a tensor with {} dims: {}", p.dim(), ndim,
                    ndim == 0 ? "a scalar cannot be cut; use Replicate()"
                              : fmt::format("give {} to {}, or -{} to -1", 0, ndim - 1, ndim)));
  }
  return p.dim() < 0 ? p.dim() + ndim : p.dim();
}

void check_mesh_dim(const MeshLayout& mesh, int mesh_dim) {
  if (mesh_dim < 0 || mesh_dim >= mesh.ndim()) {
    throw ArgumentError(fmt::format("mesh {}: there is no mesh dim {}", to_string(mesh), mesh_dim));
  }
}

void check_count(const MeshLayout& mesh, size_t placements) {
  if (placements > static_cast<size_t>(mesh.ndim())) {
    throw PlacementError(
        fmt::format("{} placements on the mesh \"{}\" of {} dims; give one per dim", placements,
                    to_string(mesh), mesh.ndim()));
  }
}

int64_t checked_unit(int64_t unit) {
  if (unit < 1) throw ArgumentError(fmt::format("unit {} of a Shard; give 1 or more", unit));
  return unit;
}

}  // namespace

const std::shared_ptr<const Spec::Data>& Spec::none() {
  // A constant, not interned: the default-made Specs of all threads are this one.
  static const auto none = [] {
    Data data(MeshLayout(), 0);
    data.finish();
    return std::make_shared<const Data>(data);
  }();
  return none;
}

Spec::Spec() : data_(none()) {}

Spec::Spec(const Data& data)
    : data_(data.same_as(*none()) ? none() : Context::current().slot<Table>().intern(data)) {}

Spec::Spec(const MeshLayout& mesh, int ndim, std::span<const Placement> placements)
    : Spec([&] {
        check_count(mesh, placements.size());
        Data data(mesh, ndim);
        for (size_t m = 0; m < placements.size(); ++m) {
          const Placement p = placements[m];
          if (p.is_shard()) {
            data.append(checked_dim(p, ndim), Level{static_cast<int>(m), 1});
          } else {
            data.set(static_cast<int>(m), p);
          }
        }
        data.finish();
        return data;
      }()) {}

Spec Spec::from_levels(const MeshLayout& mesh, std::span<const std::vector<Level>> levels,
                       std::span<const Placement> placements) {
  check_count(mesh, placements.size());
  Data data(mesh, static_cast<int>(levels.size()));
  const auto used_twice = [&](int m) {
    return PlacementError(
        fmt::format("mesh dim \"{}\" is used twice in one tensor; it can cut one "
                    "tensor dim once, or be Partial",
                    mesh.name(m)));
  };
  for (size_t d = 0; d < levels.size(); ++d) {
    for (const Level& level : levels[d]) {
      check_mesh_dim(mesh, level.mesh_dim);
      checked_unit(level.unit);
      if (data.placements[static_cast<size_t>(level.mesh_dim)].is_shard()) {
        throw used_twice(level.mesh_dim);
      }
      data.append(static_cast<int>(d), level);
    }
  }
  for (size_t m = 0; m < placements.size(); ++m) {
    const Placement p = placements[m];
    if (p.is_shard()) {
      if (data.placements[m] != Shard(checked_dim(p, data.ndim))) {
        throw PlacementError(fmt::format("mesh dim \"{}\" is {}, but no level of that dim has it",
                                         mesh.name(static_cast<int>(m)), to_string(p)));
      }
    } else if (p.is_partial()) {
      if (data.placements[m].is_shard()) throw used_twice(static_cast<int>(m));
      data.set(static_cast<int>(m), p);
    }
  }
  data.finish();
  return Spec(data);
}

const MeshLayout& Spec::mesh() const { return data_->mesh; }
int Spec::ndim() const { return data_->ndim; }
Placement Spec::placement(int mesh_dim) const {
  return data_->placements[static_cast<size_t>(mesh_dim)];
}
std::span<const Placement> Spec::placements() const {
  return {data_->placements.data(), static_cast<size_t>(mesh().ndim())};
}
std::span<const Level> Spec::levels(int tensor_dim) const { return data_->levels_of(tensor_dim); }

const Level* Spec::level(int mesh_dim) const {
  const Placement p = placement(mesh_dim);
  if (!p.is_shard()) return nullptr;
  for (const Level& level : levels(p.dim())) {
    if (level.mesh_dim == mesh_dim) return &level;
  }
  return nullptr;
}

bool Spec::is_replicated() const {
  return std::ranges::all_of(placements(), [](Placement p) { return p.is_replicate(); });
}
bool Spec::has_partial() const { return data_->op.has_value(); }
PartialOp Spec::partial_op() const {
  internal_check(has_partial(), "partial_op() of a Spec without Partial");
  return *data_->op;
}

Spec Spec::with(int mesh_dim, Placement placement, int64_t unit) const {
  check_mesh_dim(mesh(), mesh_dim);
  if (unit != 0) checked_unit(unit);
  if (placement.is_shard()) placement = Shard(checked_dim(placement, ndim()));
  if (placement == this->placement(mesh_dim) &&
      (!placement.is_shard() || unit == 0 || unit == level(mesh_dim)->unit)) {
    return *this;
  }
  Data data = *data_;
  data.clear(mesh_dim);
  if (placement.is_shard()) {
    data.append(placement.dim(), Level{mesh_dim, unit == 0 ? 1 : unit});
  } else {
    data.set(mesh_dim, placement);
  }
  data.finish();
  return Spec(data);
}

Spec Spec::with(std::span<const int> mesh_dims, std::span<const Placement> placements) const {
  if (mesh_dims.size() != placements.size()) {
    throw ArgumentError(fmt::format("{} placements for {} mesh dims; give one per dim",
                                    placements.size(), mesh_dims.size()));
  }
  Data data = *data_;
  std::array<bool, kMaxMeshDims> changes{};
  for (size_t i = 0; i < mesh_dims.size(); ++i) {
    const int m = mesh_dims[i];
    check_mesh_dim(mesh(), m);
    const Placement p = placements[i];
    changes[static_cast<size_t>(m)] =
        placement(m) != (p.is_shard() ? Shard(checked_dim(p, ndim())) : p);
    if (changes[static_cast<size_t>(m)]) data.clear(m);
  }
  for (size_t i = 0; i < mesh_dims.size(); ++i) {
    const int m = mesh_dims[i];
    if (!changes[static_cast<size_t>(m)]) continue;
    if (data.placements[static_cast<size_t>(m)] != Replicate()) {
      throw PlacementError(fmt::format("mesh dim \"{}\" is given twice", mesh().name(m)));
    }
    if (placements[i].is_shard()) {
      data.append(checked_dim(placements[i], ndim()), Level{m, 1});
    } else {
      data.set(m, placements[i]);
    }
  }
  data.finish();
  return Spec(data);
}

uint64_t Spec::hash() const { return data_->hash; }
bool operator==(const Spec& a, const Spec& b) {
  return a.data_ == b.data_ || a.data_->same_as(*b.data_);
}

std::string to_string(const Spec& spec) {
  const MeshLayout& mesh = spec.mesh();
  std::string text = "[";
  for (int m = 0; m < mesh.ndim(); ++m) {
    text += fmt::format("{}{}:{}", m == 0 ? "" : ", ", mesh.name(m), to_string(spec.placement(m)));
  }
  return text + "]" + options_text(spec);
}

std::string options_text(const Spec& spec) {
  std::string order;
  std::string units;
  for (int d = 0; d < spec.ndim(); ++d) {
    const auto levels = spec.levels(d);
    if (!std::ranges::is_sorted(levels, {}, &Level::mesh_dim)) {
      order += fmt::format(";order={}:", d);
      for (size_t i = 0; i < levels.size(); ++i) {
        order += (i == 0 ? "" : ",") + spec.mesh().name(levels[i].mesh_dim);
      }
    }
    for (const Level& l : levels) {
      if (l.unit == 1) continue;
      units += fmt::format(";unit={}:{}:{}", d, spec.mesh().name(l.mesh_dim), l.unit);
    }
  }
  return order + units;
}

}  // namespace dtensor

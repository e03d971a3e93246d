#include "dtensor/placement/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/base/text_cursor.h"
#include "dtensor/placement/cut_alike.h"

namespace dtensor {
namespace {

// Mesh dims of size 1 cut nothing, so that their place in the order does not matter; but both must
// have them.
bool same_order(const MeshLayout& mesh, std::span<const Level> a, std::span<const Level> b) {
  if (a.size() != b.size()) return false;
  std::array<bool, kMaxMeshDims> in_a{};
  for (const Level& l : a) in_a[static_cast<size_t>(l.mesh_dim)] = true;
  size_t i = 0;
  for (const Level& l : b) {
    if (!in_a[static_cast<size_t>(l.mesh_dim)]) return false;
    if (mesh.size(l.mesh_dim) == 1) continue;
    while (mesh.size(a[i].mesh_dim) == 1) ++i;
    if (a[i++].mesh_dim != l.mesh_dim) return false;
  }
  return true;
}

bool same_units(const MeshLayout& mesh, std::span<const Level> a, std::span<const Level> b) {
  return std::ranges::all_of(a, [&](const Level& l) {
    const auto other = std::ranges::find(b, l.mesh_dim, &Level::mesh_dim);
    return mesh.size(l.mesh_dim) == 1 || other->unit == l.unit;
  });
}

}  // namespace

Box intersect(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.offset.ndim(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    both.offset[d] = begin;
    both.size[d] = std::max<int64_t>(end - begin, 0);
  }
  return both;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (int d = 0; d < box.offset.ndim(); ++d) {
    text += fmt::format("{}{}:{}", d == 0 ? "" : ",", box.offset[d], box.offset[d] + box.size[d]);
  }
  return text + "]";
}

Layout::Layout(Spec spec, const Shape& shape) : spec_(std::move(spec)), shape_(shape) {
  check_shape(shape, "layout");
  if (spec_.ndim() != shape.ndim()) {
    throw ArgumentError(fmt::format("layout: a spec of {} tensor dims for the shape {}",
                                    spec_.ndim(), to_string(shape)));
  }
}

Layout::Layout(const MeshLayout& mesh, const Shape& shape, std::span<const Placement> placements)
    : Layout(Spec(mesh, shape.ndim(), placements), shape) {}

Layout::Layout(const MeshLayout& mesh, const Shape& shape,
               std::initializer_list<Placement> placements)
    : Layout(mesh, shape, std::span(placements.begin(), placements.size())) {}

Layout Layout::replicated(const MeshLayout& mesh, const Shape& shape) {
  return Layout(mesh, shape, std::span<const Placement>{});
}

Range Layout::range(int tensor_dim, const Coordinate& at) const {
  if (tensor_dim < 0 || tensor_dim >= ndim()) {
    throw ArgumentError(fmt::format("layout: tensor dim {} of the shape {}; give 0 to {}",
                                    tensor_dim, to_string(shape_), ndim() - 1));
  }
  Range range{0, shape_[tensor_dim]};
  for (const Level& l : spec_.levels(tensor_dim)) {
    range = cut(range, at[l.mesh_dim], mesh().size(l.mesh_dim), l.unit, mesh().weights(l.mesh_dim));
  }
  return range;
}

Box Layout::box(const Coordinate& at) const {
  Box box{shape_, shape_};
  for (int d = 0; d < ndim(); ++d) {
    const Range r = range(d, at);
    box.offset[d] = r.begin;
    box.size[d] = r.size();
  }
  return box;
}

Box Layout::box_of(int rank) const {
  const auto at = mesh().coordinate_of(rank);
  if (!at) {
    throw ArgumentError(fmt::format("rank {} is not in the mesh \"{}\"", rank, to_string(mesh())));
  }
  return box(*at);
}

uint64_t Layout::hash() const {
  uint64_t hash = spec_.hash();
  for (const int64_t d : shape_) {
    hash = (hash ^ static_cast<uint64_t>(d)) * 0x9fb21c651e98df25U;
    hash ^= hash >> 28;
  }
  return hash;
}

bool cut_alike(const Layout& a, int da, const Layout& b, int db) {
  if (a.shape()[da] != b.shape()[db]) return false;
  if (da == db && a.spec().id() == b.spec().id()) return true;
  const auto levels_a = a.spec().levels(da);
  const auto levels_b = b.spec().levels(db);
  if (levels_a.empty() && levels_b.empty()) return a.mesh() == b.mesh();
  if (!(a.mesh() == b.mesh()) || !same_order(a.mesh(), levels_a, levels_b)) return false;
  if (same_units(a.mesh(), levels_a, levels_b)) return true;
  std::vector<int64_t> lengths{a.shape()[da]};
  return std::ranges::all_of(levels_a, [&](const Level& l) {
    const auto other = std::ranges::find(levels_b, l.mesh_dim, &Level::mesh_dim);
    return internal::cut_alike(a.mesh(), l, *other, lengths);
  });
}

bool equal_boundaries(const Layout& a, const Layout& b) {
  if (a == b) return true;
  if (a.shape() != b.shape() || !(a.mesh() == b.mesh())) return false;
  for (int m = 0; m < a.mesh().ndim(); ++m) {
    const Placement p = a.placement(m);
    const Placement q = b.placement(m);
    if ((p.is_partial() || q.is_partial()) && p != q) return false;
  }
  for (int d = 0; d < a.ndim(); ++d) {
    if (!cut_alike(a, d, b, d)) return false;
  }
  return true;
}

std::string to_string(const Layout& layout) {
  const MeshLayout& mesh = layout.mesh();
  std::string text = to_string(mesh) + ":";
  for (int m = 0; m < mesh.ndim(); ++m) {
    text += (m == 0 ? "" : ",") + to_string(layout.placement(m));
  }
  text += options_text(layout.spec());
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (mesh.weights(m).empty()) continue;
    text += fmt::format(";weights={}:{}", mesh.name(m), fmt::join(mesh.weights(m), ","));
  }
  return text;
}

namespace {

// What stands behind the placements of a layout text, before there is a mesh.
struct Options {
  struct Order {
    int64_t dim;
    std::vector<std::string_view> mesh_dims;
  };
  struct Unit {
    int64_t dim;
    std::string_view mesh_dim;
    int64_t unit;
  };
  std::vector<Order> orders;
  std::vector<Unit> units;
};

Options read_options(TextCursor& in, ParsedMesh& mesh) {
  Options options;
  while (in.eat(';')) {
    const std::string_view key = in.name("order, unit or weights");
    in.expect('=');
    if (key == "weights") {
      const std::string_view name = in.name("the name of a mesh dim");
      const auto dim = std::ranges::find(mesh.dims, name, &MeshDim::name);
      if (dim == mesh.dims.end() || !dim->weights.empty()) {
        throw ArgumentError(
            fmt::format("layout: weights of \"{}\": {}", name,
                        dim == mesh.dims.end() ? "no mesh dim has that name" : "given twice"));
      }
      in.expect(':');
      do dim->weights.push_back(in.number("a weight"));
      while (in.eat(','));
      continue;
    }
    if (key != "order" && key != "unit") {
      throw ArgumentError(
          fmt::format("layout: \"{}\" is no key; the keys are order, unit and weights", key));
    }
    const int64_t dim = in.number("a tensor dim");
    in.expect(':');
    if (key == "unit") {
      const std::string_view mesh_dim = in.name("the name of a mesh dim");
      in.expect(':');
      options.units.push_back({dim, mesh_dim, in.number("a unit")});
      continue;
    }
    Options::Order order{dim, {}};
    do order.mesh_dims.push_back(in.name("the name of a mesh dim"));
    while (in.eat(','));
    options.orders.push_back(std::move(order));
  }
  return options;
}

size_t option_dim(int64_t dim, int ndim, const char* key) {
  if (dim < -ndim || dim >= ndim) {
    throw PlacementError(
        fmt::format("layout: {}={}: a tensor with {} dims has no such dim", key, dim, ndim));
  }
  return static_cast<size_t>(dim < 0 ? dim + ndim : dim);
}

Spec with_options(const Spec& spec, const Options& options) {
  if (options.orders.empty() && options.units.empty()) return spec;
  const MeshLayout& mesh = spec.mesh();
  std::vector<std::vector<Level>> levels;
  for (int d = 0; d < spec.ndim(); ++d) {
    levels.emplace_back(spec.levels(d).begin(), spec.levels(d).end());
  }
  std::vector<bool> ordered(levels.size(), false);
  for (const auto& order : options.orders) {
    const size_t d = option_dim(order.dim, spec.ndim(), "order");
    if (ordered[d]) {
      throw ArgumentError(fmt::format("layout: order={} is given twice", order.dim));
    }
    ordered[d] = true;
    auto& old = levels[d];
    std::vector<Level> sorted;
    for (const std::string_view name : order.mesh_dims) {
      sorted.push_back(Level{mesh.dim(name), 1});
    }
    const auto by_dim = [](const Level& a, const Level& b) { return a.mesh_dim < b.mesh_dim; };
    std::ranges::sort(old, by_dim);
    auto check = sorted;
    std::ranges::sort(check, by_dim);
    if (check != old) {
      throw PlacementError(
          fmt::format("layout: order={}:{} must name each mesh dim that cuts the tensor dim once",
                      order.dim, fmt::join(order.mesh_dims, ",")));
    }
    old = std::move(sorted);
  }
  std::vector<Level*> with_unit;
  for (const auto& unit : options.units) {
    auto& of_dim = levels[option_dim(unit.dim, spec.ndim(), "unit")];
    const auto level = std::ranges::find(of_dim, mesh.dim(unit.mesh_dim), &Level::mesh_dim);
    if (level == of_dim.end()) {
      throw PlacementError(
          fmt::format("layout: unit={}:{}:{}, but \"{}\" does not cut tensor dim {}", unit.dim,
                      unit.mesh_dim, unit.unit, unit.mesh_dim, unit.dim));
    }
    if (unit.unit < 1) {
      throw ArgumentError(fmt::format("layout: unit={}:{}:{}; a unit is 1 or more", unit.dim,
                                      unit.mesh_dim, unit.unit));
    }
    if (std::ranges::find(with_unit, &*level) != with_unit.end()) {
      throw ArgumentError(
          fmt::format("layout: unit={}:{} is given twice", unit.dim, unit.mesh_dim));
    }
    with_unit.push_back(&*level);
    level->unit = unit.unit;
  }
  return Spec::from_levels(mesh, levels, spec.placements());
}

}  // namespace

Layout parse_layout(std::string_view text, const Shape& shape) {
  TextCursor in(text, "layout");
  ParsedMesh parsed = read_mesh(in);
  in.expect(':');
  std::vector<Placement> placements;
  if (!parsed.dims.empty() && !in.at_end() && !in.sees(';')) {
    do placements.push_back(read_placement(in));
    while (in.eat(','));
  }
  const Options options = read_options(in, parsed);
  in.expect_end();
  const MeshLayout mesh(std::move(parsed.dims), std::move(parsed.ranks));
  return Layout(with_options(Spec(mesh, shape.ndim(), placements), options), shape);
}

Layout Layout::with(std::span<const int> mesh_dims, std::span<const Placement> placements) const {
  return Layout(spec_.with(mesh_dims, placements), shape_);
}

}  // namespace dtensor

#include "dtensor/ops/view_layout.h"

#include <algorithm>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/inline_vector.h"
#include "dtensor/placement/reshard_plan.h"

namespace dtensor::ops {
namespace {

// A run of dims [in, in_end) that becomes the run [out, out_end) of the same product.
struct Run {
  int in = 0;
  int in_end = 0;
  int out = 0;
  int out_end = 0;
};

InlineVector<Run, 8> runs_of(const Shape& from, const Shape& to) {
  InlineVector<Run, 8> runs;
  int i = 0;
  int o = 0;
  while (i < from.ndim() && o < to.ndim()) {
    Run run{i, i + 1, o, o + 1};
    int64_t a = from[i];
    int64_t b = to[o];
    while (a != b && (run.in_end < from.ndim() || run.out_end < to.ndim())) {
      if (run.out_end == to.ndim() || (a < b && run.in_end < from.ndim())) {
        a *= from[run.in_end++];
      } else {
        b *= to[run.out_end++];
      }
    }
    i = run.in_end;
    o = run.out_end;
    runs.push_back(run);
  }
  if (runs.empty()) runs.push_back({});
  runs.back().in_end = from.ndim();  // dims of size 1 that are left over
  runs.back().out_end = to.ndim();
  return runs;
}

int64_t product(const Shape& shape, int begin, int end) {
  int64_t p = 1;
  for (int d = begin; d < end; ++d) p *= shape[d];
  return p;
}

class Carrier {
 public:
  Carrier(const Layout& from, const Shape& shape)
      : from_(from), shape_(shape), levels_(static_cast<size_t>(shape.ndim())) {}

  std::variant<Layout, RuleMismatch> run() {
    for (const Run& run : runs_of(from_.shape(), shape_)) {
      if (!carry(run)) return mismatch_;
    }
    std::vector<Placement> partial;
    for (const Placement p : from_.spec().placements()) {
      partial.push_back(p.is_partial() ? p : Replicate());
    }
    return Layout(Spec::from_levels(from_.mesh(), levels_, partial), shape_);
  }

 private:
  bool carry(const Run& run) {
    int cut = -1;
    for (int d = run.in; d < run.in_end; ++d) {
      const auto levels = from_.spec().levels(d);
      if (levels.empty()) continue;
      if (cut >= 0 || product(from_.shape(), run.in, d) > 1) {
        mismatch_ = {levels.front().mesh_dim,
                     "dim " + std::to_string(d) + " is cut and is not the first of the dims that " +
                         "are joined, so a rank's part would be scattered"};
        return false;
      }
      cut = d;
    }
    if (cut < 0) return true;
    if (run.in_end == run.in + 1 && run.out_end == run.out + 1) {
      const auto levels = from_.spec().levels(cut);
      levels_[static_cast<size_t>(run.out)].assign(levels.begin(), levels.end());
      return true;
    }
    // A dim of size 1 is the last choice: what is cut is the first dim that has something to cut.
    for (const bool ones : {false, true}) {
      for (int d = run.out; d < run.out_end; ++d) {
        if (product(shape_, run.out, d) > 1) break;
        if ((shape_[d] == 1) == ones && land(run, cut, d)) return true;
      }
    }
    const int64_t inner =
        product(shape_, run.out_end > run.out ? first_wide(run) + 1 : run.out, run.out_end);
    mismatch_ = {from_.spec().levels(cut).front().mesh_dim, boundary_text(run, cut, inner)};
    return false;
  }

  int first_wide(const Run& run) const {
    int d = run.out;
    while (d + 1 < run.out_end && shape_[d] == 1) ++d;
    return d;
  }

  // Tries to cut dim `out` of the result where `cut` of the operand is cut.
  bool land(const Run& run, int cut, int out) {
    const int64_t inner_in = product(from_.shape(), cut + 1, run.in_end);
    const int64_t inner_out = product(shape_, out + 1, run.out_end);
    std::vector<Level>& levels = levels_[static_cast<size_t>(out)];
    for (const Level& level : from_.spec().levels(cut)) {
      const int64_t unit = level.unit * inner_in;
      const bool whole = inner_out > 0 && unit % inner_out == 0;
      levels.push_back({level.mesh_dim, whole ? std::max<int64_t>(unit / inner_out, 1) : 1});
    }
    const Layout result(Spec::from_levels(from_.mesh(), levels_, {}), shape_);
    for (int r = 0; r < from_.mesh().size(); ++r) {
      const Coordinate at = from_.mesh().coordinate_at(r);
      const Range a = from_.range(cut, at);
      const Range b = result.range(out, at);
      const bool both_empty = a.size() * inner_in == 0 && b.size() * inner_out == 0;
      if (!both_empty &&
          (a.begin * inner_in != b.begin * inner_out || a.end * inner_in != b.end * inner_out)) {
        levels.clear();
        return false;
      }
    }
    return true;
  }

  std::string boundary_text(const Run& run, int cut, int64_t inner) const {
    const int64_t inner_in = product(from_.shape(), cut + 1, run.in_end);
    for (int r = 0; r < from_.mesh().size(); ++r) {
      const int64_t end = from_.range(cut, from_.mesh().coordinate_at(r)).end * inner_in;
      if (inner > 0 && end % inner != 0) {
        return "boundary " + std::to_string(end) + " is no multiple of " + std::to_string(inner);
      }
    }
    return "its boundaries are not those of a cut of the result";
  }

  const Layout& from_;
  const Shape& shape_;
  std::vector<std::vector<Level>> levels_;
  RuleMismatch mismatch_;
};

// A view that was made before.
struct KnownReshape {
  Layout from;
  Shape shape;
  Spec out;
  bool is(const Layout& f, const Shape& s) const {
    return from.spec().id() == f.spec().id() && from.shape() == f.shape() && shape == s;
  }
};

// The Context's slot. Each view has one place; a later one of the same place takes it over.
class KnownReshapes {
 public:
  KnownReshape& at(const Layout& from, const Shape& shape) {
    auto hash = reinterpret_cast<uintptr_t>(from.spec().id()) >> 6;
    for (const int64_t n : from.shape()) hash = hash * 31 + static_cast<uint64_t>(n);
    for (const int64_t n : shape) hash = hash * 37 + static_cast<uint64_t>(n);
    return known_[hash % known_.size()];
  }

 private:
  std::vector<KnownReshape> known_ = std::vector<KnownReshape>(512);
};

// The units of dim `d` that keep rows of the result together, and 1.
std::vector<int64_t> row_units(const Shape& from, int d, const Shape& to) {
  std::vector<int64_t> units = {1};
  const int64_t inner = product(from, d + 1, from.ndim());
  for (int e = to.ndim(); e > 0; --e) {
    const int64_t row = product(to, e, to.ndim());
    if (inner <= 0 || row % inner != 0) continue;
    const int64_t unit = row / inner;
    if (unit > 1 && unit <= from[d] && std::ranges::count(units, unit) == 0) units.push_back(unit);
  }
  return units;
}

}  // namespace

Shape infer_shape(const Shape& from, const Shape& shape) {
  Shape result = shape;
  int open = -1;
  int64_t known = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] >= 0) {
      known = checked_mul(known, shape[d]);
    } else if (shape[d] == -1 && open < 0) {
      open = d;
    } else {
      throw ArgumentError("reshape to " + to_string(shape) + ": one dim may be -1");
    }
  }
  if (open >= 0 && known > 0) result[open] = from.numel() / known;
  if (open >= 0 && known == 0) result[open] = 0;
  if (result.numel() != from.numel()) {
    throw ArgumentError("reshape of " + to_string(from) + " (" + std::to_string(from.numel()) +
                        " elements) to " + to_string(shape) + ": the number of elements differs");
  }
  return result;
}

std::variant<Layout, RuleMismatch> reshape_layout(const Layout& from, const Shape& shape) {
  KnownReshape& known = Context::current().slot<KnownReshapes>().at(from, shape);
  if (known.is(from, shape)) return Layout(known.out, shape);
  auto found = Carrier(from, shape).run();
  if (const auto* out = std::get_if<Layout>(&found)) known = {from, shape, out->spec()};
  return found;
}

bool can_view(const Shape& from, const Shape& shape, const Shape& local, const Shape& strides) {
  if (from.numel() == 0) return true;
  for (const Run& run : runs_of(from, shape)) {
    int inner = -1;  // the dim of the run that counts and comes after d
    for (int d = run.in_end - 1; d >= run.in; --d) {
      if (from[d] == 1) continue;
      if (inner >= 0 && strides[d] != local[inner] * strides[inner]) return false;
      inner = d;
    }
  }
  return true;
}

std::vector<Fix> reshape_fixes(const Layout& from, const Shape& shape, DType dtype) {
  Layout whole = from;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m).is_shard()) whole = whole.with(m, Replicate());
  }
  std::vector<Layout> candidates = {whole};
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (!from.placement(m).is_shard()) continue;
    candidates.push_back(from.with(m, Replicate()));
    for (int d = 0; d < from.ndim(); ++d) {
      for (const int64_t unit : row_units(from.shape(), d, shape)) {
        candidates.push_back(from.with(m, Shard(d), unit));
        candidates.push_back(whole.with(m, Shard(d), unit));
      }
    }
  }
  std::vector<Fix> fixes;
  for (const Layout& to : candidates) {
    auto out = reshape_layout(to, shape);
    if (to == from || !std::holds_alternative<Layout>(out)) continue;
    if (std::ranges::any_of(fixes, [&](const Fix& f) { return f.in.front() == to; })) continue;
    const ReshardPlan moves = plan(from, to);
    fixes.push_back({.in = {to},
                     .out = {std::get<Layout>(std::move(out))},
                     .each = {moves.most_received() * size_of(dtype)},
                     .received_bytes = moves.most_received() * size_of(dtype),
                     .payload_elements = moves.payload(),
                     .moved = 1});
  }
  std::ranges::stable_sort(fixes, {}, &Fix::received_bytes);
  return fixes;
}

}  // namespace dtensor::ops

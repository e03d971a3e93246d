#include "dtensor/placement/least_payload.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace dtensor {
namespace {

// What one rank holds and wants; those of the same slice are reduced together.
struct Holder {
  int slice = 0;
  Box have;
  Box want;
  bool holds = true;
  bool wants = true;

  bool holds_all_of(const Box& box) const { return holds && intersect(have, box) == box; }
  bool wants_all_of(const Box& box) const { return wants && intersect(want, box) == box; }
};

bool is_at_zero(const std::vector<int>& mesh_dims, const Coordinate& at) {
  return std::ranges::all_of(mesh_dims, [&](int m) { return at[m] == 0; });
}

// The cells between all boundaries: in one cell every box is all or nothing.
class Cells {
 public:
  explicit Cells(const std::vector<Holder>& holders, int ndim) {
    bounds_.resize(static_cast<size_t>(ndim));
    for (const Holder& h : holders) {
      for (const Box& box : {h.have, h.want}) {
        for (int d = 0; d < ndim; ++d) {
          auto& of_dim = bounds_[static_cast<size_t>(d)];
          of_dim.push_back(box.offset[d]);
          of_dim.push_back(box.offset[d] + box.size[d]);
        }
      }
    }
    for (auto& of_dim : bounds_) {
      std::ranges::sort(of_dim);
      of_dim.erase(std::unique(of_dim.begin(), of_dim.end()), of_dim.end());
    }
    at_.resize(bounds_.size());
  }

  template <class F>
  void for_each(F&& f) {
    for (const auto& of_dim : bounds_) {
      if (of_dim.size() < 2) return;
    }
    do f(cell());
    while (next());
  }

 private:
  Box cell() const {
    Box box{Shape::filled(static_cast<int>(bounds_.size()), 0),
            Shape::filled(static_cast<int>(bounds_.size()), 0)};
    for (size_t d = 0; d < bounds_.size(); ++d) {
      box.offset[static_cast<int>(d)] = bounds_[d][at_[d]];
      box.size[static_cast<int>(d)] = bounds_[d][at_[d] + 1] - bounds_[d][at_[d]];
    }
    return box;
  }
  bool next() {
    for (size_t d = bounds_.size(); d-- > 0;) {
      if (++at_[d] + 1 < bounds_[d].size()) return true;
      at_[d] = 0;
    }
    return false;
  }

  std::vector<std::vector<int64_t>> bounds_;
  std::vector<size_t> at_;
};

// Sends per element of one cell; n ranks are in a slice.
int64_t per_element(const std::vector<Holder>& holders, int slices, int64_t n, const Box& cell) {
  std::vector<int64_t> want(static_cast<size_t>(slices), 0);
  std::vector<bool> have(static_cast<size_t>(slices), false);
  for (const Holder& h : holders) {
    const auto slice = static_cast<size_t>(h.slice);
    want[slice] += h.wants_all_of(cell) ? 1 : 0;
    have[slice] = have[slice] || h.holds_all_of(cell);
  }
  int64_t sends = 0;
  int64_t lacking = 0;
  bool reduced = false;
  for (size_t s = 0; s < want.size(); ++s) {
    if (want[s] == 0) continue;
    if (!have[s]) {
      lacking += want[s];
    } else {
      reduced = true;
      sends += n > 1 ? n - 1 + want[s] - 1 : 0;
    }
  }
  return sends + lacking + (lacking > 0 && !reduced ? n - 1 : 0);
}

}  // namespace

std::vector<int> at_zero_dims(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  if (!to.spec().has_partial() || to.shape().numel() == 0) return dims;
  const PartialOp op = to.spec().partial_op();
  if (op == PartialOp::kMin || op == PartialOp::kMax) return dims;
  const bool one_mesh = from.mesh() == to.mesh();
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    const bool from_r = !one_mesh || from.placement(m).is_replicate();
    if (to.placement(m).is_partial() && from_r) dims.push_back(m);
  }
  return dims;
}

namespace {

// Slices by what a rank reduces with: the ranks that differ on the mesh dims `reduced` alone.
class Slicer {
 public:
  Slicer(const MeshLayout& mesh, std::vector<int> reduced)
      : mesh_(mesh), reduced_(std::move(reduced)) {}
  int slice_of(Coordinate at) {
    for (const int m : reduced_) at[m] = 0;
    return numbers_.emplace(mesh_.rank_at(at), count()).first->second;
  }
  int count() const { return static_cast<int>(numbers_.size()); }

 private:
  const MeshLayout& mesh_;
  std::vector<int> reduced_;
  std::map<int, int> numbers_;  // by the rank at coordinate 0 of the reduced dims
};

// `to` with its new Partial mesh dims as R.
Layout without_new_partial(const Layout& from, const Layout& to) {
  Layout wanted = to;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    const bool was = from.mesh() == to.mesh() && from.placement(m).is_partial();
    if (to.placement(m).is_partial() && !was) wanted = wanted.with(m, Replicate());
  }
  return wanted;
}

// The mesh dims of `from` on which values are reduced: P -> R or S, between meshes every P.
std::vector<int> reduced_dims(const Layout& from, const Layout& to) {
  const bool one_mesh = from.mesh() == to.mesh();
  std::vector<int> dims;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const bool stays = one_mesh && to.placement(m).is_partial();
    if (from.placement(m).is_partial() && !stays) dims.push_back(m);
  }
  return dims;
}

// S -> P, of one mesh.
std::vector<int> shared_dims(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (from.placement(m).is_shard() && to.placement(m).is_partial()) dims.push_back(m);
  }
  return dims;
}

// The mesh dims that stay R or P. They cut nothing, so that the others do at each of their
// coordinates the same, and by themselves.
std::vector<int> left_alone(const Layout& from, const Layout& to) {
  std::vector<int> dims;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement p = from.placement(m);
    if (p == to.placement(m) && !p.is_shard()) dims.push_back(m);
  }
  return dims;
}

int64_t ranks_of(const MeshLayout& mesh, const std::vector<int>& mesh_dims) {
  int64_t n = 1;
  for (const int m : mesh_dims) n *= mesh.size(m);
  return n;
}

int64_t lacking(const Holder& h) {
  if (!h.wants) return 0;
  return h.want.numel() - (h.holds ? intersect(h.have, h.want).numel() : 0);
}

int64_t least_on_one_mesh(const Layout& from, const Layout& to) {
  const Layout wanted = without_new_partial(from, to);
  const MeshLayout& mesh = from.mesh();
  const std::vector<int> reduced = reduced_dims(from, to);
  const std::vector<int> shared = shared_dims(from, to);
  const std::vector<int> at_zero = at_zero_dims(from, to);
  const std::vector<int> alone = left_alone(from, to);
  const int64_t times = ranks_of(mesh, alone);
  std::vector<int> of_slice = reduced;
  of_slice.insert(of_slice.end(), shared.begin(), shared.end());
  Slicer slicer(mesh, of_slice);
  const int64_t n = ranks_of(mesh, reduced);
  std::vector<Holder> holders;
  int64_t all_lacking = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    if (!is_at_zero(alone, at)) continue;
    const bool wants = is_at_zero(at_zero, at) && is_at_zero(shared, at);
    const Holder& h = holders.emplace_back(
        Holder{slicer.slice_of(at), from.box(at), wanted.box(at), true, wants});
    all_lacking += lacking(h);
  }
  if (n == 1 && shared.empty()) return times * all_lacking;
  int64_t all = 0;
  Cells(holders, from.ndim()).for_each([&](const Box& cell) {
    all += cell.numel() * per_element(holders, slicer.count(), n, cell);
  });
  return times * all;
}

// An element is reduced once, by n - 1 sends to a rank that wants it where there is one among those
// that hold it, and goes on to every other rank that wants it.
int64_t least_between_meshes(const Layout& from, const Layout& to) {
  const Layout wanted = without_new_partial(from, to);
  const int64_t n = ranks_of(from.mesh(), reduced_dims(from, to));
  const std::vector<int> at_zero = at_zero_dims(from, to);
  std::map<int, Holder> holders;  // by rank
  for (int i = 0; i < from.mesh().size(); ++i) {
    const Box box = from.box(from.mesh().coordinate_at(i));
    holders[from.mesh().ranks()[static_cast<size_t>(i)]] = Holder{0, box, box, true, false};
  }
  for (int i = 0; i < to.mesh().size(); ++i) {
    const Coordinate at = to.mesh().coordinate_at(i);
    const Box box = wanted.box(at);
    const int rank = to.mesh().ranks()[static_cast<size_t>(i)];
    Holder& h = holders.emplace(rank, Holder{0, box, box, false, true}).first->second;
    h.want = box;
    h.wants = is_at_zero(at_zero, at);
  }
  std::vector<Holder> all_holders;
  int64_t all = 0;
  for (const auto& [rank, h] : holders) {
    all_holders.push_back(h);
    all += lacking(h);
  }
  if (n == 1) return all;
  all = 0;
  Cells(all_holders, from.ndim()).for_each([&](const Box& cell) {
    int64_t wanters = 0;
    int64_t having = 0;
    for (const Holder& h : all_holders) {
      if (!h.wants_all_of(cell)) continue;
      ++wanters;
      having += h.holds_all_of(cell) ? 1 : 0;
    }
    if (wanters == 0) return;
    all += cell.numel() * (n - 1 + wanters - (having > 0 ? 1 : 0));
  });
  return all;
}

}  // namespace

bool keeps_terms(const Layout& from, const Layout& to) {
  const auto all_partial = [](const Layout& layout) {
    for (int m = 0; m < layout.mesh().ndim(); ++m) {
      if (!layout.placement(m).is_partial() && layout.mesh().size(m) > 1) return false;
    }
    return layout.spec().has_partial();
  };
  if (from.mesh() == to.mesh() || !all_partial(from) || !all_partial(to)) return false;
  if (from.spec().partial_op() != to.spec().partial_op()) return false;
  std::vector<int> before = from.mesh().ranks();
  std::vector<int> after = to.mesh().ranks();
  std::ranges::sort(before);
  std::ranges::sort(after);
  return before == after;
}

int64_t least_payload(const Layout& from, const Layout& to) {
  if (keeps_terms(from, to)) return 0;
  return from.mesh() == to.mesh() ? least_on_one_mesh(from, to) : least_between_meshes(from, to);
}

int64_t least_payload_boxes(const Layout& from, const Layout& to) {
  const bool one_mesh = from.mesh() == to.mesh();
  const int64_t ranks = one_mesh ? from.mesh().size() / ranks_of(from.mesh(), left_alone(from, to))
                                 : int64_t{from.mesh().size()} + to.mesh().size();
  const bool shares = one_mesh && !shared_dims(from, to).empty();
  if (reduced_dims(from, to).empty() && !shares) return ranks;
  const auto parts = [](const Layout& layout, int d) {
    int64_t count = 1;
    for (const Level& level : layout.spec().levels(d)) count *= layout.mesh().size(level.mesh_dim);
    return count;
  };
  const Layout wanted = without_new_partial(from, to);
  __int128 boxes = ranks;
  for (int d = 0; d < from.ndim(); ++d) {
    boxes *= std::clamp<int64_t>(from.shape()[d], 1, parts(from, d) + parts(wanted, d) - 1);
    boxes = std::min<__int128>(boxes, INT64_MAX);
  }
  return static_cast<int64_t>(boxes);
}

}  // namespace dtensor

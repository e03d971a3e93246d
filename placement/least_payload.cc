#include "dtensor/placement/least_payload.h"

#include <algorithm>
#include <map>
#include <vector>

namespace dtensor {
namespace {

// What one rank holds and wants; those of the same slice are reduced together.
struct Holder {
  int slice = 0;
  Box have;
  Box want;
  bool wants = true;

  bool wants_all_of(const Box& box) const { return wants && intersect(want, box) == box; }
};

bool becomes_partial(const Layout& from, const Layout& to, int m) {
  return to.placement(m).is_partial() && !from.placement(m).is_partial();
}

// R -> P needs the value at coordinate 0 only.
bool wants_value(const Layout& from, const Layout& to, const Coordinate& at) {
  for (int m = 0; m < at.ndim; ++m) {
    if (becomes_partial(from, to, m) && from.placement(m).is_replicate() && at[m] != 0) {
      return false;
    }
  }
  return true;
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
    have[slice] = have[slice] || intersect(h.have, cell) == cell;
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

Layout before_partial(const Layout& from, const Layout& to) {
  Layout before = to;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    if (becomes_partial(from, to, m)) before = before.with(m, Replicate());
  }
  for (int d = 0; d < from.ndim(); ++d) {
    for (const Level& level : from.spec().levels(d)) {
      if (becomes_partial(from, to, level.mesh_dim)) {
        before = before.with(level.mesh_dim, Shard(d), level.unit);
      }
    }
  }
  return before;
}

int64_t least_payload(const Layout& from, const Layout& to) {
  const Layout before = before_partial(from, to);
  const MeshLayout& mesh = from.mesh();
  std::vector<int> reduced;
  int64_t n = 1;
  for (int m = 0; m < mesh.ndim(); ++m) {
    if (!from.placement(m).is_partial() || to.placement(m).is_partial()) continue;
    reduced.push_back(m);
    n *= mesh.size(m);
  }
  std::vector<Holder> holders;
  std::map<int, int> slices;  // by the rank at coordinate 0 of the reduced dims
  int64_t lacking = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    Coordinate first = at;
    for (const int m : reduced) first[m] = 0;
    const auto slice = slices.emplace(mesh.rank_at(first), static_cast<int>(slices.size())).first;
    const Holder& h = holders.emplace_back(
        Holder{slice->second, from.box(at), before.box(at), wants_value(from, to, at)});
    if (h.wants) lacking += h.want.numel() - intersect(h.have, h.want).numel();
  }
  if (n == 1) return lacking;
  int64_t all = 0;
  Cells(holders, from.ndim()).for_each([&](const Box& cell) {
    all += cell.numel() * per_element(holders, static_cast<int>(slices.size()), n, cell);
  });
  return all;
}

}  // namespace dtensor

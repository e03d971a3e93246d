#include "dtensor/placement/box_index.h"

#include <algorithm>
#include <numeric>

namespace dtensor {
namespace {

constexpr int kLeaf = 4;

bool meet(const Box& a, const Box& b) {
  for (int d = 0; d < a.offset.ndim(); ++d) {
    if (std::max(a.offset[d], b.offset[d]) >=
        std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d])) {
      return false;
    }
  }
  return true;
}

bool is_less(const Box& a, const Box& b) {
  if (!(a.offset == b.offset)) return std::ranges::lexicographical_compare(a.offset, b.offset);
  return std::ranges::lexicographical_compare(a.size, b.size);
}

Box hull(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.offset.ndim(); ++d) {
    both.offset[d] = std::min(a.offset[d], b.offset[d]);
    both.size[d] = std::max(a.offset[d] + a.size[d], b.offset[d] + b.size[d]) - both.offset[d];
  }
  return both;
}

}  // namespace

BoxIndex::BoxIndex(std::span<const Box> boxes) {
  std::vector<int> order;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!boxes[i].empty()) order.push_back(static_cast<int>(i));
  }
  std::ranges::sort(order, [&](int a, int b) {
    const Box& x = boxes[static_cast<size_t>(a)];
    const Box& y = boxes[static_cast<size_t>(b)];
    return x == y ? a < b : is_less(x, y);
  });
  for (const int i : order) {
    const Box& box = boxes[static_cast<size_t>(i)];
    if (entries_.empty() || !(entries_.back().box == box)) entries_.push_back({box, {}});
    entries_.back().tiles.push_back(i);
  }
  if (!entries_.empty()) build(0, static_cast<int>(entries_.size()));
}

int BoxIndex::build(int first, int last) {
  Node node;
  node.first = first;
  node.last = last;
  const auto begin = entries_.begin() + first;
  const auto end = entries_.begin() + last;
  node.bounds = begin->box;
  for (auto it = begin; it != end; ++it) node.bounds = hull(node.bounds, it->box);
  if (last - first > kLeaf && node.bounds.offset.ndim() > 0) {
    const int widest =
        static_cast<int>(std::ranges::max_element(node.bounds.size) - node.bounds.size.begin());
    const int middle = first + (last - first) / 2;
    std::nth_element(begin, entries_.begin() + middle, end, [&](const Entry& a, const Entry& b) {
      return a.box.offset[widest] < b.box.offset[widest];
    });
    node.left = build(first, middle);
    node.right = build(middle, last);
  }
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

std::vector<const BoxIndex::Entry*> BoxIndex::meeting(const Box& box) const {
  std::vector<const Entry*> found;
  std::vector<int> open;
  if (!nodes_.empty()) open.push_back(static_cast<int>(nodes_.size()) - 1);
  while (!open.empty()) {
    const Node& node = nodes_[static_cast<size_t>(open.back())];
    open.pop_back();
    ++comparisons_;
    if (!meet(node.bounds, box)) continue;
    if (node.left >= 0) {
      open.push_back(node.left);
      open.push_back(node.right);
      continue;
    }
    for (int i = node.first; i < node.last; ++i) {
      ++comparisons_;
      const Entry& entry = entries_[static_cast<size_t>(i)];
      if (meet(entry.box, box)) found.push_back(&entry);
    }
  }
  std::ranges::sort(found, {}, [](const Entry* e) { return e->tiles.front(); });
  return found;
}

BoxIndex::Overlap BoxIndex::overlap() const {
  for (const Entry& entry : entries_) {
    for (const Entry* other : meeting(entry.box)) {
      if (other != &entry) return {&entry, other};
    }
  }
  return {};
}

}  // namespace dtensor

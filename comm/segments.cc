#include "dtensor/comm/segments.h"

#include <string>

#include "dtensor/base/checked.h"
#include "dtensor/base/cut.h"
#include "dtensor/comm/hash.h"

namespace dtensor::comm {

Segments::Segments(std::span<const int64_t> counts) {
  offsets_.reserve(counts.size() + 1);
  offsets_.push_back(0);
  for (const int64_t count : counts) {
    if (count < 0) {
      throw ArgumentError("Segments: count " + std::to_string(count) + " of rank " +
                          std::to_string(offsets_.size() - 1) + " is negative; give 0 or more");
    }
    offsets_.push_back(checked_add(offsets_.back(), count));
  }
}

Segments Segments::even(int64_t total, int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(cut({0, total}, r, size).size());
  return Segments(counts);
}

uint64_t Segments::hash() const {
  uint64_t h = offsets_.size();
  for (const int64_t offset : offsets_) h = internal::mix(h, static_cast<uint64_t>(offset));
  return h;
}

}  // namespace dtensor::comm

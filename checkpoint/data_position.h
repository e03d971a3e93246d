// DataPosition: where a run is in its data: how many samples all ranks together have read. Which of
// the next ones a rank reads follows from it by the cut rule, so that nothing of it belongs to a
// rank, and a run goes on with other ranks where it stopped: no sample twice, none left out.

#pragma once

#include <cstdint>

#include "dtensor/base/cut.h"

namespace dtensor::checkpoint {

struct DataPosition {
  int64_t samples = 0;

  // The samples of the next global batch of `batch` that part `index` of `parts` reads: with
  // {.samples = 24} and a batch of 8, parts 0 to 2 of 3 read [24,27), [27,30) and [30,32).
  // ArgumentError for a negative batch or an index that is not of the parts.
  Range next(int64_t batch, int index, int parts) const;
  // All parts have read their samples of a batch.
  void advance(int64_t batch);

  // In a data set of `size` samples, read again and again: the round, and the place in it.
  int64_t epoch(int64_t size) const;
  static int64_t index_in_epoch(int64_t sample, int64_t size);

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

}  // namespace dtensor::checkpoint

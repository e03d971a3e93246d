#include "dtensor/checkpoint/data_position.h"

#include <fmt/core.h>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

void check_size(int64_t size) {
  if (size > 0) return;
  throw ArgumentError(fmt::format("DataPosition: a data set of {} samples", size));
}

}  // namespace

Range DataPosition::next(int64_t batch, int index, int parts) const {
  if (batch < 0) throw ArgumentError(fmt::format("DataPosition: a batch of {} samples", batch));
  return cut({samples, checked_add(samples, batch)}, index, parts);
}

void DataPosition::advance(int64_t batch) {
  if (batch < 0) throw ArgumentError(fmt::format("DataPosition: a batch of {} samples", batch));
  samples = checked_add(samples, batch);
}

int64_t DataPosition::epoch(int64_t size) const {
  check_size(size);
  return samples / size;
}

int64_t DataPosition::index_in_epoch(int64_t sample, int64_t size) {
  check_size(size);
  return sample % size;
}

}  // namespace dtensor::checkpoint

// SavePlan: what one rank writes of one attempt, found out before anything is written. Internal.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/state.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

struct PlannedFile {
  std::string name;           // in the directory of the attempt
  std::string header;         // of the safetensors file
  std::vector<Tensor> parts;  // in the order of the file; views of the state's tensors
};

struct SavePlan {
  Record record;  // but for the sizes and CRCs of its files
  std::vector<PlannedFile> files;

  int64_t data_bytes() const;
};

struct PlanOptions {
  // A file ends before the chunk that would make its data longer. A larger chunk is cut along dim
  // 0; one row that is still larger makes a file of its own.
  int64_t file_bytes = 0;  // positive
  // Keeps the header far below what readers take.
  int64_t chunks = 200'000;
  int64_t record_bytes = kMaxRecordBytes;  // what readers take
  Replicas replicas = Replicas::kTrusted;
};

// `about` has id, step, rank and world. PlacementError for a Partial tensor, ArgumentError for a
// name that is not UTF-8, and for a record or a header that would be too large to be read.
SavePlan plan_save(const NamedState& state, Record about, const PlanOptions& options);

}  // namespace dtensor::checkpoint

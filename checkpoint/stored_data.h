// The data files of an attempt against its records.

#pragma once

#include <string>
#include <vector>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/safetensors.h"

namespace dtensor::checkpoint {

// Does the file hold a chunk under its key, of the tensor's dtype and the box's size?
// CheckpointError naming both otherwise.
void check_entry(const safetensors::File& file, const std::string& name, const StoredTensor& tensor,
                 const StoredChunk& chunk);

// Reads every file whole, and compares its blocks with the records and its header with the chunks.
std::vector<Problem> examine_data(const Contents& contents);

}  // namespace dtensor::checkpoint

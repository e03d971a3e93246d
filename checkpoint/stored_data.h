// The data files of an attempt against its records.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/safetensors.h"

namespace dtensor::checkpoint {

// Does the file hold a chunk under its key, of the tensor's dtype and the box's size?
// Its entry; CheckpointError naming both where not.
const safetensors::Entry& check_entry(const safetensors::File& file, const std::string& name,
                                      const StoredTensor& tensor, const StoredChunk& chunk);

// Opens a file that has to have the recorded size, and compares the blocks that its header lies in
// with their CRCs: what the header says can then be used. CheckpointError otherwise, naming the
// tensor `needed_for`. Adds what it read to `bytes_read`.
safetensors::File open_checked(const StoredFile& stored, const std::string& needed_for,
                               int64_t& bytes_read);

// Calls f for every chunk that has elements of `box`, with those.
void for_each_part(const StoredTensor& tensor, const Box& box,
                   const std::function<void(const StoredChunk& chunk, const Box& part)>& f);

// Which files: those whose number is `part` modulo `parts`.
struct DataShare {
  int part = 0;
  int parts = 1;
};
// Reads files whole, and compares their blocks with the record and their headers with the chunks.
// `progress` is called with the bytes of every file that was read.
std::vector<Problem> examine_data(const Contents& contents, DataShare share = {},
                                  const std::function<void(int64_t bytes)>& progress = {});

}  // namespace dtensor::checkpoint

// Values of a stored checkpoint as a stream of bytes, through a bounded buffer. Internal.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/checkpoint/contents.h"

namespace dtensor::checkpoint {

// A part of a stored tensor, wanted as `dtype`.
struct WantedChunk {
  std::string name;  // of the tensor in the contents
  DType dtype = DType::kFloat32;
  Box box;
};

// The box cut into boxes that follow each other in its row-major order, each of at most
// `most_elements` elements.
std::vector<Box> row_major_parts(const Box& box, int64_t most_elements);

// Calls f with the elements of all chunks, row-major, one chunk after the other, in stretches of at
// most `buffer_bytes`. The chunks are ordered by falling size of an element. `contents` is located.
// CheckpointError for damaged data.
void stream_chunks(const Contents& contents, std::span<const WantedChunk> chunks,
                   int64_t buffer_bytes, const std::function<void(std::span<const std::byte>)>& f);

}  // namespace dtensor::checkpoint

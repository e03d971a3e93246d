// Fill: brings pieces of stored tensors from files into local tensors. Internal.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

struct FillSource {
  std::string path;
  int64_t bytes = 0;                          // that the file has to have
  std::span<const uint32_t> block_crcs = {};  // empty: not checked
};
struct FillTarget {
  std::string name;
  Tensor local;
  Box box;                         // of the whole tensor: where `local` lies
  DType stored = DType::kFloat32;  // converted to the local dtype where that is another
};
struct FillPiece {
  int source = 0;
  int target = 0;
  int64_t begin_bytes = 0;  // of the chunk, from byte 0 of the file
  Box chunk;                // of the whole tensor: what is stored there
  Box part;                 // what is taken of it: inside the chunk and the target's box
};

struct FillOptions {
  int64_t buffer_bytes = 16 << 20;  // of all threads together; at least a block for each
  int threads = 1;                  // the most that read, the calling one included
};
// ArgumentError where a caller's io_threads is not 1 to 256. `who`: "checkpoint::load".
void check_io_threads(std::string_view who, int io_threads);

struct FillResult {
  int64_t bytes_read = 0;
};

// Every block of a file that has needed bytes is read once, and compared with its CRC; where a
// whole block goes to one place it is read straight into it. CheckpointError for a block that is
// damaged or cannot be read; it names the tensor and the targets that had been written by then,
// also by that block. Versions of the tensors' storages count it as a write. A local tensor that is
// strided takes a copy of it while it is filled.
FillResult fill(std::span<const FillSource> sources, std::span<const FillTarget> targets,
                std::vector<FillPiece> pieces, const FillOptions& options = {});

// By source, begin_bytes and target.
void sort_pieces(std::vector<FillPiece>& pieces);

}  // namespace dtensor::checkpoint

// Fill: brings pieces of stored tensors from files into local tensors. Internal.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

struct FillSource {
  std::string path;
  int64_t bytes = 0;                     // that the file has to have
  std::span<const uint32_t> block_crcs;  // empty: not checked
  const safetensors::File* file =
      nullptr;  // where it is open already; else opened while it is read
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

// Reads at most `buffer_bytes` at once, every block of a file once. CheckpointError for a block
// that is damaged or cannot be read; it names the targets that had been written by then. Versions
// of the tensors' storages count it as a write.
void fill(std::span<const FillSource> sources, std::span<const FillTarget> targets,
          std::vector<FillPiece> pieces, int64_t buffer_bytes);

}  // namespace dtensor::checkpoint

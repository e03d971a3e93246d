// TensorIndex: where each tensor of a Hugging Face directory is, checked by the files' headers.
// Internal.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"

namespace dtensor::checkpoint {

// No file stays open: an index may name more of them than a process may have.
struct TensorIndex {
  struct File {
    std::string path;
    int64_t bytes = 0;
  };
  struct Place {
    int file = 0;  // index into files
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;
    int64_t begin_bytes = 0;  // from byte 0 of the file
  };
  std::vector<File> files;
  std::map<std::string, Place> tensors;
};

// Reads <dir>/model.safetensors, or where that is not there <dir>/model.safetensors.index.json and
// the files that it names. CheckpointError: neither is there; a name that is no plain file name; a
// file that is not there; a tensor that is not where the index says, or lies in a file without
// the index saying so.
TensorIndex read_tensor_index(const std::string& dir);

}  // namespace dtensor::checkpoint

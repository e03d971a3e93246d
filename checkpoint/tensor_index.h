// TensorIndex: the tensors of a Hugging Face directory, in one file or several. Nothing is read but
// headers. Internal.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"

namespace dtensor::checkpoint {

struct TensorIndex {
  struct Place {
    int file = 0;  // index into files
    const safetensors::Entry* entry = nullptr;
  };
  std::vector<safetensors::File> files;
  std::map<std::string, Place> tensors;
};

// Reads <dir>/model.safetensors, or where that is not there <dir>/model.safetensors.index.json and
// the files that it names. CheckpointError: neither is there; a name that is no plain file name; a
// file that is not there; a tensor that is not where the index says, or lies in a file without
// the index saying so.
TensorIndex read_tensor_index(const std::string& dir);

}  // namespace dtensor::checkpoint

// Whole tensors of one safetensors file.

#pragma once

#include <map>
#include <span>
#include <string>

#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::checkpoint {

// One tensor of an open file. CheckpointError listing some names where it is not there, or naming
// it where it has more dims than a Tensor can, or a bool that is neither 0 nor 1.
Tensor read_tensor(const safetensors::File& file, const std::string& name);

// All tensors of a file.
std::map<std::string, Tensor> read_tensors(const std::string& path);

// Writes them, strided ones too, as safetensors::write does.
void write_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors);

// Bytes read from a file as elements of a bool must be 0 or 1: C++ gives others no meaning. Throws
// CheckpointError naming `where`; other dtypes pass.
void check_bytes(std::span<const std::byte> bytes, DType dtype, const std::string& where);

}  // namespace dtensor::checkpoint

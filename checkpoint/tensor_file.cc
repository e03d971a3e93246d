#include "dtensor/checkpoint/tensor_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

std::string some_names(const safetensors::File& file) {
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(5, file.entries().size()); ++i) {
    names += (i == 0 ? "" : ", ") + file.entries()[i].name;
  }
  return file.entries().size() > 5 ? names + ", ..." : names;
}

}  // namespace

void check_bytes(std::span<const std::byte> bytes, DType dtype, const std::string& where) {
  if (dtype != DType::kBool) return;
  const auto bad = std::ranges::find_if(bytes, [](std::byte b) { return b > std::byte{1}; });
  if (bad != bytes.end()) {
    throw CheckpointError(fmt::format("{}: a bool has the byte {}", where, static_cast<int>(*bad)));
  }
}

Tensor read_tensor(const safetensors::File& file, const std::string& name) {
  const safetensors::Entry* entry = file.find(name);
  if (entry == nullptr) {
    throw CheckpointError(fmt::format("{} has no tensor \"{}\"; it has {}: {}", file.path(), name,
                                      file.entries().size(), some_names(file)));
  }
  if (entry->shape.size() > kMaxDims) {
    throw CheckpointError(fmt::format("{}: tensor \"{}\" has {} dims, {} are the most", file.path(),
                                      name, entry->shape.size(), kMaxDims));
  }
  Tensor tensor;
  try {
    tensor = Tensor::empty(Shape(std::span(entry->shape)), entry->dtype);
  } catch (const ArgumentError& e) {
    throw CheckpointError(fmt::format("{}: tensor \"{}\": {}", file.path(), name, e.what()));
  }
  const std::span bytes(static_cast<std::byte*>(tensor.raw()),
                        static_cast<size_t>(entry->end_bytes - entry->begin_bytes));
  file.read(entry->begin_bytes, bytes);
  check_bytes(bytes, entry->dtype, fmt::format("{}: tensor \"{}\"", file.path(), name));
  return tensor;
}

std::map<std::string, Tensor> read_tensors(const std::string& path) {
  const safetensors::File file(path);
  std::map<std::string, Tensor> tensors;
  for (const safetensors::Entry& e : file.entries()) tensors[e.name] = read_tensor(file, e.name);
  return tensors;
}

void write_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  std::vector<Tensor> kept;
  std::vector<safetensors::Item> items;
  for (const auto& [name, tensor] : tensors) {
    const Tensor& whole = kept.emplace_back(tensor.contiguous());
    items.push_back(
        {name, whole.dtype(), {whole.shape().begin(), whole.shape().end()}, whole.raw()});
  }
  safetensors::write(path, items, {{"format", "pt"}});
}

}  // namespace dtensor::checkpoint

#include "dtensor/checkpoint/tensor_index.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/json_reader.h"
#include "dtensor/checkpoint/safetensors.h"

namespace dtensor::checkpoint {
namespace {

constexpr int64_t kMaxIndexBytes = 100'000'000;

void add_file(TensorIndex& index, const std::string& path) {
  const safetensors::File file(path);
  const auto number = static_cast<int>(index.files.size());
  index.files.push_back({path, file.size_bytes()});
  for (const safetensors::Entry& e : file.entries()) {
    const TensorIndex::Place place{number, e.dtype, e.shape,
                                   file.data_offset_bytes() + e.begin_bytes};
    const auto [it, is_new] = index.tensors.emplace(e.name, place);
    if (is_new) continue;
    throw CheckpointError(fmt::format("tensor \"{}\" is in {} and in {}", e.name,
                                      index.files[static_cast<size_t>(it->second.file)].path,
                                      path));
  }
}

// Tensor -> file name.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  static constexpr std::array<std::string_view, 1> kFields = {"weight_map"};
  const std::string text = read_text(path, kMaxIndexBytes);
  std::map<std::string, std::string> places;
  JsonReader json(text, path);
  JsonFields fields(json, "the index", kFields);
  while (fields.next() == 0) {
    std::string tensor;
    json.enter_object("weight_map");
    while (json.next_key(tensor)) {
      const std::string name = json.file_name(fmt::format("the file of tensor \"{}\"", tensor));
      if (places.emplace(tensor, name).second) continue;
      json.fail(fmt::format("the key \"{}\" stands twice in one object", tensor));
    }
  }
  fields.require(1);
  json.finish();
  return places;
}

}  // namespace

TensorIndex read_tensor_index(const std::string& dir) {
  const std::string single = (std::filesystem::path(dir) / "model.safetensors").string();
  const std::string path = single + ".index.json";
  TensorIndex index;
  std::error_code ignored;
  // A link that leads nowhere is not "no file": opening it says what is wrong.
  const bool has_single = std::filesystem::symlink_status(single, ignored).type() !=
                          std::filesystem::file_type::not_found;
  if (has_single) {
    add_file(index, single);
    return index;
  }
  if (!std::filesystem::exists(path, ignored)) {
    throw CheckpointError(
        fmt::format("{} has neither model.safetensors nor model.safetensors.index.json", dir));
  }
  const auto places = read_weight_map(path);
  std::map<std::string, int> numbers;
  for (const auto& [tensor, name] : places) {
    if (!numbers.emplace(name, static_cast<int>(numbers.size())).second) continue;
    add_file(index, (std::filesystem::path(dir) / name).string());
  }
  for (const auto& [tensor, name] : places) {
    const auto it = index.tensors.find(tensor);
    if (it == index.tensors.end() || it->second.file != numbers.at(name)) {
      throw CheckpointError(fmt::format(
          "{} says that tensor \"{}\" is in {}, which has none of that name", path, tensor, name));
    }
  }
  for (const auto& [tensor, place] : index.tensors) {
    if (places.contains(tensor)) continue;
    throw CheckpointError(fmt::format("{} has a tensor \"{}\" that {} does not name",
                                      index.files[static_cast<size_t>(place.file)].path, tensor,
                                      path));
  }
  return index;
}

}  // namespace dtensor::checkpoint

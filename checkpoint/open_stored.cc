#include "dtensor/checkpoint/open_stored.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/json_reader.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/checkpoint/tensor_index.h"
#include "dtensor/placement/tiling.h"

namespace dtensor::checkpoint {
namespace {

namespace fs = std::filesystem;

// PyTorch's torch/distributed/checkpoint/_hf_utils.py names it so.
constexpr char kDcpKey[] = "DCP_SHARDING_INFO";

Shape shape_of(const std::string& file, const std::string& name,
               const std::vector<int64_t>& shape) {
  if (shape.size() > static_cast<size_t>(kMaxDims)) {
    throw CheckpointError(fmt::format("{}: tensor \"{}\" has {} dims, {} are the most", file, name,
                                      shape.size(), kMaxDims));
  }
  return Shape(std::span(shape));
}

// Sizes that do not fit in 64 bits are the file's fault.
template <class F>
auto of_tensor(const std::string& file, const std::string& name, F&& f) {
  try {
    return f();
  } catch (const ArgumentError& e) {
    throw CheckpointError(fmt::format("{}: tensor \"{}\": {}", file, name, e.what()));
  }
}

int add_file(Contents& contents, const std::string& path, int64_t bytes) {
  contents.files.push_back({fs::path(path).filename().string(), path, bytes, {}});
  return static_cast<int>(contents.files.size()) - 1;
}

// A tensor that lies in one piece.
void add_whole(Contents& contents, const std::string& name, const TensorIndex::Place& place) {
  const std::string& path = contents.files[static_cast<size_t>(place.file)].path;
  const Shape shape = shape_of(path, name, place.shape);
  StoredTensor tensor{place.dtype, shape, {}};
  if (of_tensor(path, name, [&] { return shape.numel(); }) > 0) {
    tensor.chunks.push_back(
        {place.file, name, Box{Shape::filled(shape.ndim(), 0), shape}, place.begin_bytes});
  }
  contents.tensors.emplace(name, std::move(tensor));
}

Contents open_file(const std::string& path) {
  const safetensors::File file(path);
  Contents contents;
  const int number = add_file(contents, path, file.size_bytes());
  for (const safetensors::Entry& e : file.entries()) {
    add_whole(contents, e.name,
              {number, e.dtype, e.shape, file.data_offset_bytes() + e.begin_bytes});
  }
  return contents;
}

Contents open_hugging_face(const std::string& dir) {
  const TensorIndex index = read_tensor_index(dir);
  Contents contents;
  for (const TensorIndex::File& file : index.files) add_file(contents, file.path, file.bytes);
  for (const auto& [name, place] : index.tensors) add_whole(contents, name, place);
  return contents;
}

// {"w": {"saved_offsets": [2, 0]}, ...}
std::map<std::string, Shape> read_offsets(const safetensors::File& file) {
  static constexpr std::array<std::string_view, 1> kFields = {"saved_offsets"};
  const std::string& text = file.metadata().at(kDcpKey);
  JsonReader json(text, fmt::format("{}: {}", file.path(), kDcpKey));
  std::map<std::string, Shape> offsets;
  std::string name;
  json.enter_object("the value");
  while (json.next_key(name)) {
    Shape offset;
    JsonFields fields(json, "a tensor", kFields);
    while (fields.next() == 0) {
      json.enter_array("saved_offsets");
      int dims = 0;
      while (json.next_item()) {
        if (dims++ == kMaxDims)
          json.fail(fmt::format("\"{}\" has more than {} dims", name, kMaxDims));
        offset.push_back(json.size("saved_offsets"));
      }
    }
    fields.require(1);
    if (!offsets.emplace(name, offset).second) {
      json.fail(fmt::format("the key \"{}\" stands twice in one object", name));
    }
  }
  json.finish();
  return offsets;
}

class DcpReader {
 public:
  explicit DcpReader(std::vector<std::string> paths) : paths_(std::move(paths)) {
    std::ranges::sort(paths_);
  }

  Contents run() {
    for (const std::string& path : paths_) add(safetensors::File(path));
    for (auto& [name, tensor] : contents_.tensors) check(name, tensor);
    return std::move(contents_);
  }

 private:
  void add(const safetensors::File& file) {
    if (!file.metadata().contains(kDcpKey)) {
      throw CheckpointError(
          fmt::format("{} has no {} in its metadata, other files of the directory "
                      "have; it does not belong to them",
                      file.path(), kDcpKey));
    }
    const auto offsets = read_offsets(file);
    const int number = add_file(contents_, file.path(), file.size_bytes());
    for (const safetensors::Entry& e : file.entries()) {
      const Shape size = shape_of(file.path(), e.name, e.shape);
      const auto offset = offsets.find(e.name);
      if (offset == offsets.end() || offset->second.ndim() != size.ndim()) {
        throw CheckpointError(fmt::format("{}: tensor \"{}\" has no offset of {} dims in {}",
                                          file.path(), e.name, size.ndim(), kDcpKey));
      }
      StoredTensor& tensor =
          contents_.tensors.try_emplace(e.name, StoredTensor{e.dtype, size, {}}).first->second;
      if (tensor.dtype != e.dtype || tensor.shape.ndim() != size.ndim()) {
        throw CheckpointError(
            fmt::format("{}: tensor \"{}\" has another dtype or number of dims "
                        "than in a file before",
                        file.path(), e.name));
      }
      // The whole is not stored: it ends where the last part ends.
      const int64_t elements = of_tensor(file.path(), e.name, [&] {
        for (int d = 0; d < size.ndim(); ++d) {
          tensor.shape[d] = std::max(tensor.shape[d], checked_add(offset->second[d], size[d]));
        }
        return size.numel();
      });
      if (elements == 0) continue;
      tensor.chunks.push_back(
          {number, e.name, {offset->second, size}, file.data_offset_bytes() + e.begin_bytes});
    }
  }

  void check(const std::string& name, const StoredTensor& tensor) const {
    Tiling tiling{tensor.shape, {}};
    for (const StoredChunk& c : tensor.chunks) tiling.tiles.push_back({c.box, c.file});
    const std::string last =
        tensor.chunks.empty()
            ? contents_.files.back().path
            : contents_.files[static_cast<size_t>(tensor.chunks.back().file)].path;
    const auto fault = of_tensor(last, name, [&] { return find_fault(tiling); });
    if (!fault) return;
    const auto file = [&](int i) { return contents_.files[static_cast<size_t>(i)].name; };
    throw CheckpointError(fault->kind == TilingFault::Kind::kNotCovered
                              ? fmt::format("tensor \"{}\" {}: {} is in none of the files", name,
                                            to_string(tensor.shape), to_string(fault->box))
                              : fmt::format("tensor \"{}\" {}: {} is held twice, in {} and {}",
                                            name, to_string(tensor.shape), to_string(fault->box),
                                            file(fault->holder), file(fault->other)));
  }

  std::vector<std::string> paths_;
  Contents contents_;
};

// The safetensors files of a directory, where one of them says that DCP wrote it.
std::vector<std::string> dcp_files(const std::string& dir) {
  std::vector<std::string> paths;
  bool found = false;
  std::error_code error;
  fs::directory_iterator it(dir, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() != ".safetensors") continue;
    paths.push_back(it->path().string());
    found = found || safetensors::File(paths.back()).metadata().contains(kDcpKey);
  }
  if (error) {
    throw CheckpointError(fmt::format("cannot read the directory {}: {}", dir, error.message()));
  }
  return found ? paths : std::vector<std::string>{};
}

bool is_hugging_face(const std::string& dir) {
  std::error_code error;
  return fs::exists(fs::path(dir) / "model.safetensors", error) ||
         fs::exists(fs::path(dir) / "model.safetensors.index.json", error);
}

Contents open_attempt(const Attempt& attempt) {
  Examined examined = examine(attempt);
  if (!examined.is_complete()) {
    throw CheckpointError(fmt::format("{} is not complete: {}", attempt.path, examined.reason()));
  }
  return std::move(examined.contents);
}

}  // namespace

std::optional<Attempt> attempt_at(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  if (error) return std::nullopt;
  return attempt_of(whole.parent_path().string(), whole.filename().string());
}

bool is_foreign_directory(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || attempt_at(path)) return false;
  return is_hugging_face(path) || !dcp_files(path).empty();
}

void locate_chunks(Contents& contents) {
  struct Place {
    const std::string* name;
    StoredTensor* tensor;
    size_t chunk;  // index into the tensor's
  };
  std::vector<std::vector<Place>> by_file(contents.files.size());
  for (auto& [name, tensor] : contents.tensors) {
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      by_file[static_cast<size_t>(tensor.chunks[i].file)].push_back({&name, &tensor, i});
    }
  }
  int64_t bytes_read = 0;
  for (size_t i = 0; i < by_file.size(); ++i) {
    if (by_file[i].empty()) continue;
    const safetensors::File file =
        open_checked(contents.files[i], *by_file[i].front().name, bytes_read);
    for (const Place& place : by_file[i]) {
      StoredChunk& chunk = place.tensor->chunks[place.chunk];
      chunk.begin_bytes = file.data_offset_bytes() +
                          check_entry(file, *place.name, *place.tensor, chunk).begin_bytes;
    }
  }
}

Contents open_stored(const std::string& path) {
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  if (error) {
    throw CheckpointError(fmt::format("cannot look at {}: {}", path, error.message()));
  }
  if (!is_there) throw CheckpointError(path + " is not there");
  if (!fs::is_directory(path, error)) return open_file(path);
  Contents contents;
  if (const auto attempt = attempt_at(path)) {
    contents = open_attempt(*attempt);
  } else {
    if (is_hugging_face(path)) return open_hugging_face(path);
    if (const auto files = dcp_files(path); !files.empty()) return DcpReader(files).run();
    contents = newest_complete(path);
  }
  locate_chunks(contents);
  return contents;
}

}  // namespace dtensor::checkpoint

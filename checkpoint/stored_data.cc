#include "dtensor/checkpoint/stored_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"

namespace dtensor::checkpoint {
namespace {

// The first chunk that the bytes [begin, end) of a file belong to.
std::string tensor_at(const Contents& contents, int file, const safetensors::File& open,
                      int64_t begin, int64_t end) {
  for (const safetensors::Entry& e : open.entries()) {
    if (open.data_offset_bytes() + e.end_bytes <= begin) continue;
    if (open.data_offset_bytes() + e.begin_bytes >= end) break;
    for (const auto& [name, tensor] : contents.tensors) {
      for (const StoredChunk& c : tensor.chunks) {
        if (c.file == file && c.key == e.name) return name;
      }
    }
  }
  return "";
}

void examine_blocks(const Contents& contents, int index, std::vector<Problem>& problems) {
  const StoredFile& file = contents.files[static_cast<size_t>(index)];
  const ReadFile raw(file.path);
  std::vector<std::byte> block(static_cast<size_t>(std::min(kBlockBytes, file.bytes)));
  for (size_t b = 0; b < file.block_crcs.size(); ++b) {
    const auto begin = static_cast<int64_t>(b) * kBlockBytes;
    const int64_t size = std::min(kBlockBytes, file.bytes - begin);
    const auto bytes = std::span(block).first(static_cast<size_t>(size));
    raw.read(begin, bytes);
    if (crc32c(bytes) == file.block_crcs[b]) continue;
    Problem problem{.what = "crc", .file = file.name, .block = static_cast<int64_t>(b)};
    problem.text =
        fmt::format("{}: the CRC of block {} (from byte {}) is wrong", file.name, b, begin);
    try {
      problem.tensor =
          tensor_at(contents, index, safetensors::File(file.path), begin, begin + size);
    } catch (const CheckpointError&) {
      // The header itself is damaged: no tensor can be named.
      problem.tensor.clear();
    }
    problems.push_back(std::move(problem));
  }
}

}  // namespace

void check_entry(const safetensors::File& file, const std::string& name, const StoredTensor& tensor,
                 const StoredChunk& chunk) {
  const safetensors::Entry* entry = file.find(chunk.key);
  const bool fits = entry != nullptr && entry->dtype == tensor.dtype &&
                    std::ranges::equal(entry->shape, chunk.box.size);
  if (fits) return;
  throw CheckpointError(fmt::format(
      "{}: the record says that it has {}{} of tensor \"{}\" under \"{}\", "
      "but {}",
      file.path(), name_of(tensor.dtype), to_string(chunk.box), name, chunk.key,
      entry == nullptr ? "it has none of that name" : "that has another dtype or shape"));
}

std::vector<Problem> examine_data(const Contents& contents) {
  std::vector<Problem> problems;
  for (size_t i = 0; i < contents.files.size(); ++i) {
    const StoredFile& file = contents.files[i];
    try {
      const size_t before = problems.size();
      examine_blocks(contents, static_cast<int>(i), problems);
      if (problems.size() > before) continue;
      const safetensors::File open(file.path);
      for (const auto& [name, tensor] : contents.tensors) {
        for (const StoredChunk& c : tensor.chunks) {
          if (c.file == static_cast<int>(i)) check_entry(open, name, tensor, c);
        }
      }
    } catch (const CheckpointError& e) {
      problems.push_back({.what = "header", .file = file.name, .text = e.what()});
    }
  }
  return problems;
}

}  // namespace dtensor::checkpoint

#include "dtensor/checkpoint/stored_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/placement/tiling.h"

namespace dtensor::checkpoint {
namespace {

// A chunk that a file should have.
struct Expected {
  const std::string* name;
  const StoredTensor* tensor;
  const StoredChunk* chunk;
};
bool has(DataShare share, int file) { return file % share.parts == share.part; }

// By file; all in one pass, as there may be a million chunks.
std::vector<std::vector<Expected>> expected_by_file(const Contents& contents, DataShare share) {
  std::vector<std::vector<Expected>> out(contents.files.size());
  for (const auto& [name, tensor] : contents.tensors) {
    for (const StoredChunk& c : tensor.chunks) {
      if (has(share, c.file)) out[static_cast<size_t>(c.file)].push_back({&name, &tensor, &c});
    }
  }
  return out;
}

class FileExaminer {
 public:
  FileExaminer(const StoredFile& stored, const std::vector<Expected>& expected) : stored_(stored) {
    for (const Expected& e : expected) expected_.insert_or_assign(e.chunk->key, e);
  }

  std::vector<Problem> run() {
    try {
      examine_blocks();
      if (!problems_.empty()) return std::move(problems_);
      const safetensors::File open(stored_.path);
      for (const auto& [key, e] : expected_) examine_entry(open, e);
    } catch (const CheckpointError& e) {
      problems_.push_back({.what = "header", .file = stored_.name, .text = e.what()});
    }
    return std::move(problems_);
  }

 private:
  void examine_entry(const safetensors::File& open, const Expected& e) {
    try {
      check_entry(open, *e.name, *e.tensor, *e.chunk);
    } catch (const CheckpointError& error) {
      problems_.push_back(
          {.what = "header", .file = stored_.name, .tensor = *e.name, .text = error.what()});
    }
  }

  void examine_blocks() {
    const ReadFile raw(stored_.path);
    std::vector<std::byte> block(static_cast<size_t>(std::min(kBlockBytes, stored_.bytes)));
    for (size_t b = 0; b < stored_.block_crcs.size(); ++b) {
      const auto begin = static_cast<int64_t>(b) * kBlockBytes;
      const int64_t size = std::min(kBlockBytes, stored_.bytes - begin);
      const auto bytes = std::span(block).first(static_cast<size_t>(size));
      raw.read(begin, bytes);
      if (crc32c(bytes) == stored_.block_crcs[b]) continue;
      Problem problem{.what = "crc", .file = stored_.name, .block = static_cast<int64_t>(b)};
      problem.tensor = tensor_at(begin, begin + size);
      problem.text = fmt::format(
          "{}: the CRC of block {} (bytes [{}, +{})) is wrong{}", stored_.name, b, begin, size,
          problem.tensor.empty() ? "" : fmt::format("; it has values of \"{}\"", problem.tensor));
      problems_.push_back(std::move(problem));
    }
  }

  // The first tensor that has bytes in [begin, end) of the file; where the header itself is
  // damaged, the first that the file has.
  std::string tensor_at(int64_t begin, int64_t end) {
    if (expected_.empty()) return "";
    try {
      const safetensors::File open(stored_.path);
      for (const safetensors::Entry& e : open.entries()) {
        if (open.data_offset_bytes() + e.end_bytes <= begin) continue;
        if (open.data_offset_bytes() + e.begin_bytes >= end) break;
        const auto it = expected_.find(e.name);
        if (it != expected_.end()) return *it->second.name;
      }
    } catch (const CheckpointError&) {
      return *expected_.begin()->second.name;
    }
    return *expected_.begin()->second.name;
  }

  const StoredFile& stored_;
  std::map<std::string, Expected> expected_;  // by key
  std::vector<Problem> problems_;
};

}  // namespace

const safetensors::Entry& check_entry(const safetensors::File& file, const std::string& name,
                                      const StoredTensor& tensor, const StoredChunk& chunk) {
  const safetensors::Entry* entry = file.find(chunk.key);
  const bool fits = entry != nullptr && entry->dtype == tensor.dtype &&
                    std::ranges::equal(entry->shape, chunk.box.size);
  if (fits) return *entry;
  throw CheckpointError(fmt::format(
      "{}: the record says that it has {}{} of tensor \"{}\" under \"{}\", "
      "but {}",
      file.path(), name_of(tensor.dtype), to_string(chunk.box), name, chunk.key,
      entry == nullptr ? "it has none of that name" : "that has another dtype or shape"));
}

safetensors::File open_checked(const StoredFile& stored, const std::string& needed_for,
                               int64_t& bytes_read) {
  safetensors::File file(stored.path);
  if (file.size_bytes() != stored.bytes) {
    throw CheckpointError(fmt::format("{} has {} bytes, its commit record says {}", stored.path,
                                      file.size_bytes(), stored.bytes));
  }
  std::vector<std::byte> block(static_cast<size_t>(std::min(kBlockBytes, stored.bytes)));
  for (int64_t begin = 0; begin < file.data_offset_bytes(); begin += kBlockBytes) {
    const auto bytes =
        std::span(block).first(static_cast<size_t>(std::min(kBlockBytes, stored.bytes - begin)));
    file.read_raw(begin, bytes);
    bytes_read += static_cast<int64_t>(bytes.size());
    const int64_t number = begin / kBlockBytes;
    if (crc32c(bytes) == stored.block_crcs.at(static_cast<size_t>(number))) continue;
    throw CheckpointError(fmt::format(
        "{}: the CRC of block {} (bytes [{}, +{})) is wrong: the file is damaged, perhaps in its "
        "header, which is needed for \"{}\". Nothing was overwritten",
        stored.path, number, begin, bytes.size(), needed_for));
  }
  return file;
}

void for_each_part(const StoredTensor& tensor, const Box& box,
                   const std::function<void(const StoredChunk& chunk, const Box& part)>& f) {
  if (box.empty()) return;
  if (tensor.chunks.size() == 1) {  // it is the whole tensor
    f(tensor.chunks[0], box);
    return;
  }
  Tiling from{tensor.shape, {}};
  from.tiles.reserve(tensor.chunks.size());
  for (const StoredChunk& c : tensor.chunks) {
    from.tiles.push_back({c.box, static_cast<int>(from.tiles.size())});
  }
  const Tiling to{tensor.shape, {{box, -1}}};  // no chunk has this number
  for (const BoxMove& move : moves(from, to)) {
    f(tensor.chunks[static_cast<size_t>(move.src)], move.box);
  }
}

std::vector<Problem> examine_data(const Contents& contents, DataShare share,
                                  const std::function<void(int64_t bytes)>& progress) {
  std::vector<Problem> problems;
  const auto expected = expected_by_file(contents, share);
  for (size_t i = 0; i < contents.files.size(); ++i) {
    if (!has(share, static_cast<int>(i))) continue;
    for (Problem& p : FileExaminer(contents.files[i], expected[i]).run()) {
      problems.push_back(std::move(p));
    }
    if (progress) progress(contents.files[i].bytes);
  }
  return problems;
}

}  // namespace dtensor::checkpoint

// Safetensors: a strict reader and a writer of the format: 8 bytes little-endian length of the
// header, the header in JSON, the data. Usable alone: needs //base only. Nothing read is trusted:
// sizes are checked before memory is taken, the tensors must tile the data without hole or
// overlap, keys must not be given twice, and no size is beyond int64.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/checkpoint/safetensors_header.h"

namespace dtensor::safetensors {

// The longest header that is read, or written: what the reference takes.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

// An open file. Thread-safe for reading. Links are followed. It is read by offset, never mapped.
class File {
 public:
  // CheckpointError naming the file and, where it applies, the tensor and the offset.
  explicit File(const std::string& path);
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const;
  const std::vector<Entry>& entries() const;  // by begin
  const Entry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const;
  int64_t data_offset_bytes() const;  // of the data part in the file
  int64_t size_bytes() const;         // of the file, when it was opened
  // Reads bytes of the data part. CheckpointError where the file has become shorter,
  // ArgumentError outside the data part.
  void read(int64_t begin_bytes, std::span<std::byte> into) const;
  // The same, counted from byte 0 of the file.
  void read_raw(int64_t begin_bytes, std::span<std::byte> into) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct Item {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // contiguous; not looked at by entries_of and header
};
// Where the items lie in the data part of a file: larger element types first, else in the order
// given, so that every element is aligned to its size. ArgumentError for a name given twice, the
// name "__metadata__", or a shape that is none.
std::vector<Entry> entries_of(std::span<const Item> items);
// The header's bytes with its length in front, padded with spaces to a multiple of 8.
// ArgumentError for names that are not UTF-8, or where it would be longer than kMaxHeaderBytes.
std::string header(std::span<const Entry> entries,
                   const std::map<std::string, std::string>& metadata = {});
// To a temporary name beside `path`, fsync, rename. CheckpointError naming the system's reason: an
// older file is then untouched and no temporary is left.
void write(const std::string& path, std::span<const Item> items,
           const std::map<std::string, std::string>& metadata = {});

}  // namespace dtensor::safetensors

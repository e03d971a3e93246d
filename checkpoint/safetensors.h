// Safetensors: a strict reader and a writer of the format (8 bytes little-endian header length,
// JSON header, data). Usable alone: needs //base only. Nothing read is trusted: sizes are checked
// before memory is taken, offsets must tile the data without hole or overlap.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"

namespace dtensor::safetensors {

struct Entry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin_bytes = 0;  // in the data part
  int64_t end_bytes = 0;
};

// An open file. Thread-safe for reading.
class File {
 public:
  // CheckpointError naming the file and, where it applies, the tensor and the offset.
  explicit File(const std::string& path);
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const;
  const std::vector<Entry>& entries() const;  // by begin
  const Entry* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  int64_t data_offset_bytes() const;  // of the data part in the file
  // Reads bytes of the data part. CheckpointError where the file has become shorter.
  void read(int64_t begin_bytes, std::span<std::byte> into) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes a legal file: entries aligned to 8 bytes of the header's end, in the order given.
struct Item {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // contiguous
};
// The header's bytes with its length in front, padded with spaces to a multiple of 8.
std::string header(std::span<const Item> items, const std::map<std::string, std::string>& metadata);
// To a temporary name beside `path`, fsync, rename. CheckpointError naming the system's reason; no
// temporary is left.
void write(const std::string& path, std::span<const Item> items,
           const std::map<std::string, std::string>& metadata = {});

}  // namespace dtensor::safetensors

// BlockReader: reads stretches of a file in blocks through a bounded buffer; with CRCs every block
// is checked before a byte of it is handed out. Internal.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"

namespace dtensor::checkpoint {

class BlockReader {
 public:
  // `block_crcs` is empty where the file has none. At least one block is held, however small
  // `buffer_bytes` is. The arguments outlive the reader.
  BlockReader(const safetensors::File& file, std::span<const uint32_t> block_crcs,
              int64_t buffer_bytes);

  // Announces a stretch, from byte 0 of the file: only blocks of announced stretches are read.
  void want(int64_t begin_bytes, int64_t size_bytes);
  // Copies an announced stretch. In ascending order every block is read once. CheckpointError
  // naming the file and the block where its CRC is wrong.
  void copy(int64_t begin_bytes, std::span<std::byte> into);

  // Reads an announced stretch for its CRC alone.
  void check(int64_t begin_bytes, int64_t size_bytes);

  int64_t bytes_read() const { return bytes_read_; }

 private:
  void load(int64_t block);

  const safetensors::File& file_;
  std::span<const uint32_t> block_crcs_;
  int64_t block_bytes_;
  int64_t most_blocks_;
  std::vector<bool> wanted_;  // by block
  std::vector<std::byte> buffer_;
  int64_t buffer_begin_ = 0;  // [begin, end) of the file is in the buffer
  int64_t buffer_end_ = 0;
  int64_t bytes_read_ = 0;
};

}  // namespace dtensor::checkpoint

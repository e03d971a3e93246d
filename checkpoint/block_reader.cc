#include "dtensor/checkpoint/block_reader.h"

#include <fmt/core.h>

#include <algorithm>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"

namespace dtensor::checkpoint {
namespace {

// Without CRCs to check, blocks only have to be large enough for the disk.
constexpr int64_t kPlainBlockBytes = 64 << 10;

}  // namespace

BlockReader::BlockReader(const safetensors::File& file, std::span<const uint32_t> block_crcs,
                         int64_t buffer_bytes)
    : file_(file),
      block_crcs_(block_crcs),
      block_bytes_(block_crcs.empty() ? kPlainBlockBytes : kBlockBytes),
      most_blocks_(std::max<int64_t>(1, buffer_bytes / block_bytes_)),
      wanted_(static_cast<size_t>((file.size_bytes() + block_bytes_ - 1) / block_bytes_)) {}

void BlockReader::want(int64_t begin_bytes, int64_t size_bytes) {
  if (size_bytes == 0) return;
  const int64_t last = (begin_bytes + size_bytes - 1) / block_bytes_;
  for (int64_t b = begin_bytes / block_bytes_; b <= last; ++b)
    wanted_[static_cast<size_t>(b)] = true;
}

void BlockReader::load(int64_t block) {
  int64_t end = block + 1;
  while (end < static_cast<int64_t>(wanted_.size()) && end - block < most_blocks_ &&
         wanted_[static_cast<size_t>(end)]) {
    ++end;
  }
  buffer_begin_ = block * block_bytes_;
  buffer_end_ = buffer_begin_;  // nothing, should the read fail
  const int64_t end_bytes = std::min(end * block_bytes_, file_.size_bytes());
  buffer_.resize(static_cast<size_t>(end_bytes - buffer_begin_));
  file_.read_raw(buffer_begin_, buffer_);
  bytes_read_ += end_bytes - buffer_begin_;
  if (!block_crcs_.empty()) {
    for (int64_t b = block; b < end; ++b) {
      const auto begin = static_cast<size_t>((b - block) * block_bytes_);
      const auto bytes = std::span(buffer_).subspan(
          begin, std::min(static_cast<size_t>(block_bytes_), buffer_.size() - begin));
      if (crc32c(bytes) != block_crcs_[static_cast<size_t>(b)]) {
        throw CheckpointError(
            fmt::format("{}: the CRC of block {} (bytes [{}, +{})) is wrong: the "
                        "file is damaged",
                        file_.path(), b, b * block_bytes_, bytes.size()));
      }
    }
  }
  buffer_end_ = end_bytes;
}

void BlockReader::check(int64_t begin_bytes, int64_t size_bytes) {
  const int64_t end_bytes = begin_bytes + size_bytes;
  while (begin_bytes < end_bytes) {
    if (begin_bytes < buffer_begin_ || begin_bytes >= buffer_end_) load(begin_bytes / block_bytes_);
    begin_bytes = buffer_end_;
  }
}

void BlockReader::copy(int64_t begin_bytes, std::span<std::byte> into) {
  while (!into.empty()) {
    if (begin_bytes < buffer_begin_ || begin_bytes >= buffer_end_) load(begin_bytes / block_bytes_);
    const auto size = std::min(into.size(), static_cast<size_t>(buffer_end_ - begin_bytes));
    std::copy_n(buffer_.begin() + (begin_bytes - buffer_begin_), size, into.begin());
    begin_bytes += static_cast<int64_t>(size);
    into = into.subspan(size);
  }
}

}  // namespace dtensor::checkpoint

// CRC32C (Castagnoli, as iSCSI, RFC 3720 section 12.1), and that of every 1 MiB block of a file.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::checkpoint {

inline constexpr int64_t kBlockBytes = 1 << 20;

// Of `bytes`, behind bytes whose CRC is `before`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// Eight lower-case hexadecimal digits each, one after the other; and back: false where `text` is
// not that.
std::string hex_of(std::span<const uint32_t> crcs);
bool read_hex(std::string_view text, std::vector<uint32_t>& crcs);

// The CRCs of the blocks of what update() is given; the last block may be shorter.
class BlockCrcs {
 public:
  void update(std::span<const std::byte> bytes);
  const std::vector<uint32_t>& crcs() const { return crcs_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<uint32_t> crcs_;
  int64_t bytes_ = 0;
};

}  // namespace dtensor::checkpoint

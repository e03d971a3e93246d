#include "dtensor/checkpoint/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace dtensor::checkpoint {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  // ISA-L leaves the inversions of the definition to its caller, takes an int as length, and does
  // not write through its pointer.
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min<size_t>(bytes.size(), kBlockBytes));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data()));
    crc = crc32_iscsi(data, static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

std::string hex_of(std::span<const uint32_t> crcs) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint32_t crc : crcs) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[crc >> shift & 15U];
  }
  return text;
}

bool read_hex(std::string_view text, std::vector<uint32_t>& crcs) {
  if (text.size() % 8 != 0) return false;
  crcs.assign(text.size() / 8, 0);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return false;
    crcs[i / 8] = crcs[i / 8] << 4 | static_cast<uint32_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

void BlockCrcs::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t in_block = bytes_ % kBlockBytes;
    if (in_block == 0) crcs_.push_back(0);
    const auto piece =
        bytes.first(std::min(bytes.size(), static_cast<size_t>(kBlockBytes - in_block)));
    crcs_.back() = crc32c(piece, crcs_.back());
    bytes_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

}  // namespace dtensor::checkpoint

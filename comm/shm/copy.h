// Copies of a call's data.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dtensor::comm::shm {

enum class Copy : uint8_t {
  kCached,
  kStreamed,  // past the caches: what is more than they hold is written without being read first
};

// Does nothing for 0 bytes.
inline void copy_bytes(void* to, const void* from, int64_t bytes, Copy kind = Copy::kCached) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  auto left = static_cast<size_t>(bytes);
#if defined(__SSE2__)
  if (kind == Copy::kStreamed && left >= 256) {
    const size_t head = (16 - reinterpret_cast<uintptr_t>(out) % 16) % 16;
    std::memcpy(out, in, head);
    out += head;
    in += head;
    left -= head;
    for (; left >= 64; left -= 64, out += 64, in += 64) {
      const auto* from16 = reinterpret_cast<const __m128i*>(in);
      auto* to16 = reinterpret_cast<__m128i*>(out);
      const __m128i a = _mm_loadu_si128(from16);
      const __m128i b = _mm_loadu_si128(from16 + 1);
      const __m128i c = _mm_loadu_si128(from16 + 2);
      const __m128i d = _mm_loadu_si128(from16 + 3);
      _mm_stream_si128(to16, a);
      _mm_stream_si128(to16 + 1, b);
      _mm_stream_si128(to16 + 2, c);
      _mm_stream_si128(to16 + 3, d);
    }
    _mm_sfence();  // before anybody is told that it is there
  }
#endif
  if (left > 0) std::memcpy(out, in, left);
}

}  // namespace dtensor::comm::shm

#include "dtensor/checkpoint/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace dtensor::checkpoint {

#ifdef __SSE2__

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kSmall = 64 << 10;  // what fits into the cache is copied through it
  if (bytes < kSmall) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  const size_t lines = (bytes - head) / kLine;
  auto* dst = reinterpret_cast<__m128i*>(to + head);
  const auto* src = reinterpret_cast<const __m128i*>(from + head);
  for (size_t i = 0; i < lines; ++i, dst += 4, src += 4) {
    const __m128i a = _mm_loadu_si128(src);
    const __m128i b = _mm_loadu_si128(src + 1);
    const __m128i c = _mm_loadu_si128(src + 2);
    const __m128i d = _mm_loadu_si128(src + 3);
    _mm_stream_si128(dst, a);
    _mm_stream_si128(dst + 1, b);
    _mm_stream_si128(dst + 2, c);
    _mm_stream_si128(dst + 3, d);
  }
  _mm_sfence();  // before the other thread is told
  const size_t done = head + lines * kLine;
  std::memcpy(to + done, from + done, bytes - done);
}

#else

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace dtensor::checkpoint

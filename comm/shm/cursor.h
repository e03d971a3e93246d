// Cursor: goes through pieces of memory in chunks of bounded size. A chunk holds fragments of
// pieces, each at a multiple of 8 bytes; sender and receiver find the same ones, since these depend
// on the sizes of the pieces and the chunk's only.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dtensor/comm/algorithms/parcels.h"

namespace dtensor::comm::shm {

inline int64_t aligned(int64_t bytes) { return (bytes + 7) / 8 * 8; }

class Cursor {
 public:
  Cursor() = default;
  // `chunk_bytes` is a multiple of 8. The pieces stay where they are while it is used.
  Cursor(std::span<const Piece> pieces, int64_t chunk_bytes)
      : pieces_(pieces), chunk_bytes_(chunk_bytes) {
    skip_ended();
  }

  bool done() const { return piece_ == pieces_.size(); }
  // Bytes so far.
  int64_t passed() const { return passed_; }
  // Calls f(piece, offset, bytes, at) for each fragment of the next chunk: `bytes` from `offset` of
  // pieces[piece], which lie at `at` in the chunk.
  template <class F>
  void next(F&& f) {
    for (int64_t at = 0; !done() && at < chunk_bytes_;) {
      const int64_t n = std::min(pieces_[piece_].bytes() - offset_, chunk_bytes_ - at);
      f(piece_, offset_, n, at);
      at += aligned(n);
      offset_ += n;
      passed_ += n;
      skip_ended();
    }
  }

 private:
  void skip_ended() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].bytes()) {
      ++piece_;
      offset_ = 0;
    }
  }

  std::span<const Piece> pieces_;
  int64_t chunk_bytes_ = 0;
  size_t piece_ = 0;
  int64_t offset_ = 0;
  int64_t passed_ = 0;
};

}  // namespace dtensor::comm::shm

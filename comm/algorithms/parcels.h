// Parcels: what one rank sends to and receives from each rank in one step of a collective; and the
// parts of buffers that they are made of.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/comm/hash.h"
#include "dtensor/comm/segments.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

// Contiguous memory; a sender's is only read.
struct Piece {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  int64_t bytes() const { return count * size_of(dtype); }
};

// What goes to, or comes from, one rank: pieces in an order that both know.
using Parcel = std::vector<Piece>;

inline int64_t bytes_of(std::span<const Piece> pieces) {
  int64_t bytes = 0;
  for (const Piece& p : pieces) bytes += p.bytes();
  return bytes;
}

// Of counts and dtypes.
inline uint64_t hash_of(std::span<const Piece> pieces) {
  uint64_t h = pieces.size();
  for (const Piece& p : pieces) {
    h = internal::mix(h, static_cast<uint64_t>(p.count));
    h = internal::mix(h, static_cast<uint64_t>(p.dtype));
  }
  return h;
}

inline Piece piece(const ConstBuffer& b) { return {const_cast<void*>(b.data), b.count, b.dtype}; }

inline Piece part(const ConstBuffer& b, int64_t offset, int64_t count) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(b.data));
  return {data == nullptr ? nullptr : data + offset * size_of(b.dtype), count, b.dtype};
}

inline Piece part(const ConstBuffer& b, const Segments& s, int rank) {
  return part(b, s.offset(rank), s.count(rank));
}

// One parcel per rank.
struct Parcels {
  explicit Parcels(int size)
      : send(static_cast<size_t>(size)), receive(static_cast<size_t>(size)) {}
  void clear() {
    for (Parcel& p : send) p.clear();
    for (Parcel& p : receive) p.clear();
  }
  Parcel& to(int rank) { return send[static_cast<size_t>(rank)]; }
  Parcel& from(int rank) { return receive[static_cast<size_t>(rank)]; }

  std::vector<Parcel> send;
  std::vector<Parcel> receive;
};

}  // namespace dtensor::comm

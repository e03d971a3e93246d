// Parcels: what one rank sends to and receives from each rank in one step of a collective; and the
// parts of buffers that they are made of.

#pragma once

#include <cstddef>
#include <vector>

#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/segments.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

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
  Parcel& to(int rank) { return send[static_cast<size_t>(rank)]; }
  Parcel& from(int rank) { return receive[static_cast<size_t>(rank)]; }

  std::vector<Parcel> send;
  std::vector<Parcel> receive;
};

}  // namespace dtensor::comm

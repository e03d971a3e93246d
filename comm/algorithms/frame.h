// Frame: the first message between two ranks in every call. Its header says which call the sender
// is in, so that ranks which make different calls find out before any data is taken; small data
// rides along. All frames have one size, so that a frame is always received, whatever the call.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/comm/call.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

struct Header {
  uint64_t comm = 0;  // id, with the run and generation in it
  int64_t sequence = 0;
  uint64_t history = 0;  // of the calls before this one
  CallKey key;
  // What the sender sends to this receiver, and what it expects from it: hash of counts and
  // dtypes, and bytes. They are checked on both sides, so that both find a difference.
  uint64_t sends = 0;
  uint64_t expects = 0;
  int64_t sent_bytes = 0;
  int64_t expected_bytes = 0;
  int32_t rank = 0;  // the sender's, in the Comm
  uint32_t label_size = 0;
  std::array<char, 32> label = {};  // its beginning

  std::string_view label_text() const { return {label.data(), label_size}; }
};

struct Frame {
  Header header;
  std::array<std::byte, kLeastMessageBytes - sizeof(Header)> data = {};
};
static_assert(sizeof(Header) == 128 && sizeof(Frame) == kLeastMessageBytes);

Header make_header(const Call& call, uint64_t comm, int rank);

// What differs between the call of this rank and that of the sender, in words that name both calls
// with ranks and sequence numbers; empty where nothing does. `mine` is what this rank sent to it.
std::string difference(const Header& mine, int peer, const Header& theirs);

}  // namespace dtensor::comm

// The messages of the control channel, as bytes. A frame is its length (4 bytes), its kind, its
// body; what is not well-formed is refused, since a stranger may have sent it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/control.h"

namespace dtensor::comm::internal {

enum class ControlKind : uint8_t {
  kPing,
  kPong,
  kAsk,      // nonce, comm
  kAnswer,   // nonce, comm, position
  kClosed,   // comm, position: the sender's last word on this Comm
  kGoodbye,  // the sender leaves; nothing follows
  kPropose,  // comm, members, verdict
  kDecide,   // comm, members, verdict
};

struct ControlMessage {
  ControlKind kind = ControlKind::kPing;
  uint64_t nonce = 0;
  uint64_t comm = 0;
  Position position = {};
  std::vector<int> members = {};
  Verdict verdict = {};
};

std::string encode(const ControlMessage& message);

// Takes the first whole frame off `stream`; nullopt where it is not there yet. Error for bytes that
// are no frame.
std::optional<ControlMessage> take_message(std::string& stream);

}  // namespace dtensor::comm::internal

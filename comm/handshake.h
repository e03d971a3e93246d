// Handshake: how two processes that know a secret make sure of each other, right after one has
// connected to the other:
//   connecting -> accepting   "DTAUTH01", nonce c
//   accepting -> connecting   nonce s, HMAC("accept" service, c s)
//   connecting -> accepting   HMAC("connect" service, c s)
// What follows on the connection is not protected by it: who can change bytes in transit can still
// do that.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm::internal {

// The accepting side, without input or output of its own: for servers that poll.
class Handshake {
 public:
  enum class State { kWaits, kDone, kRefused };
  // `service` tells the servers of one secret apart: "store", "control".
  Handshake(std::shared_ptr<const Secret> secret, std::string_view service)
      : secret_(std::move(secret)), service_(service) {}

  // Takes what it needs off the front of `in`, and appends to `out` what is to be sent. Once it is
  // kDone the rest of `in` is what the peer says after it; kRefused: drop the connection.
  State step(std::string& in, std::string& out);

 private:
  std::shared_ptr<const Secret> secret_;
  std::string service_;
  std::string nonces_;  // both, once they are known
  State state_ = State::kWaits;
};

// The connecting side. Error where the other one does not know the secret, or asks for none.
void authenticate(const Fd& socket, const Secret& secret, std::string_view service,
                  Deadline deadline);

}  // namespace dtensor::comm::internal

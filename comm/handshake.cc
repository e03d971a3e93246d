#include "dtensor/comm/handshake.h"

#include <algorithm>
#include <cstring>

#include "dtensor/base/error.h"

namespace dtensor::comm::internal {
namespace {

constexpr std::string_view kMagic = "DTAUTH01";
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = sizeof(Secret::Mac);

std::string_view text_of(const Secret::Mac& mac) { return {mac.data(), mac.size()}; }

Secret::Mac mac_of(std::string_view bytes) {
  Secret::Mac mac;
  std::memcpy(mac.data(), bytes.data(), mac.size());
  return mac;
}

std::string role(std::string_view side, std::string_view service) {
  return std::string(side) + " " + std::string(service);
}

}  // namespace

Handshake::State Handshake::step(std::string& in, std::string& out) {
  if (state_ != State::kWaits) return state_;
  if (nonces_.empty()) {
    // Whoever begins otherwise is known at the first byte that differs.
    const size_t seen = std::min(in.size(), kMagic.size());
    if (in.compare(0, seen, kMagic, 0, seen) != 0) return state_ = State::kRefused;
    if (in.size() < kMagic.size() + kNonceBytes) return state_;
    nonces_ = in.substr(kMagic.size(), kNonceBytes) + Secret::nonce();
    in.erase(0, kMagic.size() + kNonceBytes);
    out.append(nonces_, kNonceBytes, kNonceBytes);
    out.append(text_of(secret_->mac(role("accept", service_), nonces_)));
  }
  if (in.size() < kMacBytes) return state_;
  const bool known = secret_->verifies(role("connect", service_), nonces_, mac_of(in));
  in.erase(0, kMacBytes);
  return state_ = known ? State::kDone : State::kRefused;
}

void authenticate(const Fd& socket, const Secret& secret, std::string_view service,
                  Deadline deadline) {
  try {
    const std::string mine = Secret::nonce();
    write_all(socket, std::string(kMagic) + mine, deadline);
    std::string answer(kNonceBytes + kMacBytes, '\0');
    read_all(socket, answer.data(), answer.size(), deadline);
    const std::string nonces = mine + answer.substr(0, kNonceBytes);
    if (!secret.verifies(role("accept", service), nonces,
                         mac_of(std::string_view(answer).substr(kNonceBytes)))) {
      throw Error("it has another secret");
    }
    write_all(socket, text_of(secret.mac(role("connect", service), nonces)), deadline);
  } catch (const Error& e) {
    throw Error(std::string("the other side does not show that it knows the secret: ") + e.what() +
                "; is DTENSOR_SECRET the same on all ranks?");
  }
}

}  // namespace dtensor::comm::internal

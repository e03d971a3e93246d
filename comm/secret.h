// Secret: what all processes of a world know and nobody else. With one, whoever connects to a
// store, to the control channel, or in the place of a peer, has to show that it knows it: both
// sides answer a challenge by HMAC-SHA256 (RFC 2104), and the secret itself is never sent.

#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dtensor::comm {

class Secret {
 public:
  using Mac = std::array<char, 32>;
  // ArgumentError for fewer than 16 bytes.
  explicit Secret(std::string key);

  // Of `role`, a word for what is authenticated, and `data`.
  Mac mac(std::string_view role, std::string_view data) const;
  // In a time that does not depend on where they differ.
  bool verifies(std::string_view role, std::string_view data, const Mac& mac) const;
  // From the system, for a challenge.
  static std::string nonce();  // 32 bytes

 private:
  std::string key_;
};

// DTENSOR_SECRET, or the first line of the file that DTENSOR_SECRET_FILE names; nullptr where
// neither is set. ArgumentError naming the variables for both, for a file that cannot be read or
// that others than its owner may read or write, for a secret below 16 bytes. `get` reads a
// variable, nullptr where it is not set. The secret is in no message.
std::shared_ptr<const Secret> secret_of_environment(
    const std::function<const char*(const char*)>& get);
// The same of this process's environment.
std::shared_ptr<const Secret> secret_of_environment();

}  // namespace dtensor::comm

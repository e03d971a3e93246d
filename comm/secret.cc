#include "dtensor/comm/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {
namespace {

constexpr size_t kLeastBytes = 16;
constexpr size_t kNonceBytes = 32;
constexpr size_t kMostBytes = 4096;  // of its file

std::string read_line(const std::string& path) {
  const internal::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (!file || fstat(file.get(), &info) != 0) {
    throw ArgumentError(
        fmt::format("DTENSOR_SECRET_FILE={}: it cannot be read: {}", path, std::strerror(errno)));
  }
  // Of the file that is read. Who may write it could make the secret one that he knows.
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw ArgumentError(
        fmt::format("DTENSOR_SECRET_FILE={0}: others may read or write it; chmod 600 {0}", path));
  }
  std::string text(kMostBytes, '\0');
  const ssize_t bytes = read(file.get(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  if (text.empty()) {
    throw ArgumentError(fmt::format("DTENSOR_SECRET_FILE={}: it has no line to read", path));
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

Secret::Secret(std::string key) : key_(std::move(key)) {
  if (key_.size() >= kLeastBytes) return;
  throw ArgumentError(
      fmt::format("the secret has {} bytes, at least {} are needed; make one with: openssl rand "
                  "-hex 32",
                  key_.size(), kLeastBytes));
}

Secret::Mac Secret::mac(std::string_view role, std::string_view data) const {
  // The length in front: no (role, data) reads as another.
  const std::string text = fmt::format("dtensor/{}/{}/{}", role.size(), role, data);
  Mac out = {};
  unsigned int size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(out.data()), &size);
  internal_check(done != nullptr && size == out.size(), "HMAC-SHA256 gives 32 bytes");
  return out;
}

bool Secret::verifies(std::string_view role, std::string_view data, const Mac& given) const {
  const Mac right = mac(role, data);
  return CRYPTO_memcmp(right.data(), given.data(), right.size()) == 0;
}

std::string Secret::nonce() {
  std::string out(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) != 1) {
    throw Error("the system gives no random bytes for a challenge");
  }
  return out;
}

std::shared_ptr<const Secret> secret_of_environment(
    const std::function<const char*(const char*)>& get) {
  const char* value = get("DTENSOR_SECRET");
  const char* file = get("DTENSOR_SECRET_FILE");
  if (value != nullptr && file != nullptr) {
    throw ArgumentError("DTENSOR_SECRET and DTENSOR_SECRET_FILE are both set; unset one of them");
  }
  if (file != nullptr) return std::make_shared<Secret>(read_line(file));
  if (value != nullptr) return std::make_shared<Secret>(value);
  return nullptr;
}

std::shared_ptr<const Secret> secret_of_environment() {
  return secret_of_environment(
      [](const char* name) -> const char* { return std::getenv(name); });  // NOLINT
}

}  // namespace dtensor::comm

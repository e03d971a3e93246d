#include "dtensor/comm/sealed_store.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

constexpr size_t kMacBytes = sizeof(Secret::Mac);

class SealedStore : public Store {
 public:
  SealedStore(std::shared_ptr<Store> inner, std::shared_ptr<const Secret> secret)
      : inner_(std::move(inner)), secret_(std::move(secret)) {}

  void set(std::string_view key, std::string_view value) override {
    const Secret::Mac mac = secret_->mac("value", sealed(key, value));
    std::string whole(mac.data(), mac.size());
    whole.append(value);
    inner_->set(key, whole);
  }

  std::string get(std::string_view key, Deadline deadline) override {
    std::string whole = inner_->get(key, deadline);
    Secret::Mac mac = {};
    if (whole.size() >= kMacBytes) std::memcpy(mac.data(), whole.data(), kMacBytes);
    whole.erase(0, kMacBytes);
    if (!secret_->verifies("value", sealed(key, whole), mac)) {
      throw Error(fmt::format(
          "the store's value of \"{}\" was not written by who knows the secret; is DTENSOR_SECRET "
          "the same on all ranks?",
          key));
    }
    return whole;
  }

  bool has(std::string_view key) override { return inner_->has(key); }

 private:
  // The length in front: no other key and value read the same.
  static std::string sealed(std::string_view key, std::string_view value) {
    return fmt::format("{}/{}/{}", key.size(), key, value);
  }

  const std::shared_ptr<Store> inner_;
  const std::shared_ptr<const Secret> secret_;
};

}  // namespace

std::shared_ptr<Store> make_sealed_store(std::shared_ptr<Store> inner,
                                         std::shared_ptr<const Secret> secret) {
  return std::make_shared<SealedStore>(std::move(inner), std::move(secret));
}

}  // namespace dtensor::comm

// While it lives the calling thread is refused what a file's mode refuses its owner, root or not.

#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <stdexcept>

namespace dtensor::testing {

class WithoutOverride {
 public:
  WithoutOverride() {
    call(SYS_capget, before_);
    auto data = before_;
    constexpr uint32_t kOverride = 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH;
    data[0].effective &= ~kOverride;
    call(SYS_capset, data);
  }
  ~WithoutOverride() { syscall(SYS_capset, &header_, before_.data()); }
  WithoutOverride(const WithoutOverride&) = delete;
  WithoutOverride& operator=(const WithoutOverride&) = delete;

 private:
  using Data = std::array<__user_cap_data_struct, 2>;

  void call(long number, Data& data) {
    if (syscall(number, &header_, data.data()) != 0) throw std::runtime_error("capabilities");
  }

  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  Data before_ = {};
};

}  // namespace dtensor::testing

#include "dtensor/comm/ucx/device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "dtensor/base/error.h"

namespace dtensor::comm::ucx {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* bytes = nullptr;
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (address != nullptr && address->sa_family == AF_INET) {
    std::memcpy(&v4, address, sizeof(v4));
    bytes = &v4.sin_addr;
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    std::memcpy(&v6, address, sizeof(v6));
    bytes = &v6.sin6_addr;
  }
  if (bytes == nullptr) return {};
  inet_ntop(address->sa_family, bytes, text.data(), text.size());
  return text.data();
}

}  // namespace

std::string device_of_address(const std::string& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(fmt::format("ucx: getifaddrs: {}", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (text_of(i->ifa_addr) == address) return i->ifa_name;
  }
  // The loopback interface answers to all of 127.0.0.0/8.
  if (address.rfind("127.", 0) == 0) return "lo";
  throw Error(fmt::format("ucx: no interface of this machine has the address \"{}\"", address));
}

}  // namespace dtensor::comm::ucx

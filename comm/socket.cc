#include "dtensor/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "dtensor/base/error.h"

namespace dtensor::comm::internal {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, int port, int socket_type) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (rc != 0) {
    throw Error(fmt::format("cannot resolve host \"{}\": {}", host, gai_strerror(rc)));
  }
  return AddressList(list, &freeaddrinfo);
}

Fd open_socket(const addrinfo& a) {
  return Fd(socket(a.ai_family, a.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a.ai_protocol));
}

void set_no_delay(const Fd& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Waits for `events`; false when the deadline passes.
bool wait_for(const Fd& socket, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    pollfd p = {socket.get(), events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw Error(fmt::format("poll: {}", strerror(errno)));
    if (deadline.expired()) return false;
  }
}

// One attempt; false (with *why set) where it fails.
Fd try_connect(const addrinfo& a, Deadline deadline, std::string* why) {
  Fd fd = open_socket(a);
  if (!fd) throw Error(fmt::format("socket: {}", strerror(errno)));
  int error = 0;
  if (connect(fd.get(), a.ai_addr, a.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t length = sizeof(error);
      if (!wait_for(fd, POLLOUT, deadline)) {
        error = ETIMEDOUT;
      } else {
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
  }
  if (error != 0) {
    *why = strerror(error);
    return {};
  }
  set_no_delay(fd);
  return fd;
}

HostPort to_host_port(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int rc = getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host,
                             sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  internal_check(rc == 0, "a socket's own address is readable");
  HostPort out{host, 0};
  std::from_chars(port, port + strlen(port), out.port);
  return out;
}

}  // namespace

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

HostPort parse_host_port(std::string_view text) {
  const auto colon = text.rfind(':');
  HostPort out;
  bool good = colon != std::string_view::npos && colon > 0;
  if (good) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [p, ec] = std::from_chars(begin, end, out.port);
    good = ec == std::errc() && p == end && out.port >= 0 && out.port <= 65535;
  }
  if (!good) {
    throw ArgumentError(
        fmt::format("\"{}\" is no address; write host:port, as 127.0.0.1:29500", text));
  }
  auto host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  out.host = std::string(host);
  return out;
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(std::string_view numeric_host) {
  return numeric_host.substr(0, 4) == "127." || numeric_host == "::1" ||
         numeric_host == "localhost";
}

Fd listen_on(const std::string& host, int port) {
  const AddressList list = resolve(host, port, SOCK_STREAM);
  std::string why = "no address";
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    Fd fd = open_socket(*a);
    const int on = 1;
    if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd && bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(fd.get(), 1024) == 0) {
      return fd;
    }
    why = strerror(errno);
  }
  throw Error(fmt::format("cannot listen on {}: {}", to_string({host, port}), why));
}

HostPort local_address(const Fd& socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw Error(fmt::format("getsockname: {}", strerror(errno)));
  }
  return to_host_port(address, length);
}

Fd accept_from(const Fd& listener) {
  Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) set_no_delay(fd);
  return fd;
}

std::string peer_name(const Fd& socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "one that has gone";
  }
  return to_string(to_host_port(address, length));
}

Fd connect_to(const HostPort& address, Deadline deadline) {
  const Deadline until = deadline.resolved();
  const AddressList list = resolve(address.host, address.port, SOCK_STREAM);
  std::string why = "no address";
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
      if (Fd fd = try_connect(*a, until, &why)) return fd;
    }
    if (until.expired()) break;
    // Nobody listens yet: the other side may still be starting.
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, until.left()));
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
  throw Error(fmt::format("cannot connect to {} by the deadline: {}", to_string(address), why));
}

std::string address_towards(const HostPort& address) {
  const AddressList list = resolve(address.host, address.port, SOCK_DGRAM);
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const Fd fd = open_socket(*a);
    if (fd && connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) {
      return local_address(fd).host;
    }
  }
  throw Error(fmt::format("no route to {}", to_string(address)));
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw Error(fmt::format("getifaddrs: {}", strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::set<std::string> known;
  std::string found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const int family = i->ifa_addr == nullptr ? AF_UNSPEC : i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    known.insert(i->ifa_name);
    if (name != i->ifa_name || (!found.empty() && family == AF_INET6)) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    sockaddr_storage address = {};
    std::memcpy(&address, i->ifa_addr, length);
    found = to_host_port(address, length).host;
    if (family == AF_INET) break;
  }
  if (!found.empty()) return found;
  throw Error(fmt::format("no interface \"{}\" with an address; there are {}", name,
                          fmt::join(known, ", ")));
}

void write_all(const Fd& socket, std::string_view data, Deadline deadline) {
  const Deadline until = deadline.resolved();
  while (!data.empty()) {
    const ssize_t n = send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL);
    if (n > 0) {
      data.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(socket, POLLOUT, until)) throw Error("no progress by the deadline");
    } else {
      throw Error(fmt::format("send: {}", strerror(errno)));
    }
  }
}

void read_all(const Fd& socket, char* data, size_t bytes, Deadline deadline) {
  const Deadline until = deadline.resolved();
  while (bytes > 0) {
    const ssize_t n = recv(socket.get(), data, bytes, 0);
    if (n > 0) {
      data += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      throw Error("closed by the other side");
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_for(socket, POLLIN, until)) throw Error("no answer by the deadline");
    } else {
      throw Error(fmt::format("recv: {}", strerror(errno)));
    }
  }
}

}  // namespace dtensor::comm::internal

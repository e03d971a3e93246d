// Sockets: the little of POSIX TCP that rendezvous and the control channel need. Every descriptor
// is non-blocking and closed on exec: a child process must not keep a dead rank's connection open.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dtensor/base/deadline.h"

namespace dtensor::comm::internal {

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct HostPort {
  std::string host;
  int port = 0;
};

// "127.0.0.1:29500", "[::1]:29500"; ArgumentError otherwise.
HostPort parse_host_port(std::string_view text);
std::string to_string(const HostPort& address);
bool is_loopback(std::string_view numeric_host);

// A listening socket on a numeric or resolvable host; port 0 is taken from the kernel.
Fd listen_on(const std::string& host, int port);
HostPort local_address(const Fd& socket);
// Takes one waiting connection; false where none waits.
Fd accept_from(const Fd& listener);
// Who is on the other end, for messages: "10.0.0.7:40312".
std::string peer_name(const Fd& socket);
// Connects, trying again while nobody listens; Error when the deadline passes.
Fd connect_to(const HostPort& address, Deadline deadline);
// The numeric address of this machine from which `address` is reached. Sends nothing.
std::string address_towards(const HostPort& address);

// The numeric address of a network interface ("eth0"), IPv4 where it has one; Error listing the
// interfaces where there is none of this name.
std::string address_of_interface(const std::string& name);

// All of it or Error ("closed by the other side", "no answer by the deadline").
void write_all(const Fd& socket, std::string_view data, Deadline deadline);
void read_all(const Fd& socket, char* data, size_t bytes, Deadline deadline);

}  // namespace dtensor::comm::internal

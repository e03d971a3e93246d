#include "dtensor/comm/shm/handing_over.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <random>

#include "dtensor/base/error.h"

namespace dtensor::comm::shm {
namespace {

using internal::Fd;

constexpr size_t kMaxUnknown = 256;

sockaddr_un address_of(const std::string& name, socklen_t* size) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  internal_check(name.size() < sizeof(address.sun_path), "a socket's name is too long");
  // The leading zero makes it abstract: it ends with the socket, and is nowhere in a file system.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd new_socket() {
  // Packets, so that a greeting is read whole or not at all.
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw Error(fmt::format("a Unix socket: {}", std::strerror(errno)));
  return fd;
}

bool is_of_this_user(const Fd& fd) {
  ucred who = {};
  socklen_t size = sizeof(who);
  return getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

void poll_until(std::vector<pollfd>& polled, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
}

bool send_descriptor(const Fd& to, const Fd& what) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = what.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(to.get(), &message, MSG_NOSIGNAL) == 1;
}

// An empty Fd where there is nothing yet.
Fd receive_descriptor(const Fd& from) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const ssize_t n = recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Fd();
  const cmsghdr* header = n == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error("shared memory: a rank of this host left before it gave its memory");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return Fd(fd);
}

}  // namespace

HandOver::HandOver() : listener_(new_socket()) {
  std::random_device random;
  name_ = fmt::format("dtensor-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  socklen_t size = 0;
  const sockaddr_un address = address_of(name_, &size);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener_.get(), 1024) != 0) {
    throw Error(fmt::format("a Unix socket: {}", std::strerror(errno)));
  }
}

// Everybody asks everybody, by the name of whom it asks: who knows that name has it from the store.
std::vector<Fd> HandOver::swap(const Fd& mine, const std::vector<std::string>& names,
                               Deadline deadline) {
  std::vector<Fd> asked;
  for (const std::string& name : names) {
    Fd& fd = asked.emplace_back(new_socket());
    socklen_t size = 0;
    const sockaddr_un address = address_of(name, &size);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        send(fd.get(), name.data(), name.size(), MSG_NOSIGNAL) < 0) {
      throw Error(fmt::format("shared memory: a rank of this host is not reached: {}",
                              std::strerror(errno)));
    }
  }
  std::vector<Fd> got(names.size());
  std::deque<Fd> unknown;
  size_t given = 0;
  const auto missing = [&] { return std::ranges::any_of(got, [](const Fd& f) { return !f; }); };
  while (given < names.size() || missing()) {
    if (deadline.expired()) {
      throw Error("shared memory: a rank of this host did not come by the deadline");
    }
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Fd& u : unknown) polled.push_back({u.get(), POLLIN, 0});
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!got[i]) polled.push_back({asked[i].get(), POLLIN, 0});
    }
    poll_until(polled, deadline);
    for (;;) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) break;
      if (!is_of_this_user(fd)) continue;
      if (unknown.size() >= kMaxUnknown) unknown.pop_front();
      unknown.push_back(std::move(fd));
    }
    for (Fd& u : unknown) {
      std::array<char, 128> text;
      const ssize_t n = recv(u.get(), text.data(), text.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      const bool knows_us = n > 0 && std::string_view(text.data(), static_cast<size_t>(n)) == name_;
      if (knows_us && send_descriptor(u, mine)) ++given;
      u.reset();
    }
    std::erase_if(unknown, [](const Fd& u) { return !u; });
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!got[i]) got[i] = receive_descriptor(asked[i]);
    }
  }
  return got;
}

}  // namespace dtensor::comm::shm

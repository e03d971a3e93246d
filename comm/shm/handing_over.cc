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

// Connections that say nothing, beside those of the ranks.
constexpr size_t kMaxStrangers = 256;
// How often given_up() is asked.
constexpr std::chrono::milliseconds kLook{50};

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
  poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left, kLook.count())));
}

void send_descriptor(const Fd& to, const Fd& what, const std::string& key) {
  iovec data = {const_cast<char*>(key.data()), key.size()};
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
  if (sendmsg(to.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(key.size())) {
    throw Error(fmt::format("shared memory cannot be given to a rank of this host: {}",
                            std::strerror(errno)));
  }
}

// An empty Fd where there is nothing yet. Who answers has to know this rank's key.
Fd receive_descriptor(const Fd& from, const std::string& key) {
  std::array<char, 128> text;
  iovec data = {text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  const ssize_t n = recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Fd();
  const cmsghdr* header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error("shared memory: a rank of this host left, or could not give its memory");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  Fd given(fd);
  if (std::string_view(text.data(), static_cast<size_t>(n)) != key) {
    throw Error("shared memory: who answers in the place of a rank of this host is none");
  }
  return given;
}

std::string random_text() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// What a rank says to the one that it asks.
std::string question(const Party& asks, const Party& asked) { return asked.key + " " + asks.name; }

}  // namespace

HandOver::HandOver() : me_{"dtensor-" + random_text(), random_text()}, listener_(new_socket()) {
  socklen_t size = 0;
  const sockaddr_un address = address_of(me_.name, &size);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener_.get(), 1024) != 0) {
    throw Error(fmt::format("a Unix socket: {}", std::strerror(errno)));
  }
}

// Everybody asks everybody.
class HandOver::Swap {
 public:
  Swap(const HandOver& from, const Fd& mine, const std::vector<Party>& others)
      : me_(from.me_),
        listener_(from.listener_),
        mine_(mine),
        others_(others),
        given_(others.size()),
        got_(others.size()) {
    for (const Party& other : others_) asked_.push_back(ask(other));
  }

  bool done() const {
    return std::ranges::all_of(given_, [](bool g) { return g; }) &&
           std::ranges::all_of(got_, [](const Fd& f) { return static_cast<bool>(f); });
  }

  void step(Deadline deadline) {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Fd& u : unknown_) polled.push_back({u.get(), POLLIN, 0});
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!got_[i]) polled.push_back({asked_[i].get(), POLLIN, 0});
    }
    poll_until(polled, deadline);
    take_new();
    for (Fd& u : unknown_) answer(u);
    std::erase_if(unknown_, [](const Fd& u) { return !u; });
    for (size_t i = 0; i < asked_.size(); ++i) {
      if (!got_[i]) got_[i] = receive_descriptor(asked_[i], me_.key);
    }
  }

  std::vector<Fd> take() { return std::move(got_); }

 private:
  Fd ask(const Party& other) const {
    Fd fd = new_socket();
    socklen_t size = 0;
    const sockaddr_un address = address_of(other.name, &size);
    const std::string text = question(me_, other);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) {
      throw Error(fmt::format("shared memory: a rank of this host is not reached: {}",
                              std::strerror(errno)));
    }
    if (!is_of_this_user(fd)) {
      throw Error("shared memory: a process of another user answers in the place of a rank");
    }
    return fd;
  }

  void take_new() {
    for (;;) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) return;
      if (!is_of_this_user(fd)) continue;
      if (unknown_.size() >= kMaxStrangers + others_.size()) unknown_.pop_front();
      unknown_.push_back(std::move(fd));
    }
  }

  void answer(Fd& u) {
    std::array<char, 128> text;
    const ssize_t n = recv(u.get(), text.data(), text.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const std::string_view said(text.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
    for (size_t i = 0; i < others_.size(); ++i) {
      if (given_[i] || said != question(others_[i], me_)) continue;
      send_descriptor(u, mine_, others_[i].key);
      given_[i] = true;
    }
    u.reset();
  }

  const Party& me_;
  const Fd& listener_;
  const Fd& mine_;
  const std::vector<Party>& others_;
  std::vector<Fd> asked_;
  std::vector<bool> given_;
  std::vector<Fd> got_;
  std::deque<Fd> unknown_;
};

std::vector<Fd> HandOver::swap(const Fd& mine, const std::vector<Party>& others, Deadline deadline,
                               const std::function<bool()>& given_up) {
  Swap swap(*this, mine, others);
  while (!swap.done()) {
    if (deadline.expired()) {
      throw Error("shared memory: a rank of this host did not come by the deadline");
    }
    if (given_up && given_up()) throw Error("another rank of this host does without");
    swap.step(deadline);
  }
  return swap.take();
}

}  // namespace dtensor::comm::shm

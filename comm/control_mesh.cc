#include "dtensor/comm/control_mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/comm/handshake.h"

namespace dtensor::comm::internal {
namespace {

// The first bytes on a connection, in both directions.
struct Greeting {
  std::array<char, 8> magic = {'D', 'T', 'C', 'T', 'R', 'L', '0', '1'};
  std::array<char, 64> token = {};
  int32_t rank = 0;
};

Greeting greeting_of(const ControlMeshOptions& o, int rank) {
  Greeting g;
  std::memcpy(g.token.data(), o.token.data(), std::min(o.token.size(), g.token.size()));
  g.rank = rank;
  return g;
}

bool ours(const Greeting& g, const ControlMeshOptions& o) {
  const Greeting want = greeting_of(o, g.rank);
  return g.magic == want.magic && g.token == want.token;
}

std::string_view bytes_of(const Greeting& g) {
  return {reinterpret_cast<const char*>(&g), sizeof(g)};
}

// A connection that has not said who it is.
struct Unknown {
  Fd fd;
  std::string in = {};
  std::optional<Handshake> handshake = {};  // until it is done
};
// Beside the ranks that may come at one time.
constexpr size_t kMaxStrangers = 64;
constexpr std::string_view kService = "control";

void refuse(Unknown& u, std::string_view why) {
  log(LogLevel::kInfo, fmt::format("control channel: {} is dropped: {}", peer_name(u.fd), why));
  u.fd.reset();
}

class Door {
 public:
  Door(Fd listener, const ControlMeshOptions& o, std::vector<Fd>& peers)
      : listener_(std::move(listener)), o_(o), peers_(peers) {}

  // Until every rank above this one has come.
  void admit_all() {
    while (const int missing = next_missing()) {
      if (o_.deadline.expired()) {
        throw Error(
            fmt::format("control channel: rank {} did not connect to rank {} by the deadline",
                        missing, o_.rank));
      }
      wait();
      while (Fd fd = accept_from(listener_)) {
        if (unknown_.size() >= kMaxStrangers + static_cast<size_t>(o_.size)) {
          refuse(unknown_.front(), "it says nothing, and many others wait");
          unknown_.pop_front();
        }
        unknown_.push_back({std::move(fd)});
        if (o_.secret) unknown_.back().handshake.emplace(o_.secret, kService);
      }
      for (Unknown& u : unknown_) read(u);
      std::erase_if(unknown_, [](const Unknown& u) { return !u.fd; });
    }
  }

 private:
  int next_missing() const {
    for (int r = o_.rank + 1; r < o_.size; ++r) {
      if (!peers_[static_cast<size_t>(r)]) return r;
    }
    return 0;
  }

  void wait() const {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Unknown& u : unknown_) polled.push_back({u.fd.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(o_.deadline.left()).count();
    poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left, 1000)));
  }

  void read(Unknown& u) {
    std::array<char, sizeof(Greeting)> block;
    const ssize_t n = recv(u.fd.get(), block.data(), block.size() - u.in.size(), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return u.fd.reset();
    if (n < 0) return;
    u.in.append(block.data(), static_cast<size_t>(n));
    if (u.handshake && !shake(u)) return;
    if (u.in.size() < sizeof(Greeting)) return;
    Greeting g;
    std::memcpy(&g, u.in.data(), sizeof(g));
    const bool good =
        ours(g, o_) && g.rank > o_.rank && g.rank < o_.size && !peers_[static_cast<size_t>(g.rank)];
    if (!good) return refuse(u, "it is no rank of this world");
    if (!answer(u, bytes_of(greeting_of(o_, o_.rank)))) return;
    peers_[static_cast<size_t>(g.rank)] = std::move(u.fd);
  }

  // False until the handshake is done.
  bool shake(Unknown& u) {
    std::string out;
    const Handshake::State state = u.handshake->step(u.in, out);
    if (state == Handshake::State::kRefused) refuse(u, "it does not know the secret");
    if (!u.fd || !answer(u, out)) return false;
    if (state == Handshake::State::kDone) u.handshake.reset();
    return state == Handshake::State::kDone;
  }

  // A few bytes on a new connection: they are sent at once, or it is none of ours.
  static bool answer(Unknown& u, std::string_view bytes) {
    if (bytes.empty() || send(u.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                             static_cast<ssize_t>(bytes.size())) {
      return true;
    }
    u.fd.reset();
    return false;
  }

  const Fd listener_;
  const ControlMeshOptions& o_;
  std::vector<Fd>& peers_;
  std::deque<Unknown> unknown_;
};

}  // namespace

std::vector<Fd> connect_control_mesh(Fd listener, Store& store, const ControlMeshOptions& options) {
  ControlMeshOptions o = options;
  o.deadline = options.deadline.resolved();
  std::vector<Fd> peers(static_cast<size_t>(o.size));
  const auto key = [&](int r) { return fmt::format("{}control/{}", o.key_prefix, r); };
  store.set(key(o.rank), to_string(local_address(listener)));
  for (int r = 0; r < o.rank; ++r) {
    Fd& peer = peers[static_cast<size_t>(r)];
    peer = connect_to(parse_host_port(store.get(key(r), o.deadline)), o.deadline);
    if (o.secret) {
      try {
        authenticate(peer, *o.secret, kService, o.deadline);
      } catch (const Error& e) {
        throw Error(fmt::format("control channel of rank {}: {}", r, e.what()));
      }
    }
    write_all(peer, bytes_of(greeting_of(o, o.rank)), o.deadline);
  }
  Door(std::move(listener), o, peers).admit_all();
  for (int r = 0; r < o.rank; ++r) {
    Greeting g;
    try {
      read_all(peers[static_cast<size_t>(r)], reinterpret_cast<char*>(&g), sizeof(g), o.deadline);
    } catch (const Error& e) {
      throw Error(
          fmt::format("control channel: rank {} did not answer rank {}: {}", r, o.rank, e.what()));
    }
    if (!ours(g, o) || g.rank != r) {
      throw Error(fmt::format("control channel: a stranger answers in the place of rank {}", r));
    }
  }
  return peers;
}

}  // namespace dtensor::comm::internal

#include "dtensor/comm/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/base/process.h"
#include "dtensor/comm/handshake.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {
namespace {

using internal::Fd;

// A request is a header, the key, the value. An answer is a Reply and, for a get, the value.
enum class Verb : uint32_t { kSet = 1, kGet = 2, kHas = 3 };
struct Header {
  uint32_t magic = kMagic;
  uint32_t verb = 0;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  static constexpr uint32_t kMagic = 0x31535444;  // "DTS1"
};
enum class Status : uint32_t { kOk = 0, kAbsent = 1, kDiffers = 2 };
struct Reply {
  uint32_t status = 0;
  uint32_t value_bytes = 0;
};

constexpr std::string_view kService = "store";
constexpr size_t kMaxConnections = 4096;
constexpr auto kPatience = std::chrono::seconds(10);  // for the rest of a request begun

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

bool acceptable(const Header& h) {
  return h.magic == Header::kMagic && h.verb >= 1 && h.verb <= 3 && h.key_bytes > 0 &&
         h.key_bytes <= kMaxKeyBytes && h.value_bytes <= kMaxValueBytes &&
         (h.verb == static_cast<uint32_t>(Verb::kSet) || h.value_bytes == 0);
}

// The serving side: one thread that polls all connections; the values are a memory store.
class Server {
 public:
  explicit Server(const TcpStoreOptions& options)
      : secret_(options.secret),
        listener_(internal::listen_on(options.host, options.port)),
        port_(internal::local_address(listener_).port),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        values_(make_memory_store()),
        thread_([this] { serve(); }) {}

  ~Server() {
    if (process_ != dtensor::internal::process_id()) {
      // Forked: the thread, and who is woken, are of the other process.
      dtensor::internal::keep_forever(std::make_shared<std::thread>(std::move(thread_)));
      return;
    }
    stop_ = true;
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Store& values() { return *values_; }
  int port() const { return port_; }

 private:
  struct Connection {
    Fd fd;
    std::string in;
    std::string out;
    Deadline patience = Deadline::after(kPatience);
    std::optional<internal::Handshake> handshake = {};  // until it is done
    bool gone = false;
  };

  void serve() {
    while (!stop_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Connection& c : connections_) {
        polled.push_back({c.fd.get(), static_cast<short>(c.out.empty() ? POLLIN : POLLOUT), 0});
      }
      poll(polled.data(), polled.size(), 1000);
      for (size_t i = 0; i < connections_.size(); ++i) step(connections_[i], polled[i + 2].revents);
      std::erase_if(connections_, [](const Connection& c) { return c.gone; });
      if ((polled[1].revents & POLLIN) != 0) take_new();
    }
  }

  void take_new() {
    while (Fd fd = internal::accept_from(listener_)) {
      if (connections_.size() >= kMaxConnections) continue;
      connections_.emplace_back();
      connections_.back().fd = std::move(fd);
      if (secret_) connections_.back().handshake.emplace(secret_, kService);
    }
  }

  static void drop(Connection& c) { c.gone = true; }
  static void refuse(Connection& c, std::string_view why) {
    log(LogLevel::kInfo,
        fmt::format("TCP store: {} is dropped: {}", internal::peer_name(c.fd), why));
    drop(c);
  }

  void step(Connection& c, short events) {
    if ((events & POLLOUT) != 0) flush(c);
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(c);
    // A request begun and not finished holds memory; an idle rank has begun none.
    if (!c.gone && (!c.in.empty() || c.handshake) && c.patience.expired()) {
      refuse(c, "it did not finish what it began");
    }
  }

  void receive(Connection& c) {
    char block[65536];
    const ssize_t n = recv(c.fd.get(), block, sizeof(block), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return drop(c);
    if (n < 0) return;
    if (c.in.empty() && !c.handshake) c.patience = Deadline::after(kPatience);
    c.in.append(block, static_cast<size_t>(n));
    if (c.handshake) {
      const auto state = c.handshake->step(c.in, c.out);
      if (state == internal::Handshake::State::kRefused) {
        return refuse(c, "it does not know the secret");
      }
      if (state == internal::Handshake::State::kDone) c.handshake.reset();
    }
    while (!c.gone && !c.handshake && answer_one(c)) {
    }
    flush(c);
  }

  // Answers the first request of c.in; false where it is not complete yet.
  bool answer_one(Connection& c) {
    Header h;
    if (c.in.size() < sizeof(h)) return false;
    std::memcpy(&h, c.in.data(), sizeof(h));
    if (!acceptable(h)) {
      refuse(c, "what it sent is no request");
      return false;
    }
    const size_t total = sizeof(h) + h.key_bytes + h.value_bytes;
    if (c.in.size() < total) return false;
    const std::string key = c.in.substr(sizeof(h), h.key_bytes);
    const std::string value = c.in.substr(sizeof(h) + h.key_bytes, h.value_bytes);
    c.in.erase(0, total);
    answer(c, static_cast<Verb>(h.verb), key, value);
    return true;
  }

  void answer(Connection& c, Verb verb, const std::string& key, const std::string& value) {
    Reply reply;
    std::string found;
    const bool present = values_->has(key);
    if (verb == Verb::kSet) {
      try {
        values_->set(key, value);
      } catch (const Error&) {
        reply.status = static_cast<uint32_t>(Status::kDiffers);  // told to the one who asked
      }
    } else if (!present) {
      reply.status = static_cast<uint32_t>(Status::kAbsent);
    } else if (verb == Verb::kGet) {
      found = values_->get(key, {});
    }
    reply.value_bytes = static_cast<uint32_t>(found.size());
    c.out.append(bytes_of(reply)).append(found);
  }

  static void flush(Connection& c) {
    while (!c.out.empty()) {
      const ssize_t n = send(c.fd.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0 && errno != EINTR) return drop(c);
      if (n > 0) c.out.erase(0, static_cast<size_t>(n));
    }
  }

  const int64_t process_ = dtensor::internal::process_id();
  const std::shared_ptr<const Secret> secret_;
  Fd listener_;
  int port_;
  Fd wake_;
  std::shared_ptr<Store> values_;
  std::atomic<bool> stop_{false};
  std::vector<Connection> connections_;  // of the thread
  std::thread thread_;
};

class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options)
      : address_{options.host, options.port},
        socket_(internal::connect_to(address_, options.deadline)) {
    if (!options.secret) return;
    try {
      internal::authenticate(socket_, *options.secret, kService, options.deadline.resolved());
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}", name(), e.what()));
    }
  }

  void set(std::string_view key, std::string_view value) override {
    check_store_entry(key, value);
    if (ask(Verb::kSet, key, value, nullptr) == Status::kDiffers) throw_differs(name(), key);
  }

  std::string get(std::string_view key, Deadline deadline) override {
    const Deadline until = deadline.resolved();
    std::string value;
    auto pause = std::chrono::milliseconds(1);
    while (ask(Verb::kGet, key, {}, &value) == Status::kAbsent) {
      if (until.expired()) throw_absent(name(), key);
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, until.left()));
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
    return value;
  }

  bool has(std::string_view key) override {
    return ask(Verb::kHas, key, {}, nullptr) == Status::kOk;
  }

  int port() const { return address_.port; }

 private:
  std::string name() const { return "TCP store " + internal::to_string(address_); }

  Status ask(Verb verb, std::string_view key, std::string_view value, std::string* found) {
    const Deadline bound = Deadline::after(kPatience);
    Header h;
    h.verb = static_cast<uint32_t>(verb);
    h.key_bytes = static_cast<uint32_t>(key.size());
    h.value_bytes = static_cast<uint32_t>(value.size());
    std::string request(bytes_of(h));
    request.append(key).append(value);
    Reply reply;
    // One request at a time has the connection; the wait is bounded, and the server answers at
    // once.
    const std::lock_guard lock(mutex_);
    try {
      internal::write_all(socket_, request, bound);
      internal::read_all(socket_, reinterpret_cast<char*>(&reply), sizeof(reply), bound);
      if (reply.value_bytes > kMaxValueBytes) throw Error("the answer is none of ours");
      std::string body(reply.value_bytes, '\0');
      internal::read_all(socket_, body.data(), body.size(), bound);
      if (found != nullptr) *found = std::move(body);
    } catch (const Error& e) {
      throw Error(fmt::format(
          "{}: {} (key \"{}\"); is rank 0 still alive, and with the same DTENSOR_SECRET?", name(),
          e.what(), key));
    }
    return static_cast<Status>(reply.status);
  }

  const internal::HostPort address_;
  std::mutex mutex_;
  Fd socket_;  // guarded by mutex_
};

// The serving process reads its own values without a connection.
class ServedStore : public Store {
 public:
  explicit ServedStore(const TcpStoreOptions& options) : server_(options) {}
  void set(std::string_view key, std::string_view value) override {
    server_.values().set(key, value);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return server_.values().get(key, deadline);
  }
  bool has(std::string_view key) override { return server_.values().has(key); }
  int port() const { return server_.port(); }

 private:
  Server server_;
};

}  // namespace

std::shared_ptr<Store> make_tcp_store(const TcpStoreOptions& options) {
  if (options.serve) return std::make_shared<ServedStore>(options);
  if (options.port <= 0) throw ArgumentError("tcp store: only the serving rank may take port 0");
  return std::make_shared<TcpStore>(options);
}

int tcp_store_port(const Store& store) {
  if (const auto* served = dynamic_cast<const ServedStore*>(&store)) return served->port();
  if (const auto* client = dynamic_cast<const TcpStore*>(&store)) return client->port();
  throw ArgumentError("tcp_store_port: the store was not made by make_tcp_store");
}

}  // namespace dtensor::comm

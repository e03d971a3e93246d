#include "dtensor/comm/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/config.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/gloo/message.h"
#include "dtensor/comm/gloo/sigpipe_guard.h"
#include "dtensor/comm/greeting.h"

namespace dtensor::comm::gloo {
namespace {

using Context = ::gloo::transport::Context;

// Every message carries its length, so that a receive that meets another size says so: Gloo would
// end the process where a message is longer than what was posted.
using Length = uint64_t;

// Longer than any operation; Gloo adds it to the time of day.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(100);

// What transfers share with their transport, and may outlive it.
struct Connections {
  Connections() = default;
  // The connections first: then Gloo is done with every block.
  ~Connections() {
    for (int i = 0; context != nullptr && i < context->size; ++i) context->getPair(i).reset();
  }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  std::shared_ptr<Store> store;
  std::shared_ptr<Context> context;
  std::shared_ptr<BlockPool> pool;
  std::mutex mutex;
  // Cancelled messages: Gloo may use their blocks for as long as it has the connections, and does
  // not say when it no longer will. Guarded by mutex.
  std::list<std::unique_ptr<Message>> parked;

  void park(std::unique_ptr<Message> message) {
    const std::lock_guard lock(mutex);
    parked.push_back(std::move(message));
  }
};

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(std::shared_ptr<Connections> connections, std::unique_ptr<Message> message, int peer,
               void* into, int64_t bytes)
      : connections_(std::move(connections)),
        message_(std::move(message)),
        peer_(peer),
        into_(into),
        bytes_(bytes) {}
  ~GlooTransfer() override {
    if (!complete_) connections_->park(std::move(message_));
  }
  GlooTransfer(const GlooTransfer&) = delete;
  GlooTransfer& operator=(const GlooTransfer&) = delete;

  // Gloo has no way to ask without waiting.
  bool ready() override { return complete_; }

  void wait(Deadline deadline) override {
    if (complete_) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
    bool arrived = false;
    try {
      arrived = message_->wait(std::min(left, kLongestWait));
    } catch (const std::exception& e) {
      throw TransportError(
          deadline.expired() ? TransportError::Kind::kTimeout : TransportError::Kind::kPeer, peer_,
          e.what());
    }
    if (!arrived) throw TransportError(TransportError::Kind::kInterrupted, peer_, "interrupted");
    complete_ = true;
    if (into_ != nullptr) take();
  }

  void interrupt() noexcept override { message_->interrupt(); }

 private:
  void take() {
    Length length = 0;
    std::memcpy(&length, message_->memory(), sizeof(length));
    if (length != static_cast<Length>(bytes_)) {
      throw TransportError(
          TransportError::Kind::kPeer, peer_,
          fmt::format("a message of {} bytes came where one of {} was due", length, bytes_));
    }
    std::memcpy(into_, message_->memory() + sizeof(length), static_cast<size_t>(bytes_));
  }

  const std::shared_ptr<Connections> connections_;
  std::unique_ptr<Message> message_;
  const int peer_;
  void* const into_;  // null for a send
  const int64_t bytes_;
  bool complete_ = false;
};

class GlooTransport : public Transport {
 public:
  GlooTransport(int rank, int size, int64_t max_message_bytes,
                std::shared_ptr<Connections> connections)
      : rank_(rank),
        size_(size),
        max_message_bytes_(max_message_bytes),
        connections_(std::move(connections)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int64_t max_message_bytes() const override { return max_message_bytes_; }

  std::unique_ptr<Transfer> send(int dst, uint64_t tag, const void* data, int64_t bytes) override {
    auto message = new_message(dst, bytes, Direction::kSend);
    const auto length = static_cast<Length>(bytes);
    std::memcpy(message->memory(), &length, sizeof(length));
    std::memcpy(message->memory() + sizeof(length), data, static_cast<size_t>(bytes));
    post(*message, dst, tag, sizeof(length) + static_cast<size_t>(bytes));
    return wrap(std::move(message), dst, nullptr, bytes);
  }

  std::unique_ptr<Transfer> receive(int src, uint64_t tag, void* data, int64_t bytes) override {
    auto message = new_message(src, bytes, Direction::kReceive);
    post(*message, src, tag, connections_->pool->block_bytes());
    return wrap(std::move(message), src, data, bytes);
  }

 private:
  std::unique_ptr<Message> new_message(int peer, int64_t bytes, Direction direction) {
    internal_check(peer >= 0 && peer < size_ && peer != rank_, "a message goes to another rank");
    internal_check(bytes >= 1 && bytes <= max_message_bytes_, "a message has a legal size");
    return std::make_unique<Message>(*connections_->context, connections_->pool, direction);
  }

  static void post(Message& message, int peer, uint64_t tag, size_t bytes) {
    const SigpipeGuard guard;
    try {
      message.post(peer, tag, bytes);
    } catch (const std::exception& e) {
      throw TransportError(TransportError::Kind::kPeer, peer, e.what());
    }
  }

  std::unique_ptr<Transfer> wrap(std::unique_ptr<Message> message, int peer, void* into,
                                 int64_t bytes) {
    return std::make_unique<GlooTransfer>(connections_, std::move(message), peer, into, bytes);
  }

  const int rank_;
  const int size_;
  const int64_t max_message_bytes_;
  const std::shared_ptr<Connections> connections_;
};

// Publishes this rank's addresses (one per peer: Gloo listens once for each) and connects.
void connect_all(Store& store, const GlooTransportOptions& o, Context& context) {
  std::string mine;
  for (int i = 0; i < o.size; ++i) {
    if (i == o.rank) continue;
    const std::vector<char> bytes = context.createPair(i)->address().bytes();
    mine.append(bytes.begin(), bytes.end());
  }
  store.set(fmt::format("{}gloo/{}", o.key_prefix, o.rank), mine);
  for (int i = 0; i < o.size; ++i) {
    if (i == o.rank) continue;
    const std::string theirs = store.get(fmt::format("{}gloo/{}", o.key_prefix, i), o.deadline);
    const size_t each = theirs.size() / static_cast<size_t>(o.size - 1);
    const auto begin =
        theirs.begin() + static_cast<ptrdiff_t>(each) * (o.rank < i ? o.rank : o.rank - 1);
    try {
      context.getPair(i)->connect({begin, begin + static_cast<ptrdiff_t>(each)});
    } catch (const std::exception& e) {
      throw Error(fmt::format("gloo: rank {} cannot connect to rank {}: {}", o.rank, i, e.what()));
    }
  }
}

}  // namespace

std::string gloo_version() {
  return fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

std::shared_ptr<Transport> make_gloo_transport(std::shared_ptr<Store> store,
                                               const GlooTransportOptions& options) {
  GlooTransportOptions o = options;
  o.deadline = options.deadline.resolved();
  const SigpipeGuard guard;  // Gloo's thread inherits it
  auto connections = std::make_shared<Connections>();
  try {
    const auto device =
        ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(o.address.c_str()));
    connections->context = device->createContext(o.rank, o.size);
  } catch (const std::exception& e) {
    throw Error(fmt::format("gloo: cannot use the address \"{}\": {}", o.address, e.what()));
  }
  connections->pool =
      std::make_shared<BlockPool>(sizeof(Length) + static_cast<size_t>(o.max_message_bytes));
  // Gloo waits five times this long for a connection.
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(o.deadline.left()) / 5;
  connections->context->setTimeout(std::max(patience, std::chrono::milliseconds(1)));
  connect_all(*store, o, *connections->context);
  connections->store = std::move(store);
  auto transport =
      std::make_shared<GlooTransport>(o.rank, o.size, o.max_message_bytes, connections);
  // A stranger may have found a port before the rank did.
  internal::greet_all(*transport, "gloo", o.token, o.deadline);
  return transport;
}

}  // namespace dtensor::comm::gloo

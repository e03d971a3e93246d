#include "dtensor/comm/ucx/ucx_transport.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/base/patience.h"
#include "dtensor/comm/greeting.h"
#include "dtensor/comm/hash.h"
#include "dtensor/comm/ucx/device.h"
#include "dtensor/comm/ucx/worker.h"

namespace dtensor::comm::ucx {
namespace {

// A look takes UCX a while: a microsecond or two.
constexpr int64_t kSpins = 20;

// What transfers share with their transport, and may outlive it.
struct Connection {
  Connection(std::shared_ptr<Store> store, const WorkerOptions& options)
      : store(std::move(store)), worker(options) {}
  const std::shared_ptr<Store> store;
  Worker worker;
};

class UcxTransfer : public Transfer {
 public:
  UcxTransfer(std::shared_ptr<Connection> connection, Operation* op, int peer)
      : connection_(std::move(connection)), op_(op), peer_(peer) {}
  ~UcxTransfer() override { connection_->worker.release(op_); }
  UcxTransfer(const UcxTransfer&) = delete;
  UcxTransfer& operator=(const UcxTransfer&) = delete;

  bool ready() override { return op_->done.load(std::memory_order_acquire); }

  void wait(Deadline deadline) override {
    Patience patience(kSpins);
    while (!ready()) {
      if (interrupted_.exchange(false)) {
        throw TransportError(TransportError::Kind::kInterrupted, peer_, "interrupted");
      }
      if (patience.time_to_look() && deadline.expired()) {
        throw TransportError(TransportError::Kind::kTimeout, peer_, "nothing came in time");
      }
      if (connection_->worker.progress()) {
        patience.encourage();
      } else {
        patience.pause();
      }
    }
    check_outcome();
  }

  void interrupt() noexcept override { interrupted_.store(true); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw TransportError(TransportError::Kind::kPeer, peer_, what);
  }

  void check_outcome() const {
    const bool longer = op_->status == UCS_ERR_MESSAGE_TRUNCATED;
    if (op_->status != UCS_OK && !longer) fail(ucs_status_string(op_->status));
    if (op_->sends) return;
    if (longer)
      fail(fmt::format("a message came that is longer than the {} bytes due", op_->bytes));
    if (op_->arrived_bytes != op_->bytes) {
      fail(fmt::format("a message of {} bytes came where one of {} was due", op_->arrived_bytes,
                       op_->bytes));
    }
    if (op_->ending != kWhole) fail("the sender withdrew the message");
  }

  const std::shared_ptr<Connection> connection_;
  Operation* const op_;
  const int peer_;
  std::atomic<bool> interrupted_{false};
};

class UcxTransport : public Transport {
 public:
  UcxTransport(const UcxTransportOptions& o, uint64_t salt, std::shared_ptr<Connection> connection)
      : rank_(o.rank),
        size_(o.size),
        salt_(salt),
        max_message_bytes_(o.max_message_bytes),
        connection_(std::move(connection)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int64_t max_message_bytes() const override { return max_message_bytes_; }

  std::unique_ptr<Transfer> send(int dst, uint64_t tag, const void* data, int64_t bytes) override {
    check_message(dst, bytes);
    return wrap(connection_->worker.send(dst, tag_from(rank_, tag), data, bytes), dst);
  }

  std::unique_ptr<Transfer> receive(int src, uint64_t tag, void* data, int64_t bytes) override {
    check_message(src, bytes);
    return wrap(connection_->worker.receive(tag_from(src, tag), data, bytes), src);
  }

 private:
  void check_message(int peer, int64_t bytes) const {
    internal_check(peer >= 0 && peer < size_ && peer != rank_, "a message goes to another rank");
    internal_check(bytes >= 1 && bytes <= max_message_bytes_, "a message has a legal size");
  }

  // UCX has one tag of 64 bits and tells nothing of the sender. Those of one sender stay apart; two
  // of two senders meet only where they differ by the difference of two hashes.
  uint64_t tag_from(int src, uint64_t tag) const {
    return internal::mix(internal::mix(salt_, static_cast<uint64_t>(src)), tag);
  }

  std::unique_ptr<Transfer> wrap(Operation* op, int peer) {
    return std::make_unique<UcxTransfer>(connection_, op, peer);
  }

  const int rank_;
  const int size_;
  const uint64_t salt_;
  const int64_t max_message_bytes_;
  const std::shared_ptr<Connection> connection_;
};

// 64 random bits that all ranks have: rank 0's, and where there is a secret what it makes of them.
uint64_t agree_on_salt(Store& store, const UcxTransportOptions& o) {
  const std::string key = o.key_prefix + "ucx/salt";
  if (o.rank == 0) store.set(key, Secret::nonce());
  const std::string random = store.get(key, o.deadline);
  uint64_t salt = 0;
  if (o.secret) {
    const Secret::Mac mac = o.secret->mac("ucx tags", o.token + "/" + random);
    std::memcpy(&salt, mac.data(), sizeof(salt));
  } else {
    std::memcpy(&salt, random.data(), std::min(random.size(), sizeof(salt)));
  }
  return salt;
}

}  // namespace

std::string ucx_version() { return ucp_get_version_string(); }

std::shared_ptr<Transport> make_ucx_transport(std::shared_ptr<Store> store,
                                              const UcxTransportOptions& options) {
  UcxTransportOptions o = options;
  o.deadline = options.deadline.resolved();
  WorkerOptions w;
  w.size = o.size;
  w.transports = o.transports;
  w.device = device_of_address(o.address);
  auto connection = std::make_shared<Connection>(std::move(store), w);
  const auto key = [&](int rank) { return fmt::format("{}ucx/{}", o.key_prefix, rank); };
  if (o.size > 1) connection->store->set(key(o.rank), connection->worker.address());
  for (int r = 0; r < o.size; ++r) {
    if (r != o.rank) connection->worker.connect(r, connection->store->get(key(r), o.deadline));
  }
  const uint64_t salt = o.size > 1 ? agree_on_salt(*connection->store, o) : 0;
  auto transport = std::make_shared<UcxTransport>(o, salt, connection);
  // Connections are made by the first messages. Nobody goes on before they are there on both sides:
  // a rank that then leaves UCX alone would keep others from closing theirs.
  internal::greet_all(*transport, "ucx", o.token, o.deadline);
  if (!connection->worker.settle(o.deadline)) {
    throw Error(fmt::format("ucx: rank {} has no answer from all others", o.rank));
  }
  internal::greet_all(*transport, "ucx", o.token, o.deadline);
  return transport;
}

}  // namespace dtensor::comm::ucx

#include "dtensor/comm/local/local_transport.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "dtensor/comm/hash.h"

namespace dtensor::comm::local {
namespace {

// Up to this size a message is buffered where its receiver is late.
constexpr int64_t kEagerBytes = 4096;

// How often a waiter lets others run before it sleeps: most messages come that soon, and waking up
// takes longer.
constexpr int kYields = 50;

enum class State : uint8_t {
  kPosted,     // waits for its other half
  kMoving,     // the other half's thread copies
  kDone,       // complete
  kWrongSize,  // met a message of another size
  kCancelled,  // destroyed before its other half came
};

// One half of a message. Its state leaves kPosted under the mutex of the mailbox. It has its own
// condition variable, with one waiter: where several threads of a rank share one, glibc before 2.41
// may lose a wake-up (sourceware bug 25847).
struct Half {
  Half(void* data, int64_t bytes) : data(data), bytes(bytes) {}

  void finish(State with) {
    const std::lock_guard lock(mutex);
    state.store(with, std::memory_order_release);
    changed.notify_one();
  }

  std::mutex mutex;
  std::condition_variable changed;
  void* data;
  const int64_t bytes;
  std::unique_ptr<std::byte[]> buffered;  // of a small send: its data; nobody waits for it
  std::atomic<State> state{State::kPosted};
  bool interrupted = false;  // guarded by mutex
};

struct Key {
  int src;
  uint64_t tag;
  friend bool operator==(const Key&, const Key&) = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    return internal::mix(k.tag, static_cast<uint64_t>(k.src));
  }
};

// What is posted for one receiver from one sender under one tag: only sends, or only receives.
struct Queue {
  std::deque<std::shared_ptr<Half>> sends;
  std::deque<std::shared_ptr<Half>> receives;
};

struct Mailbox {
  std::mutex mutex;
  std::unordered_map<Key, Queue, KeyHash> queues;  // guarded by mutex
};

struct Shared {
  Shared(int size, TransportOptions options)
      : options(options), mailboxes(static_cast<size_t>(size)) {}
  const TransportOptions options;
  std::vector<Mailbox> mailboxes;  // by receiver
};

// Copies from one half to the other and completes both. Both are in kMoving, so that neither is
// destroyed meanwhile.
void join(Half& send, Half& receive) {
  const bool fits = send.bytes == receive.bytes;
  if (fits) std::memcpy(receive.data, send.data, static_cast<size_t>(send.bytes));
  const State end = fits ? State::kDone : State::kWrongSize;
  send.finish(end);
  receive.finish(end);
}

class LocalTransfer : public Transfer {
 public:
  LocalTransfer(std::shared_ptr<Shared> shared, int peer, Mailbox& mailbox,
                std::shared_ptr<Half> half)
      : shared_(std::move(shared)), peer_(peer), mailbox_(mailbox), half_(std::move(half)) {}

  ~LocalTransfer() override {
    if (state() == State::kPosted) {
      const std::lock_guard lock(mailbox_.mutex);
      if (state() == State::kPosted) half_->state.store(State::kCancelled);
    }
    std::unique_lock lock(half_->mutex);
    half_->changed.wait(lock, [&] { return state() != State::kMoving; });  // a memcpy
  }

  bool ready() override { return state() >= State::kDone; }

  void wait(Deadline deadline) override {
    for (int k = 0; k < kYields && !ready(); ++k) std::this_thread::yield();
    if (!ready()) sleep(deadline);
    if (state() == State::kWrongSize) {
      throw TransportError(TransportError::Kind::kPeer, peer_,
                           "a message has another size than its receiver expects");
    }
  }

  void interrupt() noexcept override {
    const std::lock_guard lock(half_->mutex);
    half_->interrupted = true;
    half_->changed.notify_one();
  }

 private:
  State state() const { return half_->state.load(std::memory_order_acquire); }

  void sleep(Deadline deadline) {
    std::unique_lock lock(half_->mutex);
    const bool in_time = half_->changed.wait_for(lock, deadline.left(),
                                                 [&] { return ready() || half_->interrupted; });
    if (ready()) return;
    if (!in_time) {
      throw TransportError(TransportError::Kind::kTimeout, peer_, "no message by the deadline");
    }
    throw TransportError(TransportError::Kind::kInterrupted, peer_, "interrupted");
  }

  const std::shared_ptr<Shared> shared_;
  const int peer_;
  Mailbox& mailbox_;
  const std::shared_ptr<Half> half_;
};

class LocalTransport : public Transport {
 public:
  LocalTransport(std::shared_ptr<Shared> shared, int rank)
      : shared_(std::move(shared)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->mailboxes.size()); }
  int64_t max_message_bytes() const override { return shared_->options.max_message_bytes; }

  std::unique_ptr<Transfer> send(int dst, uint64_t tag, const void* data, int64_t bytes) override {
    Mailbox& mailbox = shared_->mailboxes[static_cast<size_t>(dst)];
    auto half = std::make_shared<Half>(const_cast<void*>(data), bytes);
    std::shared_ptr<Half> other;
    {
      const std::lock_guard lock(mailbox.mutex);
      Queue& queue = mailbox.queues[Key{rank_, tag}];
      other = take(queue.receives);
      if (!other && bytes <= kEagerBytes) {
        auto copy = std::make_shared<Half>(nullptr, bytes);
        copy->buffered = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
        copy->data = copy->buffered.get();
        std::memcpy(copy->data, data, static_cast<size_t>(bytes));
        half->state.store(State::kDone);
        queue.sends.push_back(std::move(copy));
      } else if (!other) {
        queue.sends.push_back(half);
      } else {
        half->state.store(State::kMoving);
      }
    }
    if (other) join(*half, *other);
    return std::make_unique<LocalTransfer>(shared_, dst, mailbox, std::move(half));
  }

  std::unique_ptr<Transfer> receive(int src, uint64_t tag, void* data, int64_t bytes) override {
    Mailbox& mailbox = shared_->mailboxes[static_cast<size_t>(rank_)];
    auto half = std::make_shared<Half>(data, bytes);
    std::shared_ptr<Half> other;
    {
      const std::lock_guard lock(mailbox.mutex);
      Queue& queue = mailbox.queues[Key{src, tag}];
      other = take(queue.sends);
      if (other) {
        half->state.store(State::kMoving);
      } else {
        queue.receives.push_back(half);
      }
    }
    if (other) join(*other, *half);
    return std::make_unique<LocalTransfer>(shared_, src, mailbox, std::move(half));
  }

 private:
  // The first half that was not cancelled, now in kMoving; null where there is none.
  static std::shared_ptr<Half> take(std::deque<std::shared_ptr<Half>>& halves) {
    while (!halves.empty()) {
      auto half = std::move(halves.front());
      halves.pop_front();
      if (half->state.load() == State::kCancelled) continue;
      half->state.store(State::kMoving);
      return half;
    }
    return nullptr;
  }

  const std::shared_ptr<Shared> shared_;
  const int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Transport>> make_transports(int size, TransportOptions options) {
  const auto shared = std::make_shared<Shared>(size, options);
  std::vector<std::shared_ptr<Transport>> transports;
  for (int r = 0; r < size; ++r) {
    transports.push_back(std::make_shared<LocalTransport>(shared, r));
  }
  return transports;
}

}  // namespace dtensor::comm::local

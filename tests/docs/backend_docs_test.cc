// The C++ of "A backend of your own" in docs/comm.md, and the table of capabilities there.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/comm/capabilities_table.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/process_world.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/transport.h"
#include "dtensor/tests/comm/gloo_world.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

// Messages as values of a store: slow, and enough for a world. A key is of one message, the n-th of
// its source, destination and tag.
class Receive : public comm::Transfer {
 public:
  Receive(std::shared_ptr<comm::Store> store, std::string key, int src, comm::Buffer to)
      : store_(std::move(store)), key_(std::move(key)), src_(src), to_(to) {}
  bool ready() override { return store_->has(key_); }
  void wait(Deadline deadline) override {
    using Kind = comm::TransportError::Kind;
    while (!store_->has(key_)) {
      if (interrupted_) throw comm::TransportError(Kind::kInterrupted, src_, "interrupted");
      if (deadline.expired()) throw comm::TransportError(Kind::kTimeout, src_, "nothing came");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const std::string message = store_->get(key_, deadline);
    if (std::ssize(message) != to_.count) {
      throw comm::TransportError(Kind::kPeer, src_, "a message of another size came");
    }
    std::memcpy(to_.data, message.data(), message.size());
  }
  void interrupt() noexcept override { interrupted_ = true; }

 private:
  const std::shared_ptr<comm::Store> store_;
  const std::string key_;
  const int src_;
  const comm::Buffer to_;
  std::atomic<bool> interrupted_ = false;
};

// The store has a copy: complete when it is posted.
class Sent : public comm::Transfer {
 public:
  bool ready() override { return true; }
  void wait(Deadline) override {}
  void interrupt() noexcept override {}
};

class StoreTransport : public comm::Transport {
 public:
  explicit StoreTransport(const comm::JoinedWorld& world) : world_(world) {}
  int rank() const override { return world_.me.rank; }
  int size() const override { return world_.me.size; }
  int64_t max_message_bytes() const override { return comm::kMaxValueBytes; }
  std::unique_ptr<comm::Transfer> send(int dst, uint64_t tag, const void* data,
                                       int64_t bytes) override {
    world_.store->set(next_key(rank(), dst, tag),
                      {static_cast<const char*>(data), static_cast<size_t>(bytes)});
    return std::make_unique<Sent>();
  }
  std::unique_ptr<comm::Transfer> receive(int src, uint64_t tag, void* data,
                                          int64_t bytes) override {
    return std::make_unique<Receive>(world_.store, next_key(src, rank(), tag), src,
                                     comm::Buffer{data, bytes, DType::kUInt8});
  }

 private:
  std::string next_key(int src, int dst, uint64_t tag) {
    const std::lock_guard lock(mutex_);
    const int64_t n = posted_[{src, dst, tag}]++;
    return fmt::format("{}message/{}/{}/{}/{}", world_.meeting.key_prefix, src, dst, tag, n);
  }

  const comm::JoinedWorld world_;
  std::mutex mutex_;
  std::map<std::tuple<int, int, uint64_t>, int64_t> posted_;
};

comm::ProcessBackend store_backend() {
  comm::ProcessBackend backend;
  backend.name = "store";
  backend.version = "1";  // what must be equal on all ranks
  backend.make_transport = [](const comm::JoinedWorld& world) {
    return std::make_shared<StoreTransport>(world);
  };
  return backend;
}

// From now on comm::create("store://...") and `--comm store` know it.
void register_store_backend() {
  comm::register_backend("store", [](const comm::Endpoint& e) {
    return comm::join_world(e, nullptr, store_backend());
  });
}

// Ranks as threads that meet at one store.
std::vector<std::unique_ptr<comm::Comm>> store_world(int size) {
  const std::shared_ptr<comm::Store> store = comm::make_memory_store();
  std::vector<std::unique_ptr<comm::Comm>> world(static_cast<size_t>(size));
  std::vector<std::exception_ptr> failures(world.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::Endpoint e;
        e.scheme = "store";
        e.rank = r;
        e.size = size;
        e.options["shm"] = "off";
        world[static_cast<size_t>(r)] = comm::join_world(e, store, store_backend());
      } catch (...) {
        failures[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return world;
}

TEST(BackendDocs, AWorldOverTheSampleComputes) {
  register_store_backend();
  EXPECT_NO_THROW(comm::check_backend("store"));
  for (const int size : {1, 2, 3}) {
    run_ranks(store_world(size), [size](comm::Comm& comm) {
      // In the frame of the call, in a message of its own, and beyond the largest message.
      for (const int64_t n : {3, 5000, 700'000}) {
        std::vector<float> x(static_cast<size_t>(n), static_cast<float>(comm.rank() + 1));
        const comm::Buffer buffer{x.data(), n, DType::kFloat32};
        comm.all_reduce(buffer, buffer, comm::ReduceOp::kSum).wait();
        EXPECT_EQ(x, std::vector<float>(x.size(), static_cast<float>(size * (size + 1) / 2)));
      }
      const std::vector<int> all = [size] {
        std::vector<int> ranks;
        for (int r = size - 1; r >= 0; --r) ranks.push_back(r);
        return ranks;
      }();
      const auto reversed = comm.group(all, "reversed");
      std::vector<int64_t> ranks(all.size());
      const int64_t mine = comm.rank();
      reversed
          ->all_gather_v(comm::ConstBuffer(&mine, 1, DType::kInt64),
                         comm::Buffer{ranks.data(), size, DType::kInt64},
                         comm::Segments::even(size, size))
          .wait();
      EXPECT_EQ(ranks, std::vector<int64_t>(all.begin(), all.end()));
      reversed->shutdown();
      comm.shutdown();
    });
  }
}

void expect_on_the_page(const comm::Capabilities& capabilities) {
  std::ifstream page("docs/comm.md");
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_NE(text.str().find("\n" + comm::capabilities_table(capabilities)), std::string::npos)
      << "put this into docs/comm.md, of " << capabilities.backend << ":\n"
      << comm::capabilities_table(capabilities);
}

TEST(CommPage, HoldsTheTableOfWhatBackendsSayOfThemselves) {
  run_ranks(1, [](comm::Comm& comm) { expect_on_the_page(comm.capabilities()); });
  run_ranks(gloo_world(2, {{"shm", "off"}}),
            [](comm::Comm& comm) { expect_on_the_page(comm.capabilities()); });
  run_ranks(gloo_world(2, {}), [](comm::Comm& comm) { expect_on_the_page(comm.capabilities()); });
  run_ranks(store_world(2), [](comm::Comm& comm) { expect_on_the_page(comm.capabilities()); });
}

}  // namespace
}  // namespace dtensor::testing

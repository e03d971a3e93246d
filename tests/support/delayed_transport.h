// A Transport whose messages arrive late, each by a time of its own: what a test of overlap puts in
// front of a rank's. Order and contents are those of the transport behind it.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "dtensor/comm/transport.h"

namespace dtensor::testing {

class DelayedTransport : public comm::Transport {
 public:
  DelayedTransport(std::shared_ptr<comm::Transport> inner, uint64_t seed,
                   std::chrono::microseconds most)
      : inner_(std::move(inner)),
        random_(seed + static_cast<uint64_t>(inner_->rank())),
        most_(most) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int64_t max_message_bytes() const override { return inner_->max_message_bytes(); }
  std::unique_ptr<comm::Transfer> send(int dst, uint64_t tag, const void* data,
                                       int64_t bytes) override {
    return inner_->send(dst, tag, data, bytes);
  }
  std::unique_ptr<comm::Transfer> receive(int src, uint64_t tag, void* data,
                                          int64_t bytes) override {
    return std::make_unique<Late>(inner_->receive(src, tag, data, bytes),
                                  std::chrono::steady_clock::now() + next_delay());
  }

 private:
  class Late : public comm::Transfer {
   public:
    Late(std::unique_ptr<comm::Transfer> inner, std::chrono::steady_clock::time_point due)
        : inner_(std::move(inner)), due_(due) {}
    bool ready() override { return std::chrono::steady_clock::now() >= due_ && inner_->ready(); }
    void wait(Deadline deadline) override {
      std::this_thread::sleep_until(due_);
      inner_->wait(deadline);
    }
    void interrupt() noexcept override { inner_->interrupt(); }

   private:
    std::unique_ptr<comm::Transfer> inner_;
    std::chrono::steady_clock::time_point due_;
  };

  std::chrono::microseconds next_delay() {
    const std::lock_guard lock(mutex_);
    return std::chrono::microseconds(
        std::uniform_int_distribution<int64_t>(0, most_.count())(random_));
  }

  std::shared_ptr<comm::Transport> inner_;
  std::mutex mutex_;
  std::mt19937_64 random_;  // guarded by mutex_
  std::chrono::microseconds most_;
};

}  // namespace dtensor::testing

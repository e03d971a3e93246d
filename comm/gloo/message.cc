#include "dtensor/comm/gloo/message.h"

#include <new>

namespace dtensor::comm::gloo {

BlockPool::~BlockPool() {
  for (std::byte* block : free_) ::operator delete(block);
}

std::byte* BlockPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::byte* block = free_.back();
      free_.pop_back();
      return block;
    }
  }
  return static_cast<std::byte*>(::operator new(block_bytes_));
}

void BlockPool::give_back(std::byte* block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (free_.size() * block_bytes_ < kKeptBytes) {
      try {
        free_.push_back(block);
        return;
      } catch (const std::bad_alloc&) {
        // no room to remember it: freed below
      }
    }
  }
  ::operator delete(block);
}

void Message::post(int peer, uint64_t slot, size_t bytes) {
  if (direction_ == Direction::kSend) {
    buffer_->send(peer, slot, 0, bytes);
  } else {
    buffer_->recv(peer, slot, 0, bytes);
  }
}

bool Message::wait(std::chrono::milliseconds timeout) {
  return direction_ == Direction::kSend ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout);
}

void Message::interrupt() noexcept {
  if (direction_ == Direction::kSend) {
    buffer_->abortWaitSend();
  } else {
    buffer_->abortWaitRecv();
  }
}

}  // namespace dtensor::comm::gloo

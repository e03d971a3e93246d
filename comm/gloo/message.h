// Message: one send or receive of Gloo, in memory of its own. Gloo cannot withdraw what was posted:
// a posted receive may still be written to, and a posted send still be read, as long as the
// connection lives. So Gloo never sees the caller's memory; it sees blocks that outlive the call.

#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dtensor::comm::gloo {

// Equal blocks of memory for messages. Thread-safe.
class BlockPool {
 public:
  explicit BlockPool(size_t block_bytes) : block_bytes_(block_bytes) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  size_t block_bytes() const { return block_bytes_; }
  std::byte* take();
  void give_back(std::byte* block) noexcept;

 private:
  static constexpr size_t kKeptBytes = size_t{128} << 20;
  const size_t block_bytes_;
  std::mutex mutex_;
  std::vector<std::byte*> free_;  // guarded by mutex_
};

// A block taken from a pool for the lifetime of this object.
class Block {
 public:
  explicit Block(std::shared_ptr<BlockPool> pool)
      : pool_(std::move(pool)), memory_(pool_->take()) {}
  ~Block() { pool_->give_back(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* memory() const { return memory_; }
  size_t bytes() const { return pool_->block_bytes(); }

 private:
  const std::shared_ptr<BlockPool> pool_;
  std::byte* const memory_;
};

enum class Direction : uint8_t { kSend, kReceive };

class Message {
 public:
  Message(::gloo::transport::Context& context, std::shared_ptr<BlockPool> pool, Direction direction)
      : block_(std::move(pool)),
        buffer_(context.createUnboundBuffer(block_.memory(), block_.bytes())),
        direction_(direction) {}

  std::byte* memory() const { return block_.memory(); }
  // Posts `bytes` of the block, or room for them. Throws Gloo's exceptions.
  void post(int peer, uint64_t slot, size_t bytes);
  // True when complete, false where interrupt() came first. Throws Gloo's exceptions; one for a
  // wait of `timeout` means that Gloo has closed every connection of this process.
  bool wait(std::chrono::milliseconds timeout);
  // From any thread. Ends the wait under way or else the next one.
  void interrupt() noexcept;

 private:
  const Block block_;
  // After the block, so that it goes first: its destructor waits until Gloo has let go of it.
  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  const Direction direction_;
};

}  // namespace dtensor::comm::gloo

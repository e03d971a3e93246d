// The values that collectives speak of: buffers, reductions, options.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "dtensor/base/deadline.h"
#include "dtensor/base/device.h"
#include "dtensor/base/dtype.h"

namespace dtensor::comm {

enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProd };

enum class OpKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kExchange,
  kBarrier,
  kShutdown,
};

std::string_view name_of(ReduceOp op);  // "sum"
std::string_view name_of(OpKind op);    // "all_reduce"

// Memory to write: `count` elements, never bytes. A Work holds `owner`; without one the caller
// keeps the memory until wait() returned.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  std::shared_ptr<void> owner = {};

  int64_t size_bytes() const { return count * size_of(dtype); }
};

struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  std::shared_ptr<const void> owner = {};

  ConstBuffer() = default;
  ConstBuffer(const void* data, int64_t count, DType dtype, Device device = {},
              std::shared_ptr<const void> owner = {})
      : data(data), count(count), dtype(dtype), device(device), owner(std::move(owner)) {}
  ConstBuffer(const Buffer& b)  // NOLINT(google-explicit-constructor)
      : data(b.data), count(b.count), dtype(b.dtype), device(b.device), owner(b.owner) {}
  int64_t size_bytes() const { return count * size_of(dtype); }
};

// One leg of an exchange: `buffer` goes to (kSend) or is filled from (kReceive) rank `peer`.
// Between two ranks the k-th send meets the k-th receive; both must have one count and dtype.
struct P2P {
  enum class Direction : uint8_t { kSend, kReceive };
  Direction direction = Direction::kSend;
  int peer = 0;
  Buffer buffer;  // a sender's buffer is only read
};

struct CallOptions {
  Deadline deadline = {};  // the Context's default where not set
  Stream stream = {};
  std::string_view label = {};  // shown in errors, equal on all ranks; copied
};

// What a call is, for errors, traces and the comparison of ranks.
struct OpInfo {
  OpKind op = OpKind::kBarrier;
  int64_t sequence = 0;  // the n-th call of its Comm
  int64_t bytes = 0;     // of this rank's buffers
  std::string label;
};

// What a Comm has done so far, on this rank.
struct Counters {
  int64_t calls = 0;
  int64_t payload_bytes_sent = 0;  // data
  int64_t wire_bytes_sent = 0;     // data and headers, as handed to the transport
  // Read where they lay in memory of other processes of this host, without a copy on the way.
  int64_t bytes_read_in_place = 0;
};

}  // namespace dtensor::comm

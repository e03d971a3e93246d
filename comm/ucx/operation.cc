#include "dtensor/comm/ucx/operation.h"

#include <algorithm>
#include <cstring>

namespace dtensor::comm::ucx {
namespace {

void* begin_send(void*, const void* buffer, size_t) { return const_cast<void*>(buffer); }
void* begin_receive(void*, void* buffer, size_t) { return buffer; }
size_t message_bytes(const Operation& op) { return static_cast<size_t>(op.bytes) + 1; }
size_t size_of_message(void* state) { return message_bytes(*static_cast<Operation*>(state)); }
void finish(void*) {}

// The part of a piece [offset, offset + length) that is data; the rest is the ending.
size_t data_part(const Operation& op, size_t offset, size_t length) {
  const auto bytes = static_cast<size_t>(op.bytes);
  return offset >= bytes ? 0 : std::min(length, bytes - offset);
}

size_t pack(void* state, size_t offset, void* to, size_t room) {
  const auto& op = *static_cast<Operation*>(state);
  const size_t length = std::min(room, message_bytes(op) - offset);
  const size_t data = data_part(op, offset, length);
  if (op.abandoned) {
    std::memset(to, 0, data);
  } else if (data > 0) {
    std::memcpy(to, op.memory + offset, data);
  }
  if (data < length) static_cast<std::byte*>(to)[data] = op.abandoned ? kWithdrawn : kWhole;
  return length;
}

ucs_status_t unpack(void* state, size_t offset, const void* from, size_t length) {
  auto& op = *static_cast<Operation*>(state);
  const size_t data = data_part(op, offset, length);
  if (!op.abandoned && data > 0) std::memcpy(op.memory + offset, from, data);
  if (data < length) op.ending = static_cast<const std::byte*>(from)[data];
  return UCS_OK;
}

}  // namespace

ucp_generic_dt_ops_t operation_functions() {
  ucp_generic_dt_ops_t functions = {};
  functions.start_pack = begin_send;
  functions.start_unpack = begin_receive;
  functions.packed_size = size_of_message;
  functions.pack = pack;
  functions.unpack = unpack;
  functions.finish = finish;
  return functions;
}

Operation* Operations::take(void* memory, int64_t bytes, bool sends) {
  if (free_.empty()) {
    free_.push_back(all_.emplace_back(std::make_unique<Operation>()).get());
    free_.reserve(all_.size());  // so that giving one back needs no memory
  }
  Operation* op = free_.back();
  free_.pop_back();
  op->owner = this;
  op->memory = static_cast<std::byte*>(memory);
  op->bytes = bytes;
  op->sends = sends;
  op->abandoned = false;
  op->request = nullptr;
  op->done.store(false, std::memory_order_relaxed);
  op->status = UCS_OK;
  op->arrived_bytes = 0;
  op->ending = std::byte{0};
  if (sends) ++sends_pending_;
  return op;
}

void Operations::complete(Operation& op, ucs_status_t status) {
  if (op.sends) --sends_pending_;
  op.request = nullptr;
  op.status = status;
  if (op.abandoned) {
    free_.push_back(&op);
  } else {
    op.done.store(true, std::memory_order_release);
  }
}

void Operations::release(Operation& op) {
  if (op.done.load(std::memory_order_relaxed)) {
    free_.push_back(&op);
  } else {
    op.abandoned = true;
  }
}

}  // namespace dtensor::comm::ucx

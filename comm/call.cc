#include "dtensor/comm/call.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/comm/hash.h"

namespace dtensor::comm {
namespace {

using internal::mix;

bool reduces(OpKind op) {
  return op == OpKind::kAllReduce || op == OpKind::kReduce || op == OpKind::kReduceScatter;
}

bool has_root(OpKind op) {
  return op == OpKind::kReduce || op == OpKind::kBroadcast || op == OpKind::kGather ||
         op == OpKind::kScatter;
}

// The dtype of item i, on a rank that may have only one side of it.
DType dtype_of(const Call& call, size_t i) {
  const bool by_out = call.op == OpKind::kScatter || call.op == OpKind::kBroadcast;
  return by_out ? call.out[i].dtype : call.in[i].dtype;
}

}  // namespace

uint64_t CallKey::hash() const {
  uint64_t h = mix(op, reduce);
  h = mix(h, dtype);
  h = mix(h, static_cast<uint64_t>(root));
  h = mix(h, counts);
  return mix(h, label);
}

CallKey key_of(const Call& call) {
  CallKey key;
  key.op = static_cast<uint8_t>(call.op);
  if (reduces(call.op)) key.reduce = static_cast<uint8_t>(call.reduce);
  if (has_root(call.op)) key.root = call.root;
  key.label = mix(0, call.label);
  const bool by_out = call.op == OpKind::kBroadcast;
  const size_t items = by_out ? call.out.size() : call.in.size();
  if (items > 0) key.dtype = static_cast<uint8_t>(dtype_of(call, 0));
  key.items = static_cast<uint8_t>(std::min<size_t>(items, 255));
  if (call.op == OpKind::kAllToAll) {
    key.count = call.in[0].count;  // counts are compared by pairs of ranks
  } else if (call.op == OpKind::kExchange) {
    for (const P2P& leg : call.legs) key.count += leg.buffer.count;
  } else if (!call.segments.empty()) {
    key.counts = items;
    for (size_t i = 0; i < items; ++i) {
      key.count += call.segments[i].total();
      key.counts = mix(key.counts, call.segments[i].hash());
      key.counts = mix(key.counts, static_cast<uint64_t>(dtype_of(call, i)));
    }
  } else if (items > 0) {
    key.count = by_out ? call.out[0].count : call.in[0].count;
    key.counts = static_cast<uint64_t>(key.count);
  }
  // Ranks whose memory is on different devices would wait for each other in different ways.
  const Device device = by_out && items > 0           ? call.out[0].device
                        : items == 0                  ? Device{}
                        : call.op == OpKind::kScatter ? call.out[0].device
                                                      : call.in[0].device;
  if (device.type != DeviceType::kCpu) {
    key.counts = mix(key.counts, static_cast<uint64_t>(device.type));
  }
  return key;
}

std::string describe(const CallKey& key, std::string_view label) {
  const auto op = static_cast<OpKind>(key.op);
  std::string text(name_of(op));
  if (op == OpKind::kExchange) {
    text += fmt::format(" of {} elements here", key.count);
  } else if (op != OpKind::kBarrier && op != OpKind::kShutdown) {
    if (reduces(op)) text += fmt::format(" {}", name_of(static_cast<ReduceOp>(key.reduce)));
    text += fmt::format(" {}[{}]", name_of(static_cast<DType>(key.dtype)), key.count);
    if (key.items > 1) text += fmt::format(" in {} items", key.items);
  }
  if (has_root(op)) text += fmt::format(" with root {}", key.root);
  if (!label.empty()) text += fmt::format(" \"{}\"", label);
  return text;
}

}  // namespace dtensor::comm

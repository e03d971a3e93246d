#include "dtensor/comm/algorithms/device_call.h"

#include <algorithm>

#include "dtensor/comm/algorithms/parcels.h"

namespace dtensor::comm {
namespace {

bool elsewhere(const ConstBuffer& b) { return b.device.type != DeviceType::kCpu; }

// Beside the counts of a pair, that they are of a device: a rank whose memory is on the CPU would
// wait in another way.
void add(Parcel& parcel, const Piece& p) {
  if (parcel.empty()) parcel.push_back({nullptr, 0, DType::kBool});
  parcel.push_back(p);
}

}  // namespace

bool on_device(const Call& call) {
  const auto leg_elsewhere = [](const P2P& leg) { return elsewhere(leg.buffer); };
  return std::ranges::any_of(call.in, elsewhere) || std::ranges::any_of(call.out, elsewhere) ||
         std::ranges::any_of(call.legs, leg_elsewhere);
}

void agree_on_device_call(Session& s, const Call& call) {
  Parcels p(s.size());
  for (const P2P& leg : call.legs) {
    add(leg.direction == P2P::Direction::kSend ? p.to(leg.peer) : p.from(leg.peer),
        piece(leg.buffer));
  }
  for (int r = 0; call.op == OpKind::kAllToAll && r < s.size(); ++r) {
    add(p.to(r), part(call.in[0], call.segments[0], r));
    add(p.from(r), part(call.out[0], call.segments[1], r));
  }
  s.set_payload(device_payload(call, s.rank(), s.size()));
  s.agree(p.send, p.receive);
}

int64_t device_payload(const Call& call, int rank, int size) {
  const int64_t others = size - 1;
  int64_t bytes = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int64_t in = call.in[i].size_bytes();
    const int64_t each = size_of(call.in[i].dtype);
    switch (call.op) {
      case OpKind::kAllReduce: {
        const Segments even = Segments::even(call.in[i].count, size);
        bytes += others == 0 ? 0 : in + (size - 2) * even.count(rank) * each;
        break;
      }
      case OpKind::kReduce:
      case OpKind::kGather:
        bytes += rank == call.root ? 0 : in;
        break;
      case OpKind::kAllGather:
        bytes += others * in;
        break;
      case OpKind::kReduceScatter:
        bytes += in - call.segments[i].count(rank) * each;
        break;
      case OpKind::kAllToAll:
        bytes += in - call.segments[0].count(rank) * each;
        break;
      case OpKind::kScatter:
        bytes += rank == call.root ? in - call.segments[i].count(rank) * each : 0;
        break;
      default:
        break;
    }
  }
  if (call.op == OpKind::kBroadcast && rank == call.root) {
    bytes += others * call.out[0].size_bytes();
  }
  for (const P2P& leg : call.legs) {
    const bool leaves = leg.direction == P2P::Direction::kSend && leg.peer != rank;
    bytes += leaves ? leg.buffer.size_bytes() : 0;
  }
  return bytes;
}

std::string from_rank_0(Session& s, std::string mine) {
  s.set_payload(0);  // not what the operation has to move
  Parcels p(s.size());
  const Piece whole{mine.data(), static_cast<int64_t>(mine.size()), DType::kUInt8};
  if (s.rank() == 0) {
    for (int r = 1; r < s.size(); ++r) p.to(r).push_back(whole);
  } else {
    p.from(0).push_back(whole);
  }
  s.move(p.send, p.receive);
  return mine;
}

}  // namespace dtensor::comm

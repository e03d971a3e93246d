#include "dtensor/comm/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"

namespace dtensor::comm::internal {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& what) {
  throw ArgumentError(fmt::format("{}{}: {}", name_of(call.op),
                                  call.label.empty() ? "" : fmt::format(" \"{}\"", call.label),
                                  what));
}

void check_buffer(const Call& call, const ConstBuffer& b, std::string_view name) {
  if (b.count < 0) refuse(call, fmt::format("`{}` has {} elements", name, b.count));
  if (b.count > 0 && b.data == nullptr) {
    refuse(call, fmt::format("`{}` has {} elements and no memory", name, b.count));
  }
  checked_mul(b.count, size_of(b.dtype));
}

void check_count(const Call& call, const ConstBuffer& b, int64_t want, std::string_view name) {
  if (b.count != want) {
    refuse(call, fmt::format("`{}` has {} elements, {} are needed", name, b.count, want));
  }
}

void check_same_dtype(const Call& call, const ConstBuffer& in, const ConstBuffer& out) {
  if (in.dtype != out.dtype) {
    refuse(call, fmt::format("`in` is {} and `out` is {}; give both one dtype", name_of(in.dtype),
                             name_of(out.dtype)));
  }
}

// Half-open address ranges; a written one may overlap no other.
struct Interval {
  uintptr_t begin;
  uintptr_t end;
  bool written;
};

void add(std::vector<Interval>& to, const ConstBuffer& b, bool written) {
  if (b.count == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(b.data);
  to.push_back({begin, begin + static_cast<uintptr_t>(b.size_bytes()), written});
}

void check_overlap(const Call& call, std::vector<Interval>& intervals) {
  std::ranges::sort(intervals, {}, &Interval::begin);
  // The furthest ends so far, of the written ranges and of all: a range that begins before one of
  // them overlaps it.
  uintptr_t written_end = 0;
  uintptr_t any_end = 0;
  for (const Interval& i : intervals) {
    if (i.begin < written_end || (i.written && i.begin < any_end)) {
      refuse(call,
             "buffers overlap in memory; give separate ones, or exactly the in-place form of "
             "dtensor/comm/comm.h");
    }
    any_end = std::max(any_end, i.end);
    if (i.written) written_end = std::max(written_end, i.end);
  }
}

ConstBuffer part(const ConstBuffer& b, int64_t offset, int64_t count) {
  const auto* data = static_cast<const char*>(b.data);
  return {data == nullptr ? nullptr : data + offset * size_of(b.dtype), count, b.dtype};
}

// Adds `whole` but for its part [offset, offset + count), which is the other buffer of a call that
// is in place.
void add_around(std::vector<Interval>& to, const ConstBuffer& whole, int64_t offset, int64_t count,
                bool written) {
  add(to, part(whole, 0, offset), written);
  add(to, part(whole, offset + count, whole.count - offset - count), written);
}

void check_segments(const Call& call, const Segments& s, int size) {
  if (s.size() != size) {
    refuse(call, fmt::format("segments for {} ranks on a Comm of {}", s.size(), size));
  }
}

bool same_place(const ConstBuffer& a, const ConstBuffer& b) {
  return a.count > 0 && a.data == b.data && a.count == b.count;
}

struct Part {  // who gives and gets what
  bool sends;
  bool receives;
};

// all_reduce, reduce.
void check_reduction(const Call& call, bool receives) {
  const ConstBuffer& in = call.in[0];
  const Buffer& out = call.out[0];
  check_buffer(call, in, "in");
  if (!receives) return;
  check_buffer(call, out, "out");
  check_same_dtype(call, in, out);
  check_count(call, out, in.count, "out");
  if (same_place(in, out)) return;
  std::vector<Interval> intervals;
  add(intervals, in, false);
  add(intervals, out, true);
  check_overlap(call, intervals);
}

// all_gather_v, gather_v: `out` holds the segments; reduce_scatter_v, scatter_v: `in` does.
void check_segmented(const Call& call, int rank, int size, Part role) {
  const bool gathers = call.op == OpKind::kAllGather || call.op == OpKind::kGather;
  if (call.in.size() != call.out.size() || call.in.size() != call.segments.size()) {
    refuse(call, fmt::format("lists of {} in, {} out and {} segments; give one of each per item",
                             call.in.size(), call.out.size(), call.segments.size()));
  }
  std::vector<Interval> intervals;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Segments& s = call.segments[i];
    check_segments(call, s, size);
    const ConstBuffer& in = call.in[i];
    const ConstBuffer out = call.out[i];
    if (role.sends) {
      check_buffer(call, in, "in");
      check_count(call, in, gathers ? s.count(rank) : s.total(), "in");
    }
    if (role.receives) {
      check_buffer(call, out, "out");
      check_count(call, out, gathers ? s.total() : s.count(rank), "out");
    }
    if (!role.receives || !role.sends) {
      add(intervals, role.sends ? in : out, role.receives);
      continue;
    }
    check_same_dtype(call, in, out);
    const ConstBuffer& whole = gathers ? out : in;
    const ConstBuffer& own = gathers ? in : out;
    if (same_place(own, part(whole, s.offset(rank), s.count(rank)))) {
      add_around(intervals, whole, s.offset(rank), s.count(rank), gathers);
      add(intervals, own, true);
    } else {
      add(intervals, in, false);
      add(intervals, out, true);
    }
  }
  check_overlap(call, intervals);
}

void check_all_to_all(const Call& call, int size) {
  const Segments& to = call.segments[0];
  const Segments& from = call.segments[1];
  check_segments(call, to, size);
  check_segments(call, from, size);
  check_buffer(call, call.in[0], "in");
  check_buffer(call, call.out[0], "out");
  check_same_dtype(call, call.in[0], call.out[0]);
  check_count(call, call.in[0], to.total(), "in");
  check_count(call, call.out[0], from.total(), "out");
  std::vector<Interval> intervals;
  add(intervals, call.in[0], false);
  add(intervals, call.out[0], true);
  check_overlap(call, intervals);
}

// Legs of a rank to itself: the k-th send meets the k-th receive.
void check_legs(const Call& call, int rank, int size) {
  std::vector<Interval> intervals;
  std::vector<const Buffer*> own_sends;
  std::vector<const Buffer*> own_receives;
  for (const P2P& leg : call.legs) {
    if (leg.peer < 0 || leg.peer >= size) {
      refuse(call, fmt::format("peer {} is outside 0..{}", leg.peer, size - 1));
    }
    const bool receives = leg.direction == P2P::Direction::kReceive;
    check_buffer(call, leg.buffer, receives ? "receive" : "send");
    add(intervals, leg.buffer, receives);
    if (leg.peer == rank) (receives ? own_receives : own_sends).push_back(&leg.buffer);
  }
  const auto same = [](const Buffer* a, const Buffer* b) {
    return a->count == b->count && a->dtype == b->dtype;
  };
  if (!std::ranges::equal(own_sends, own_receives, same)) {
    refuse(call, fmt::format("the legs of rank {} to itself do not pair up", rank));
  }
  check_overlap(call, intervals);
}

void check_support(const Call& call, const Capabilities& able) {
  std::optional<Device> device;
  const auto check = [&](const ConstBuffer& b, std::string_view name) {
    const bool cpu = b.device.type == DeviceType::kCpu;
    if (able.support(OpKind::kBroadcast, b.dtype, call.reduce, b.device.type) == Support::kNone) {
      refuse(call, cpu ? fmt::format("`{}` is on the CPU, where `{}` moves nothing; use hybrid://",
                                     name, able.backend)
                       : fmt::format("`{}` is not on the CPU; copy it there first", name));
    }
    if (able.support(call.op, b.dtype, call.reduce, b.device.type) == Support::kNone) {
      refuse(call, fmt::format("{} of {} has no meaning or is not supported by `{}`; cast first",
                               name_of(call.reduce), name_of(b.dtype), able.backend));
    }
    if (device && *device != b.device) {
      refuse(call, "buffers are on different devices; a call has one");
    }
    device = b.device;
  };
  for (const ConstBuffer& b : call.in) check(b, "in");
  for (const Buffer& b : call.out) check(b, "out");
  for (const P2P& leg : call.legs) check(leg.buffer, "leg");
}

}  // namespace

void drop_unused(Call& call, int rank) {
  if (rank == call.root || call.in.size() != call.out.size()) return;
  if (call.op == OpKind::kReduce || call.op == OpKind::kGather) {
    for (size_t i = 0; i < call.out.size(); ++i) {
      call.out[i] = {nullptr, 0, call.in[i].dtype, call.in[i].device};
    }
  } else if (call.op == OpKind::kScatter) {
    for (size_t i = 0; i < call.in.size(); ++i) {
      call.in[i] = Buffer{nullptr, 0, call.out[i].dtype, call.out[i].device};
    }
  }
}

void check_call(const Call& call, const Backend& backend) {
  const int rank = backend.rank();
  const int size = backend.size();
  if (call.root < 0 || call.root >= size) {
    refuse(call, fmt::format("root {} is outside 0..{}", call.root, size - 1));
  }
  check_support(call, backend.capabilities());
  switch (call.op) {
    case OpKind::kAllReduce:
      return check_reduction(call, true);
    case OpKind::kReduce:
      return check_reduction(call, rank == call.root);
    case OpKind::kBroadcast:
      return check_buffer(call, call.out[0], "inout");
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
      return check_segmented(call, rank, size, {.sends = true, .receives = true});
    case OpKind::kGather:
      return check_segmented(call, rank, size, {.sends = true, .receives = rank == call.root});
    case OpKind::kScatter:
      return check_segmented(call, rank, size, {.sends = rank == call.root, .receives = true});
    case OpKind::kAllToAll:
      return check_all_to_all(call, size);
    case OpKind::kExchange:
      return check_legs(call, rank, size);
    case OpKind::kBarrier:
    case OpKind::kShutdown:
      return;
  }
}

}  // namespace dtensor::comm::internal

#include "dtensor/comm/nccl/enqueue.h"

#include <cstddef>
#include <vector>

#include "dtensor/comm/nccl/status.h"

namespace dtensor::comm::nccl {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt8:
      return ncclInt8;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
    case DType::kBool:  // 0 or 1
      return ncclUint8;
  }
  throw InternalError("nccl: a dtype without a name");
}

ncclRedOp_t operation_of(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAvg:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProd:
      return dtype == DType::kBool ? ncclMin : ncclProd;
  }
  throw InternalError("nccl: a reduction without a name");
}

// A part of a buffer.
struct Part {
  void* data;
  size_t count;
  DType dtype;
  ncclDataType_t type() const { return type_of(dtype); }
};

Part part(const ConstBuffer& b, int64_t offset, int64_t count) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(b.data));
  return {data == nullptr ? nullptr : data + offset * size_of(b.dtype), static_cast<size_t>(count),
          b.dtype};
}
Part whole(const ConstBuffer& b) { return part(b, 0, b.count); }
Part part(const ConstBuffer& b, const Segments& s, int rank) {
  return part(b, s.offset(rank), s.count(rank));
}

bool all_equal(const Segments& s) {
  for (int r = 1; r < s.size(); ++r) {
    if (s.count(r) != s.count(0)) return false;
  }
  return true;
}

class Enqueuer {
 public:
  Enqueuer(const Call& call, const Place& at) : call_(call), at_(at) {}

  void run() {
    copy_own();
    check(ncclGroupStart(), "group");
    try {
      add_all();
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    check(ncclGroupEnd(), "group");
  }

 private:
  ncclRedOp_t operation(const Part& p) const { return operation_of(call_.reduce, p.dtype); }

  void send(const Part& p, int peer) const {
    if (p.count == 0 || peer == at_.rank) return;
    check(ncclSend(p.data, p.count, p.type(), peer, at_.comm, at_.stream), "send");
  }
  void receive(const Part& p, int peer) const {
    if (p.count == 0 || peer == at_.rank) return;
    check(ncclRecv(p.data, p.count, p.type(), peer, at_.comm, at_.stream), "receive");
  }
  void broadcast(const Part& from, const Part& to, int root) const {
    if (to.count == 0) return;
    const void* source = at_.rank == root ? from.data : to.data;
    check(ncclBroadcast(source, to.data, to.count, to.type(), root, at_.comm, at_.stream),
          "broadcast");
  }
  void reduce(const Part& from, const Part& to, int root) const {
    if (from.count == 0) return;
    void* target = at_.rank == root ? to.data : from.data;  // NCCL does not look at it elsewhere
    check(ncclReduce(from.data, target, from.count, from.type(), operation(from), root, at_.comm,
                     at_.stream),
          "reduce");
  }

  void copy(const Part& from, const Part& to) const {
    if (from.count == 0 || from.data == to.data) return;
    const size_t bytes = from.count * static_cast<size_t>(size_of(from.dtype));
    check(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, at_.stream), "copy");
  }

  // What this rank sends itself by sends and receives.
  void copy_own() const {
    const int me = at_.rank;
    const bool root = call_.root == me;
    if (call_.op == OpKind::kAllToAll) {
      copy(part(call_.in[0], call_.segments[0], me), part(call_.out[0], call_.segments[1], me));
    } else if (call_.op == OpKind::kGather && root) {
      for_items(
          [&](size_t i) { copy(whole(call_.in[i]), part(call_.out[i], call_.segments[i], me)); });
    } else if (call_.op == OpKind::kScatter && root) {
      for_items(
          [&](size_t i) { copy(part(call_.in[i], call_.segments[i], me), whole(call_.out[i])); });
    } else if (call_.op == OpKind::kExchange) {
      std::vector<Part> sends;
      std::vector<Part> receives;
      for (const P2P& leg : call_.legs) {
        if (leg.peer != me) continue;
        auto& side = leg.direction == P2P::Direction::kSend ? sends : receives;
        side.push_back(whole(leg.buffer));
      }
      for (size_t k = 0; k < sends.size(); ++k) copy(sends[k], receives[k]);
    }
  }

  template <class F>
  void for_items(F&& f) const {
    for (size_t i = 0; i < call_.in.size(); ++i) f(i);
  }

  void all_gather(size_t i) const {
    const Segments& s = call_.segments[i];
    const Part mine = whole(call_.in[i]);
    if (s.total() == 0) return;
    if (all_equal(s)) {
      check(ncclAllGather(mine.data, whole(call_.out[i]).data, mine.count, mine.type(), at_.comm,
                          at_.stream),
            "all-gather");
      return;
    }
    for (int r = 0; r < at_.size; ++r) broadcast(mine, part(call_.out[i], s, r), r);
  }

  void reduce_scatter(size_t i) const {
    const Segments& s = call_.segments[i];
    const Part mine = whole(call_.out[i]);
    if (s.total() == 0) return;
    if (all_equal(s)) {
      check(ncclReduceScatter(whole(call_.in[i]).data, mine.data, mine.count, mine.type(),
                              operation(mine), at_.comm, at_.stream),
            "reduce-scatter");
      return;
    }
    for (int r = 0; r < at_.size; ++r) reduce(part(call_.in[i], s, r), mine, r);
  }

  void all_reduce() const {
    const Part in = whole(call_.in[0]);
    if (in.count == 0) return;
    check(ncclAllReduce(in.data, whole(call_.out[0]).data, in.count, in.type(), operation(in),
                        at_.comm, at_.stream),
          "all-reduce");
  }

  void gather(size_t i) const {
    send(whole(call_.in[i]), call_.root);
    for (int r = 0; call_.root == at_.rank && r < at_.size; ++r) {
      receive(part(call_.out[i], call_.segments[i], r), r);
    }
  }

  void scatter(size_t i) const {
    receive(whole(call_.out[i]), call_.root);
    for (int r = 0; call_.root == at_.rank && r < at_.size; ++r) {
      send(part(call_.in[i], call_.segments[i], r), r);
    }
  }

  void all_to_all() const {
    for (int r = 0; r < at_.size; ++r) {
      send(part(call_.in[0], call_.segments[0], r), r);
      receive(part(call_.out[0], call_.segments[1], r), r);
    }
  }

  void add_all() const {
    switch (call_.op) {
      case OpKind::kAllReduce:
        return all_reduce();
      case OpKind::kReduce:
        return reduce(whole(call_.in[0]),
                      at_.rank == call_.root ? whole(call_.out[0]) : whole(call_.in[0]),
                      call_.root);
      case OpKind::kBroadcast:
        return broadcast(whole(call_.out[0]), whole(call_.out[0]), call_.root);
      case OpKind::kAllGather:
        return for_items([&](size_t i) { all_gather(i); });
      case OpKind::kReduceScatter:
        return for_items([&](size_t i) { reduce_scatter(i); });
      case OpKind::kGather:
        return for_items([&](size_t i) { gather(i); });
      case OpKind::kScatter:
        return for_items([&](size_t i) { scatter(i); });
      case OpKind::kAllToAll:
        return all_to_all();
      case OpKind::kExchange:
        for (const P2P& leg : call_.legs) {
          if (leg.direction == P2P::Direction::kSend) {
            send(whole(leg.buffer), leg.peer);
          } else {
            receive(whole(leg.buffer), leg.peer);
          }
        }
        return;
      case OpKind::kBarrier:
      case OpKind::kShutdown:
        return;
    }
  }

  const Call& call_;
  const Place& at_;
};

}  // namespace

void enqueue(const Call& call, const Place& at) { Enqueuer(call, at).run(); }

}  // namespace dtensor::comm::nccl

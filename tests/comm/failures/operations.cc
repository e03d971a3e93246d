#include "dtensor/tests/comm/failures/operations.h"

#include <algorithm>
#include <functional>

#include "dtensor/comm/segments.h"
#include "dtensor/comm/types.h"
#include "dtensor/tests/comm/values.h"

namespace dtensor::testing {
namespace {

using comm::P2P;
using comm::ReduceOp;
using comm::Segments;

enum Operation {
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
};

constexpr float kPoison = 7777;

// What rank r has at index i in a round: small integers, so that sums are exact.
float value(int64_t round, int r, int64_t i) {
  return static_cast<float>((round * 5 + r * 3 + i * 7) % 23);
}

}  // namespace

OperationRun::OperationRun(comm::Comm& comm, int operation, int64_t count)
    : comm_(comm), operation_(operation), count_(count) {}

Segments OperationRun::shares() const {
  std::vector<int64_t> counts;
  for (int r = 0; r < comm_.size(); ++r) counts.push_back(share(r));
  return Segments(counts);
}

comm::Work OperationRun::issue(int64_t round) {
  const int rank = comm_.rank();
  const int size = comm_.size();
  const int root = static_cast<int>(round % size);
  const Segments all = shares();
  const auto fill = [&](int64_t in, int64_t out) {
    in_.resize(static_cast<size_t>(in));
    for (int64_t i = 0; i < in; ++i) in_[static_cast<size_t>(i)] = value(round, rank, i);
    out_.assign(static_cast<size_t>(out), kPoison);
  };
  switch (static_cast<Operation>(operation_)) {
    case kAllReduce:
      fill(count_, count_);
      return comm_.all_reduce(view(in_), view(out_), ReduceOp::kSum);
    case kReduce:
      fill(count_, rank == root ? count_ : 0);
      return comm_.reduce(view(in_), view(out_), root, ReduceOp::kSum);
    case kBroadcast:
      fill(count_, count_);
      if (rank == root) out_ = in_;
      return comm_.broadcast(view(out_), root);
    case kAllGather:
      fill(share(rank), all.total());
      return comm_.all_gather_v(view(in_), view(out_), all);
    case kReduceScatter:
      fill(all.total(), share(rank));
      return comm_.reduce_scatter_v(view(in_), view(out_), all, ReduceOp::kSum);
    case kAllToAll: {  // rank r sends share(q) to every q
      fill(all.total(), share(rank) * size);
      const Segments from(std::vector<int64_t>(static_cast<size_t>(size), share(rank)));
      return comm_.all_to_all_v(view(in_), all, view(out_), from);
    }
    case kGather:
      fill(share(rank), rank == root ? all.total() : 0);
      return comm_.gather_v(view(in_), view(out_), all, root);
    case kScatter:
      fill(rank == root ? all.total() : 0, share(rank));
      return comm_.scatter_v(view(in_), view(out_), all, root);
    case kExchange: {  // to the next rank, from the one before
      fill(share(rank), share((rank + size - 1) % size));
      const std::vector<P2P> legs = {
          {P2P::Direction::kSend, (rank + 1) % size, view(in_)},
          {P2P::Direction::kReceive, (rank + size - 1) % size, view(out_)}};
      return comm_.exchange(legs);
    }
    case kBarrier:
      fill(0, 0);
      return comm_.barrier();
  }
  return {};
}

std::string OperationRun::check(int64_t round) const {
  const int rank = comm_.rank();
  const int size = comm_.size();
  const int root = static_cast<int>(round % size);
  const Segments all = shares();
  const auto sum = [&](int64_t i) {
    float total = 0;
    for (int r = 0; r < size; ++r) total += value(round, r, i);
    return total;
  };
  const auto gathered = [&](int64_t i) {
    int r = 0;
    while (i >= all.offset(r + 1)) ++r;
    return value(round, r, i - all.offset(r));
  };
  const std::function<float(int64_t)> want[] = {
      sum,
      sum,
      [&](int64_t i) { return value(round, root, i); },
      gathered,
      [&](int64_t i) { return sum(all.offset(rank) + i); },
      [&](int64_t i) {
        const auto from = static_cast<int>(i / share(rank));
        return value(round, from, all.offset(rank) + i % share(rank));
      },
      gathered,
      [&](int64_t i) { return value(round, root, all.offset(rank) + i); },
      [&](int64_t i) { return value(round, (rank + size - 1) % size, i); },
      [](int64_t) { return 0.0F; }};
  for (size_t i = 0; i < out_.size(); ++i) {
    const float right = want[operation_](static_cast<int64_t>(i));
    if (out_[i] != right) {
      return "round " + std::to_string(round) + ", element " + std::to_string(i) + ": " +
             std::to_string(out_[i]) + ", not " + std::to_string(right);
    }
  }
  return {};
}

void OperationRun::poison() {
  std::ranges::fill(in_, kPoison);
  std::ranges::fill(out_, kPoison);
}

bool OperationRun::untouched() const {
  const auto poisoned = [](float x) { return x == kPoison; };
  return std::ranges::all_of(in_, poisoned) && std::ranges::all_of(out_, poisoned);
}

}  // namespace dtensor::testing

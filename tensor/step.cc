#include "dtensor/tensor/step.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::internal {
namespace {

using comm::Buffer;
using comm::ConstBuffer;

// A Comm has no all-reduce of a list. From this many tensors on the two calls that an all-reduce
// consists of, which have, are fewer than one for each.
constexpr size_t kListOfAllReduces = 3;

Buffer buffer_of(const Tensor& t) {
  return Buffer{t.raw(), t.numel(), t.dtype(), t.device(), t.storage()};
}
ConstBuffer const_buffer_of(const Tensor& t) { return ConstBuffer(buffer_of(t)); }

comm::ReduceOp reduce_op(PartialOp op) {
  switch (op) {
    case PartialOp::kSum:
      return comm::ReduceOp::kSum;
    case PartialOp::kMin:
      return comm::ReduceOp::kMin;
    case PartialOp::kMax:
      return comm::ReduceOp::kMax;
    case PartialOp::kProd:
      break;
  }
  return comm::ReduceOp::kProd;
}

Tensor result_of(const StepItem& item) {
  if (!item.mine->holds_after) return {};
  if (item.into.defined()) return item.into;
  return Tensor::empty(item.mine->want.size, item.dtype);
}

// Elements per peer of a list of pieces.
std::vector<int64_t> counts_of(std::span<const RankPiece> pieces, int size) {
  std::vector<int64_t> counts(static_cast<size_t>(size), 0);
  for (const RankPiece& p : pieces) counts[static_cast<size_t>(p.peer)] += p.box.numel();
  return counts;
}

// Do the pieces, in their order, lie one after the other in the memory of `whole` and fill it?
bool tile_in_order(const Box& whole, std::span<const RankPiece> pieces) {
  int64_t next = 0;
  for (const RankPiece& p : pieces) {
    if (p.box.empty()) continue;
    if (run_offset(whole, p.box) != next) return false;
    next += p.box.numel();
  }
  return next == whole.numel();
}

// The pieces of a box in the order of the group's ranks, with this rank's own among them.
std::vector<RankPiece> with_own(const std::vector<RankPiece>& others, const std::vector<Box>& own,
                                int me) {
  std::vector<RankPiece> all;
  auto next = others.begin();
  for (; next != others.end() && next->peer < me; ++next) all.push_back(*next);
  for (const Box& box : own) all.push_back({me, box});
  all.insert(all.end(), next, others.end());
  return all;
}

}  // namespace

Tensor part_of(const Tensor& tensor, const Box& whole, const Box& box) {
  Tensor t = tensor;
  for (int d = 0; d < t.ndim(); ++d) {
    t = t.narrow(d, box.offset[d] - whole.offset[d], box.size[d]);
  }
  return t;
}

std::optional<int64_t> run_offset(const Box& whole, const Box& box) {
  int64_t offset = 0;
  int64_t step = 1;
  bool full = true;  // all dims inside this one are taken whole
  for (int d = whole.size.ndim() - 1; d >= 0; --d) {
    if (!full && box.size[d] != 1) return std::nullopt;
    full = full && box.size[d] == whole.size[d];
    offset += (box.offset[d] - whole.offset[d]) * step;
    step *= whole.size[d];
  }
  return offset;
}

double identity_of(PartialOp op, DType dtype) {
  switch (op) {
    case PartialOp::kSum:
      return is_floating(dtype) ? -0.0 : 0.0;
    case PartialOp::kMin:
      return std::numeric_limits<double>::infinity();
    case PartialOp::kMax:
      // As a bool every number but 0 is true.
      return dtype == DType::kBool ? 0.0 : -std::numeric_limits<double>::infinity();
    case PartialOp::kProd:
      break;
  }
  return 1.0;
}

bool aliases(const RankStep& mine) {
  return mine.holds_before && mine.holds_after && mine.have == mine.want && !mine.fill_identity;
}

int calls_of(StepKind kind, size_t items) {
  if (kind != StepKind::kAllReduce) return 1;
  return items < kListOfAllReduces ? static_cast<int>(items) : 2;
}

Tensor run_local(const StepItem& item) {
  const RankStep& mine = *item.mine;
  if (aliases(mine)) return item.in;
  Tensor out = result_of(item);
  if (!out.defined()) return out;
  if (mine.fill_identity) kernels::fill(out, identity_of(*item.step->op, out.dtype()));
  for (const Box& box : mine.keep) {
    kernels::copy(part_of(item.in, mine.have, box), part_of(out, mine.want, box));
  }
  return out;
}

CommStep CommStep::start(comm::Comm& comm, std::vector<StepItem> items, std::string_view label) {
  CommStep run;
  run.items_ = std::move(items);
  for (const StepItem& item : run.items_) {
    internal_check(item.mine->me == comm.rank(), "a plan's group is not the mesh's");
    run.results_.push_back(result_of(item));
    if (item.mine->fill_identity) {
      kernels::fill(run.results_.back(), identity_of(*item.step->op, run.results_.back().dtype()));
    }
  }
  const comm::CallOptions options{.label = label};
  switch (run.items_.front().step->kind) {
    case StepKind::kAllGather:
      run.gather(comm, options);
      break;
    case StepKind::kReduceScatter:
      run.reduce_scatter(comm, options);
      break;
    case StepKind::kAllReduce:
      run.all_reduce(comm, options);
      break;
    case StepKind::kBroadcast:
      if (run.items_.size() == 1) {
        run.broadcast(comm, options);
        break;
      }
      [[fallthrough]];  // a list goes in one call
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      run.exchange(comm, options);
      break;
    case StepKind::kLocal:
      throw InternalError("a local step is no collective");
  }
  return run;
}

// Every rank's box goes to all. Where the boxes follow each other in the result (a cut of dim 0)
// they are received in place, else apart.
void CommStep::gather(comm::Comm& comm, const comm::CallOptions& options) {
  std::vector<ConstBuffer> in;
  std::vector<Buffer> out;
  std::vector<comm::Segments> segments;
  for (size_t i = 0; i < items_.size(); ++i) {
    const RankStep& mine = *items_[i].mine;
    const auto pieces = with_own(mine.receive, mine.keep, mine.me);
    segments.emplace_back(counts_of(pieces, comm.size()));
    in.push_back(const_buffer_of(items_[i].in.contiguous()));
    internal_check(in.back().count == segments.back().count(mine.me),
                   "an all-gather in which a rank does not send its whole box");
    if (tile_in_order(mine.want, pieces)) {
      out.push_back(buffer_of(results_[i]));
      continue;
    }
    const Tensor apart = Tensor::empty({segments.back().total()}, results_[i].dtype());
    out.push_back(buffer_of(apart));
    int64_t next = 0;
    for (const RankPiece& p : pieces) {
      unpack_.push_back({apart.narrow(0, next, p.box.numel()).view(p.box.size),
                         part_of(results_[i], mine.want, p.box)});
      next += p.box.numel();
    }
  }
  works_.push_back(comm.all_gather_v(in, out, segments, options));
}

void CommStep::reduce_scatter(comm::Comm& comm, const comm::CallOptions& options) {
  std::vector<ConstBuffer> in;
  std::vector<Buffer> out;
  std::vector<comm::Segments> segments;
  for (size_t i = 0; i < items_.size(); ++i) {
    const RankStep& mine = *items_[i].mine;
    const std::vector<RankPiece>& pieces = mine.send;
    segments.emplace_back(counts_of(pieces, comm.size()));
    out.push_back(buffer_of(results_[i]));
    internal_check(out.back().count == segments.back().count(mine.me),
                   "a reduce-scatter in which a rank's part is not its result");
    if (tile_in_order(mine.have, pieces)) {
      in.push_back(const_buffer_of(items_[i].in.contiguous()));
      continue;
    }
    const Tensor packed = Tensor::empty({segments.back().total()}, results_[i].dtype());
    int64_t next = 0;
    for (const RankPiece& p : pieces) {
      if (p.box.empty()) continue;
      kernels::copy(part_of(items_[i].in, mine.have, p.box),
                    packed.narrow(0, next, p.box.numel()).view(p.box.size));
      next += p.box.numel();
    }
    in.push_back(const_buffer_of(packed));
  }
  works_.push_back(
      comm.reduce_scatter_v(in, out, segments, reduce_op(*items_.front().step->op), options));
}

void CommStep::all_reduce(comm::Comm& comm, const comm::CallOptions& options) {
  if (items_.size() >= kListOfAllReduces) return all_reduce_list(comm, options);
  for (size_t i = 0; i < items_.size(); ++i) {
    works_.push_back(comm.all_reduce(const_buffer_of(items_[i].in.contiguous()),
                                     buffer_of(results_[i]), reduce_op(*items_[i].step->op),
                                     options));
  }
}

// A reduce-scatter to each rank's segment of the results, and, once that is through, an all-gather
// of the segments in place. The same bits as an all-reduce of each, and the same bytes.
void CommStep::all_reduce_list(comm::Comm& comm, const comm::CallOptions& options) {
  std::vector<ConstBuffer> in;
  std::vector<Buffer> mine;
  std::vector<Buffer> all;
  std::vector<comm::Segments> segments;
  for (size_t i = 0; i < items_.size(); ++i) {
    in.push_back(const_buffer_of(items_[i].in.contiguous()));
    all.push_back(buffer_of(results_[i]));
    segments.push_back(comm::Segments::even(all.back().count, comm.size()));
    const comm::Segments& cut = segments.back();
    mine.push_back(buffer_of(results_[i]
                                 .reshape({cut.total()})
                                 .narrow(0, cut.offset(comm.rank()), cut.count(comm.rank()))));
  }
  works_.push_back(
      comm.reduce_scatter_v(in, mine, segments, reduce_op(*items_.front().step->op), options));
  then_ = [&comm, mine, all, segments, label = std::string(options.label)] {
    const std::vector<ConstBuffer> sent(mine.begin(), mine.end());
    return comm.all_gather_v(sent, all, segments, {.label = label});
  };
}

// Pieces go straight from and to the tensors where they are one run of memory there.
void CommStep::exchange(comm::Comm& comm, const comm::CallOptions& options) {
  std::vector<comm::P2P> legs;
  for (size_t i = 0; i < items_.size(); ++i) {
    const RankStep& mine = *items_[i].mine;
    for (const RankPiece& p : mine.send) {
      const Tensor part = part_of(items_[i].in, mine.have, p.box).contiguous();
      legs.push_back({comm::P2P::Direction::kSend, p.peer, buffer_of(part)});
    }
    for (const RankPiece& p : mine.receive) {
      const Tensor place = part_of(results_[i], mine.want, p.box);
      const Tensor part = place.is_contiguous() ? place : Tensor::empty(p.box.size, place.dtype());
      if (!place.is_contiguous()) unpack_.push_back({part, place});
      legs.push_back({comm::P2P::Direction::kReceive, p.peer, buffer_of(part)});
    }
  }
  works_.push_back(comm.exchange(legs, options));
  copy_kept();
}

// The root sends from where it has it; its own copy is made meanwhile.
void CommStep::broadcast(comm::Comm& comm, const comm::CallOptions& options) {
  const RankStep& mine = *items_[0].mine;
  const bool sends = mine.me == mine.root;
  works_.push_back(comm.broadcast(buffer_of(sends ? items_[0].in.contiguous() : results_[0]),
                                  mine.root, options));
  if (sends) copy_kept();
}

// What stays is copied while the messages fly.
void CommStep::copy_kept() {
  for (size_t i = 0; i < items_.size(); ++i) {
    const RankStep& mine = *items_[i].mine;
    if (!mine.holds_before || !mine.holds_after) continue;
    for (const Box& box : mine.keep) {
      kernels::copy(part_of(items_[i].in, mine.have, box), part_of(results_[i], mine.want, box));
    }
  }
}

bool CommStep::ready() const {
  return std::ranges::all_of(works_, [](const comm::Work& work) { return work.ready(); });
}

std::vector<Tensor> CommStep::finish() {
  for (comm::Work& work : works_) work.wait();
  if (then_) then_().wait();
  for (const Unpack& u : unpack_) kernels::copy(u.from, u.to);
  return std::move(results_);
}

}  // namespace dtensor::internal

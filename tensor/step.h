// CommStep: one collective of a plan, for a list of tensors; and the local steps.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/placement/reshard_step.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::internal {

// The view of `box` in a tensor that holds `whole`.
Tensor part_of(const Tensor& tensor, const Box& whole, const Box& box);

// Where `box` begins in the contiguous memory of `whole`; none where it is not one run there.
std::optional<int64_t> run_offset(const Box& whole, const Box& box);

// The number that changes nothing in a reduction. -0.0 for sums: x + -0.0 is x, also for x = -0.0.
double identity_of(PartialOp op, DType dtype);

// Comm calls that a step of a list of `items` makes: one, one for each, or two for a list of
// all-reduces.
int calls_of(StepKind kind, size_t items);

// What one tensor brings to a step, on this rank; `in` is undefined where it holds nothing before.
struct StepItem {
  const ReshardStep* step = nullptr;
  const RankStep* mine = nullptr;
  Tensor in;
  Tensor into = {};  // memory for the result, where given
  DType dtype = DType::kFloat32;
};

// Is the result of a step without messages its input itself?
bool aliases(const RankStep& mine);
// A step without messages. The input itself where there is nothing to do.
Tensor run_local(const StepItem& item);

class CommStep {
 public:
  // Issues the step of all items (of one kind, on one group) on `comm`.
  static CommStep start(comm::Comm& comm, std::vector<StepItem> items, std::string_view label);
  // Comm calls of the step, also those that finish() makes.
  int calls() const { return static_cast<int>(works_.size()) + (then_ ? 1 : 0); }
  bool ready() const;
  // Waits; the results by item, undefined where this rank holds nothing after.
  std::vector<Tensor> finish();

 private:
  // A box of a result that arrives apart and is copied into its place.
  struct Unpack {
    Tensor from;
    Tensor to;
  };
  void gather(comm::Comm& comm, const comm::CallOptions& options);
  void reduce_scatter(comm::Comm& comm, const comm::CallOptions& options);
  void all_reduce(comm::Comm& comm, const comm::CallOptions& options);
  void all_reduce_list(comm::Comm& comm, const comm::CallOptions& options);
  void exchange(comm::Comm& comm, const comm::CallOptions& options);
  void broadcast(comm::Comm& comm, const comm::CallOptions& options);
  void copy_kept();

  std::vector<StepItem> items_;
  std::vector<Tensor> results_;
  std::vector<comm::Work> works_;
  std::vector<Unpack> unpack_;
  std::function<comm::Work()> then_;  // a second call, after the first
};

}  // namespace dtensor::internal

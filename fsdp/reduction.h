// Reduction: the gradients of one group under way from whole to cut, while backward goes on.
// Reductions: those of one root. One is under way at a time over the dims of fully_shard, since
// each holds the whole gradients of a group; what is then left to sum over replicas is a second
// leg, of shards, under way while the next one's first is.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/fsdp/stats.h"
#include "dtensor/nn/module.h"
#include "dtensor/tensor/move.h"

namespace dtensor::fsdp {

// A gradient of a gathered parameter: of its global shape, Partial where ranks have parts of it.
struct WholeGradient {
  nn::Parameter parameter;
  DTensor grad;
};

// Of another dtype, cast. A rank outside the mesh has a handle.
DTensor in_dtype(const DTensor& grad, DType dtype);

class Reduction {
 public:
  // Issues the sum over `dims`: all gradients in one call. Keeps their memory until the
  // sum is there.
  Reduction(MeshSlice dims, std::vector<WholeGradient> grads, std::string name);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  // Waits for the leg under way and issues the next one, in the wider of the gradient's and the
  // parameter's dtype. False where that was the last: the parameters have their gradients, rounded
  // to their dtype, added to what was there.
  bool go_on();

 private:
  void issue(const std::vector<Layout>& to);
  void land();
  void give_gradients();
  std::vector<Layout> parameter_layouts() const;

  MeshSlice dims_;
  std::vector<WholeGradient> grads_;  // those on their way are undefined
  std::vector<size_t> moving_;
  std::vector<Layout> to_;  // by gradient
  std::optional<Move> move_;
  std::string name_;
  std::string left_;  // over which dims it is summed later
  int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;   // of the first leg
  std::chrono::steady_clock::time_point issued_;  // the leg under way
  std::shared_ptr<Stats> stats_;
};

class Reductions {
 public:
  // Lets those under way go on by a leg, so that one more may start.
  void make_room();
  void add(std::unique_ptr<Reduction> reduction);
  void finish();

 private:
  std::vector<std::unique_ptr<Reduction>> live_;  // oldest first: all ranks wait in one order
};

}  // namespace dtensor::fsdp

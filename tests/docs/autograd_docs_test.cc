// The code of docs/autograd.md.

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

DTensor weighted_sum(const DTensor& w, const DTensor& x) {
  float sum = 0;
  for (const float v : x.local_tensor().to_vector<float>()) sum += v;
  Layout layout = Layout::replicated(x.layout().mesh(), Shape{});
  if (x.layout().placement(0).is_shard()) layout = layout.with(0, Partial());
  const float value = w.local_tensor().to_vector<float>()[0] * sum;
  DTensor out(Tensor::full({}, value), layout, x.mesh());
  record("weighted_sum", {&w, 1}, {&out, 1}, [sum, layout](std::span<const DTensor> grads) {
    const float up = grads[0].local_tensor().to_vector<float>()[0];
    return std::vector<DTensor>{DTensor(Tensor::full({}, up * sum), layout, grads[0].mesh())};
  });
  return out;
}

void trains_a_replicated_weight_on_a_cut_batch(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}});
  DTensor w = distribute(Tensor::full({}, 5), mesh, {});
  w.set_requires_grad(true);
  const DTensor x = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0)});
  weighted_sum(w, x).backward();  // P(sum): each rank summed its own rows
  EXPECT_EQ(w.grad().item(), 6);  // one all-reduce, at the leaf
  EXPECT_TRUE(w.grad().spec().is_replicated());
}

void states_what_a_region_computes(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"dp", 2}});
  DTensor w = distribute(Tensor::of<float>({2, 3}, {2}), mesh, {});
  w.set_requires_grad(true);
  EXPECT_THROW(static_cast<void>(local(w)), PlacementError);
  const DTensor mine = local(w, {.grad = GradPlacement::kPartial});  // each rank: its own rows
  EXPECT_FALSE(mine.mesh().defined());
  EXPECT_EQ(mine.local_tensor().storage(), w.local_tensor().storage());
}

TEST(AutogradDocs, TrainsAReplicatedWeightOnACutBatch) {
  testing::run_ranks(2, trains_a_replicated_weight_on_a_cut_batch);
}
TEST(AutogradDocs, StatesWhatARegionComputes) {
  testing::run_ranks(2, states_what_a_region_computes);
}

}  // namespace
}  // namespace dtensor

// The code of docs/placement.md.

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/placement/holders.h"
#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

void parts_of_a_dim() {
  const auto sizes = [](const char* text, int64_t length) {
    const Layout layout = parse_layout(text, {length});
    std::vector<int64_t> all;
    for (const int rank : layout.mesh().ranks()) all.push_back(layout.box_of(rank).size[0]);
    return all;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes("x=4:S(0)", 11), (Sizes{3, 3, 3, 2}));
  EXPECT_EQ(sizes("x=4:S(0)", 2), (Sizes{1, 0, 1, 0}));
  EXPECT_EQ(sizes("x=4:S(0);unit=0:x:4", 22), (Sizes{8, 4, 8, 2}));     // blocks of 4
  EXPECT_EQ(sizes("x=3:S(0);weights=x:2,1,1", 10), (Sizes{5, 3, 2}));   // a faster device
  EXPECT_EQ(sizes("a=2,b=3:S(0),S(0)", 9), (Sizes{2, 2, 1, 2, 1, 1}));  // 5,4, then each
  EXPECT_EQ(sizes("a=2,b=3:S(0),S(0);weights=a:2,1", 11), (Sizes{3, 3, 2, 1, 1, 1}));  // 8,3
}
TEST(PlacementDocs, PartsOfADim) { parts_of_a_dim(); }

void fsdp_cuts_what_tensor_parallel_left() {
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  const Layout tp(mesh, {17, 8}, {Replicate(), Shard(0)});
  const Layout both = tp.with(mesh.dim("dp"), Shard(0));
  EXPECT_EQ(to_string(both), "dp=2,tp=2:S(0),S(0);order=0:tp,dp");
  EXPECT_EQ(to_string(both.box_of(1)), "[9:13,0:8]");  // dp 0, tp 1
  EXPECT_EQ(both.with(mesh.dim("dp"), Replicate()), tp);
}
TEST(PlacementDocs, FsdpCutsWhatTensorParallelLeft) { fsdp_cuts_what_tensor_parallel_left(); }

void who_holds_an_element() {
  const Layout w = parse_layout("dp=2,tp=2:R,S(0)", {17, 8});
  EXPECT_EQ(holders(w, {8, 0}), (std::vector<int>{0, 2}));  // rows 0-8 are on tp 0
  EXPECT_EQ(replicas(w, 3), (std::vector<int>{1, 3}));
  const Layout term = parse_layout("dp=2,tp=2:P(sum),S(0)", {17, 8});
  EXPECT_EQ(holders(term, {8, 0}), (std::vector<int>{0, 2}));  // each holds a term of the sum
  const Layout far = parse_layout("x=4@4-7:S(0)", {int64_t{1} << 62});
  EXPECT_EQ(holders(far, {(int64_t{1} << 62) - 1}), std::vector<int>{7});
}
TEST(PlacementDocs, WhoHoldsAnElement) { who_holds_an_element(); }

void coming_from_torch() {
  const MeshLayout mesh({{"dp", 2}, {"tp", 2}});
  // torch: [_StridedShard(0, split_factor=2), Shard(0)]
  const Layout fsdp = Layout(mesh, {8}, {Replicate(), Shard(0)}).with(0, Shard(0));
  EXPECT_EQ(to_string(fsdp.spec()), "[dp:S(0), tp:S(0)];order=0:tp,dp");
  EXPECT_EQ(fsdp.box_of(1), (Box{{4}, {2}}));  // dp 0, tp 1
  // torch: [Shard(0), Shard(0)]
  EXPECT_EQ(Layout(mesh, {8}, {Shard(0), Shard(0)}).box_of(1), (Box{{2}, {2}}));
  EXPECT_THROW(parse_layout("dp=2:P(avg)", {8}), ArgumentError);
}
TEST(PlacementDocs, ComingFromTorch) { coming_from_torch(); }

}  // namespace
}  // namespace dtensor

// A tensor whose dim is cut by several mesh dims, in any order, with units and weights: its chunks
// tile it once, and it loads back.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::run_ranks;
using testing::TemporaryDirectory;

void expect_round_trip(const std::string& text, const std::string& other, const Shape& shape) {
  const TemporaryDirectory run;
  const Tensor whole = Tensor::arange(shape.numel()).view(shape);
  for (const std::string& to : {text, other}) {
    const Layout layout = parse_layout(to, shape);
    run_ranks(layout.mesh().size(), [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, layout.mesh());
      if (to == text) {
        Bag saved;
        saved.add("w", distribute(whole, mesh, layout));
        save(run.path(), 1, {.model = saved});
        mesh.root().barrier().wait();
      }
      Bag bag;
      const auto w = bag.add("w", distribute(Tensor::full(shape, -1.0), mesh, layout));
      EXPECT_EQ(load(run.path(), {.model = bag}), 1) << "complete: the chunks tile " << text;
      EXPECT_EQ(w.value().local_tensor().to_vector<float>(),
                distribute(whole, mesh, layout).local_tensor().to_vector<float>())
          << text << " -> " << to;
    });
  }
}

// pytorch#161368, pytorch#194457: 2 on (2,4), 9 on (2,3), 5 on (2,4).
TEST(NestedShards, TileTheTensorAndLoadBack) {
  for (const auto& [mesh, n] : std::vector<std::pair<std::string, int64_t>>{
           {"a=2,b=4", 2}, {"a=2,b=3", 9}, {"a=2,b=4", 5}, {"a=2,b=2", 0}, {"a=3,b=2", 7}}) {
    expect_round_trip(mesh + ":S(0),S(0)", "x=3:S(0)", {n});
    expect_round_trip(mesh + ":S(0),S(0)", "x=1:R", {n});
    expect_round_trip(mesh + ":S(0),S(0);order=0:b,a", "x=2:S(0)", {n});
    expect_round_trip(mesh + ":S(1),S(1)", mesh + ":S(0),S(0)", {3, n});
  }
}

// pytorch#136228, vllm#50735
TEST(NestedShards, MayHaveUnitsAndWeights) {
  expect_round_trip("dp=2,tp=2:S(0),S(0);order=0:tp,dp;unit=0:tp:6", "x=4:S(0)", {30});
  expect_round_trip("a=2,b=3:S(0),S(0);weights=a:2,1", "x=2:S(0)", {11});
  expect_round_trip("dp=2,tp=2:S(0),S(0);order=0:tp,dp", "dp=2,tp=2:R,S(1)", {17, 8});
}

}  // namespace
}  // namespace dtensor::checkpoint

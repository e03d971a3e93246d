// FSDP appends its level last: what it makes of a tensor-parallel parameter is the layout that one
// writes by hand from placements and order.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

using testing::piece;
using testing::run_ranks;
using testing::values;

// A module of one parameter, cut over tp.
class Weight : public nn::Module {
 public:
  Weight(const Tensor& whole, const DeviceMesh& mesh)
      : weight(add_parameter("weight", whole.shape())) {
    weight.value().replace(distribute(whole, mesh, {Replicate(), Shard(0)}));
  }
  std::string_view kind() const override { return "Weight"; }
  nn::Parameter weight;

 protected:
  DTensor forward(const nn::Inputs& in) override { return in[0]; }
};

// pytorch#129229, pytorch#129206, pytorch#163843, pytorch#168134
TEST(ShardOrder, IsThatOfTheLayoutWrittenByHand) {
  for (const std::vector<MeshDim>& dims :
       {std::vector<MeshDim>{{"dp", 2}, {"tp", 2}}, std::vector<MeshDim>{{"dp", 3}, {"tp", 2}},
        std::vector<MeshDim>{{"dp", 2}, {"tp", 1}}, std::vector<MeshDim>{{"dp", 1}, {"tp", 3}}}) {
    const MeshLayout layout(dims);
    run_ranks(layout.size(), [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, layout);
      for (int64_t n = 0; n <= 17; ++n) {
        const Tensor whole = Tensor::arange(2 * n).view({n, 2});
        Weight module(whole, mesh);
        const DTensor tp = distribute(whole, mesh, {Replicate(), Shard(0)});
        fully_shard(module, mesh["dp"]);
        const DTensor w = module.weight.value();
        const Layout by_hand = parse_layout(to_string(layout) + ":S(0),S(0);order=0:tp,dp", {n, 2});
        EXPECT_EQ(w.layout(), by_hand) << n;
        EXPECT_EQ(piece(w), piece(distribute(whole, mesh, by_hand))) << n;
        EXPECT_EQ(piece(redistribute(w, mesh["dp"], {Replicate()})), piece(tp)) << n;
        EXPECT_EQ(values(w), whole.to_vector<float>()) << n;
      }
    });
  }
}

}  // namespace
}  // namespace dtensor::fsdp

// @dtensor//fsdp: a layer fully sharded over two ranks (threads here), one training step.

#include <cstdio>
#include <thread>
#include <vector>

#include "dtensor/comm/local/local.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/layers.h"

namespace {

using namespace dtensor;  // NOLINT(google-build-using-namespace)

float first_gradient(comm::Comm& world) {
  Context context;
  const ContextScope scope(context);
  const DeviceMesh mesh(world, {{"dp", world.size()}});
  nn::Linear layer(3, 5);  // five rows over two ranks: three and two
  fsdp::fully_shard(layer, mesh["dp"]);
  nn::init_normal(layer, 1);
  const DTensor x = distribute(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}), mesh, {Shard(0)});
  DTensor loss = sum(layer(x));
  loss.backward();
  return full(layer.weight.value().grad()).data<float>()[0];
}

}  // namespace

int main() {
  auto ranks = comm::local::make_world(2);
  std::vector<float> gradients(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] { gradients[r] = first_gradient(*ranks[r]); });
  }
  for (auto& t : threads) t.join();
  const bool right = gradients[0] == 5 && gradients[1] == 5;  // 1 + 4, the column's sum
  std::puts(right ? "every rank agrees" : "the ranks differ");
  return right ? 0 : 1;
}

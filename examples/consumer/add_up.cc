// @dtensor//comm/gloo alone: an all-reduce. Run it under a launcher (torchrun, Slurm, MPI), or as
// it is: a world of one.

#include <cstdio>
#include <exception>

#include "dtensor/comm/create.h"
#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/comm/local/local.h"

int main() {
  using namespace dtensor;
  try {
    comm::gloo::register_backend();
    comm::local::register_backend();  // a world of one, without a launcher
    const auto world = comm::from_environment();
    const float mine = static_cast<float>(world->rank() + 1);
    float sum = 0;
    world
        ->all_reduce(comm::ConstBuffer(&mine, 1, DType::kFloat32),
                     comm::Buffer{&sum, 1, DType::kFloat32}, comm::ReduceOp::kSum)
        .wait();
    std::printf("the sum over %d rank%s is %g\n", world->size(), world->size() == 1 ? "" : "s",
                sum);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

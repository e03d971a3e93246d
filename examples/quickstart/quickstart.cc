// The example of README.md, which shows this file from the first include on.

#include <cstdio>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/ledger.h"

int main() {
  using namespace dtensor;
  comm::register_all();
  const auto world =
      comm::from_environment();  // torchrun, Slurm, MPI, `dtensor run`; else one rank
  const DeviceMesh mesh(*world, {{"tp", world->size()}});

  // 11 rows over any number of ranks: nothing has to divide. The bits do not depend on the mesh.
  DTensor w = randn({11, 6}, mesh, {Shard(0)}, {.stream = "w"});
  w.set_requires_grad(true);
  const DTensor x = randn({4, 6}, mesh, {Replicate()}, {.stream = "x"});

  const DTensor y = linear(x, w);                    // S(1): no communication
  const DTensor z = redistribute(y, {Replicate()});  // one all-gather, and it says so in the ledger
  DTensor loss = sum(mul(z, z));
  loss.backward();  // the gradient of w is S(0), as w is

  const double value = loss.item();
  if (world->rank() == 0) {
    std::printf("loss %.4f\nw    %s\ngrad %s\n%s", value, to_string(w.layout()).c_str(),
                to_string(w.grad().layout()).c_str(),
                to_string(Context::current().slot<Ledger>()).c_str());
  }
}

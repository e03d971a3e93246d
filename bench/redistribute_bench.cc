// Redistribute between the processes of a world, of f32 tensors that the Context's allocator gives:
//   dtensor run -n 2 --plain -- bazel-bin/bench/redistribute_bench
// Rank 0 prints JSON: of each pair and size the median time, of the slowest rank, from a barrier
// until the result is there, the payload that all ranks send in a call, and what this rank read in
// place. PyTorch's on the same tensors: bench/baselines/pytorch_redistribute.py; both in one run:
// bench/redistribute.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  Placement from;
  Placement to;
  RedistributeOptions how = {};
};

struct Size {
  const char* name;
  int64_t rows;
  int64_t columns;
};

double slowest(comm::Comm& world, double us) {
  const comm::Buffer buffer{&us, 1, DType::kFloat64};
  world.all_reduce(buffer, buffer, comm::ReduceOp::kMax).wait();
  return us;
}

std::string measure(comm::Comm& world, const DeviceMesh& mesh, const Case& c, const Size& size) {
  const Shape shape = {size.rows, size.columns};
  const Layout from(mesh.layout(), shape, {c.from});
  const DTensor t = c.from.is_partial() ? DTensor(Tensor::full(shape, 1), from, mesh)
                                        : zeros(shape, mesh, {c.from});
  const Layout to = t.layout().with(0, c.to);
  const int times = shape.numel() > (1 << 22) ? 15 : 101;
  std::vector<double> us;
  const int64_t before = world.counters().bytes_read_in_place;
  for (int i = 0; i < times + 3; ++i) {
    world.barrier().wait();
    const auto start = Clock::now();
    const DTensor result = redistribute(t, to, c.how);
    static_cast<void>(*static_cast<const volatile float*>(result.local_tensor().data<float>()));
    if (i >= 3) {
      us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  }
  const int64_t in_place = (world.counters().bytes_read_in_place - before) / (times + 3);
  std::ranges::nth_element(us, us.begin() + times / 2);
  const double median = slowest(world, us[static_cast<size_t>(times / 2)]);
  return fmt::format(R"({{"name":"{}/{}","us":{:.2f},"sent":{},"in_place":{}}})", c.name, size.name,
                     median, look_ahead(t, to).payload_bytes, in_place);
}

int run() {
  comm::register_all();
  const auto world = comm::from_environment();
  Context::current().slot<Ledger>().recording = false;
  const DeviceMesh mesh(*world, {{"x", world->size()}});
  const Case cases[] = {
      {"shard_to_replicate", Shard(0), Replicate()},
      {"shard_to_shard", Shard(0), Shard(1)},
      {"partial_to_replicate", Partial(), Replicate()},
      {"partial_to_shard", Partial(), Shard(0)},
      {"partial_to_replicate_bf16", Partial(), Replicate(), {.wire_dtype = DType::kBFloat16}}};
  const Size sizes[] = {{"64k", 64, 256}, {"4m", 1024, 1024}, {"64m", 4096, 4096}};
  std::string text;
  for (const Size& size : sizes) {
    for (const Case& c : cases) text += (text.empty() ? "" : ",") + measure(*world, mesh, c, size);
  }
  if (world->rank() == 0) std::printf("[%s]\n", text.c_str());
  world->shutdown();
  return 0;
}

}  // namespace
}  // namespace dtensor

int main() {
  try {
    return dtensor::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

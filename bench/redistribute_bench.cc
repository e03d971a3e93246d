// Redistribute over the local backend: 2 and 4 ranks, each a thread; 64 KiB, 4 MiB and 64 MiB of
// f32.
//   bazel run -c opt //bench:redistribute_bench
// The time is rank 0's, from a barrier until its result is there. PyTorch's on the same sizes:
//   bench/baselines/pytorch_redistribute.py 2
// "sent" is the payload that all ranks send in a call.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"

namespace dtensor {
namespace {

struct Size {
  int64_t rows;
  int64_t columns;
};

Size size_of_bytes(int64_t bytes) {
  if (bytes <= 64 << 10) return {64, 256};
  if (bytes <= 4 << 20) return {1024, 1024};
  return {4096, 4096};
}

// All ranks run `body` once per iteration; rank 0 keeps the time and tells the others to go on.
void run(benchmark::State& state, Placement from, Placement to, const RedistributeOptions& how) {
  const int ranks = static_cast<int>(state.range(0));
  const Size size = size_of_bytes(state.range(1));
  auto world = comm::local::make_world(ranks);
  int64_t sent = 0;
  std::vector<std::thread> others;
  const auto rank = [&](comm::Comm& comm, benchmark::State* timed) {
    Context context;
    const ContextScope scope(context);
    context.slot<Ledger>().recording = false;
    const DeviceMesh mesh(comm, {{"x", ranks}});
    const DTensor t = from.is_partial()
                          ? DTensor(Tensor::full({size.rows, size.columns}, 1),
                                    Layout(mesh.layout(), {size.rows, size.columns}, {from}), mesh)
                          : zeros({size.rows, size.columns}, mesh, {from});
    const Layout target = t.layout().with(0, to);
    // Whether there is one more iteration, told to all.
    const auto agree = [&](int64_t more) {
      comm.broadcast({&more, 1, DType::kInt64}, 0).wait();
      comm.barrier().wait();
      return more != 0;
    };
    static_cast<void>(redistribute(t, target, how));
    if (timed == nullptr) {
      while (agree(0)) static_cast<void>(redistribute(t, target, how));
      return;
    }
    while (timed->KeepRunning()) {
      timed->PauseTiming();
      agree(1);
      timed->ResumeTiming();
      benchmark::DoNotOptimize(redistribute(t, target, how));
    }
    agree(0);
    sent = look_ahead(t, target).payload_bytes;
  };
  for (int r = 1; r < ranks; ++r) {
    others.emplace_back([&, r] { rank(*world[static_cast<size_t>(r)], nullptr); });
  }
  rank(*world[0], &state);
  for (std::thread& t : others) t.join();
  state.counters["sent"] = static_cast<double>(sent);
  state.SetBytesProcessed(state.iterations() * sent);
}

void arguments(benchmark::internal::Benchmark* b) {
  b->ArgNames({"ranks", "bytes"})->Unit(benchmark::kMicrosecond)->UseRealTime();
  for (const int64_t ranks : {2, 4}) {
    for (const int64_t bytes : {64 << 10, 4 << 20, 64 << 20}) b->Args({ranks, bytes});
  }
}

BENCHMARK_CAPTURE(run, shard_to_replicate, Shard(0), Replicate(), RedistributeOptions{})
    ->Apply(arguments);
BENCHMARK_CAPTURE(run, shard_to_shard, Shard(0), Shard(1), RedistributeOptions{})->Apply(arguments);
BENCHMARK_CAPTURE(run, partial_to_replicate, Partial(), Replicate(), RedistributeOptions{})
    ->Apply(arguments);
BENCHMARK_CAPTURE(run, partial_to_shard, Partial(), Shard(0), RedistributeOptions{})
    ->Apply(arguments);
BENCHMARK_CAPTURE(run, partial_to_replicate_bf16, Partial(), Replicate(),
                  RedistributeOptions{.wire_dtype = DType::kBFloat16})
    ->Apply(arguments);

}  // namespace
}  // namespace dtensor

BENCHMARK_MAIN();

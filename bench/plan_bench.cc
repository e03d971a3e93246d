// Plans: a cached look-up, new plans on 2-D meshes, one rank's part on a mesh of 65,536 ranks, and
// a million chunks of a file. One thread.
//   bazel run //bench:plan_bench -- --benchmark_filter=NewPlan

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/plan_cache.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/placement/tiling.h"

namespace dtensor {
namespace {

using benchmark::State;

void CachedLookUp(State& state) {  // NOLINT(*-naming)
  const Layout from = parse_layout("dp=2,tp=4:S(0),S(1)", {4096, 4096});
  const Layout to = parse_layout("dp=2,tp=4:R,S(1)", {4096, 4096});
  PlanCache cache;
  for (auto _ : state) benchmark::DoNotOptimize(cache.get(from, to, 3));
}
BENCHMARK(CachedLookUp);

// New plans of the pairs that train a Llama on a 2-D mesh: even, and of odd sizes.
void NewPlan(State& state, const std::string& from, const std::string& to,
             const Shape& shape) {  // NOLINT(*-naming)
  const Layout a = parse_layout("dp=2,tp=4:" + from, shape);
  const Layout b = parse_layout("dp=2,tp=4:" + to, shape);
  for (auto _ : state) benchmark::DoNotOptimize(plan(a, b));
}
BENCHMARK_CAPTURE(NewPlan, gather, "S(0),S(1)", "R,S(1)", Shape{4096, 4096});
BENCHMARK_CAPTURE(NewPlan, gather_uneven, "S(0),S(0);order=0:tp,dp", "R,S(0)", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, all_to_all, "S(0),S(1)", "S(0),S(0)", Shape{4096, 4096});
BENCHMARK_CAPTURE(NewPlan, all_to_all_uneven, "S(0),S(1)", "S(0),S(0)", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, other_order, "S(0),S(0)", "S(0),S(0);order=0:tp,dp", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, reduce_scatter, "P(sum),S(1)", "S(0),S(1)", Shape{4096, 4096});
BENCHMARK_CAPTURE(NewPlan, all_reduce, "P(sum),P(sum)", "R,R", Shape{4096, 4096});
BENCHMARK_CAPTURE(NewPlan, reduce_and_gather, "P(sum),S(0)", "S(0),R", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, reduce_and_move, "S(0),P(sum)", "S(1),S(1)", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, slice_beside_reduce, "P(sum),R", "R,S(0)", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, to_partial_beside_gather, "S(0),R", "R,P(sum)", Shape{4097, 4099});
BENCHMARK_CAPTURE(NewPlan, exchange_partial, "P(sum),S(0)", "S(0),P(sum)", Shape{4097, 4099});

// A plan on a mesh of 65,536 ranks and the messages of one of them.
void OneRankOf65536(State& state, const std::string& from,
                    const std::string& to) {  // NOLINT(*-naming)
  const Shape shape{1 << 20, 4099};
  const Layout a = parse_layout("dp=256,tp=256:" + from, shape);
  const Layout b = parse_layout("dp=256,tp=256:" + to, shape);
  for (auto _ : state) {
    const ReshardPlan made = plan(a, b);
    for (size_t i = 0; i < made.steps().size(); ++i) {
      benchmark::DoNotOptimize(made.rank_step(static_cast<int>(i), 12345));
    }
  }
}
BENCHMARK_CAPTURE(OneRankOf65536, all_to_all, "S(0),R", "S(1),R")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(OneRankOf65536, other_order, "S(0),S(0)", "S(0),S(0);order=0:tp,dp")
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(OneRankOf65536, gather, "S(0),S(1)", "S(0),R")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(OneRankOf65536, reduce, "P(sum),S(0)", "S(0),R")->Unit(benchmark::kMicrosecond);

// 1,000,000 chunks of files go to 1,024 ranks.
void MillionChunks(State& state) {  // NOLINT(*-naming)
  const Shape shape{1000, 4 * 1000};
  Tiling from{shape, {}};
  for (int i = 0; i < 1000; ++i) {
    for (int j = 0; j < 1000; ++j) {
      from.tiles.push_back({{{i, int64_t{4} * j}, {1, 4}}, i * 1000 + j});
    }
  }
  Tiling to = tiling_of(parse_layout("a=32,b=32:S(0),S(1)", shape));
  for (Tile& tile : to.tiles) tile.holder += 1'000'000;
  for (auto _ : state) benchmark::DoNotOptimize(moves(from, to));
}
BENCHMARK(MillionChunks)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace dtensor

BENCHMARK_MAIN();

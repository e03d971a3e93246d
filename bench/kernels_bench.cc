// The kernels of ops/cpu on the shapes of two Llamas: 3.0M parameters (hidden 256, feed-forward
// 688) and 50.7M (768, 2048), 2,048 tokens. One thread unless DTENSOR_BENCH_THREADS says otherwise.
//   bazel run -c opt //bench:kernels_bench -- --benchmark_filter=Linear
// "flops" counts multiplications and additions; "bytes" what a kernel must read and write at least.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "dtensor/base/context.h"
#include "dtensor/base/philox.h"
#include "dtensor/base/thread_pool.h"
#include "dtensor/ops/cpu/adamw.h"
#include "dtensor/ops/cpu/attention.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/cross_entropy.h"
#include "dtensor/ops/cpu/elementwise.h"
#include "dtensor/ops/cpu/gemm.h"
#include "dtensor/ops/cpu/layer_norm.h"
#include "dtensor/ops/cpu/norm.h"
#include "dtensor/ops/cpu/reduce.h"
#include "dtensor/ops/cpu/rope.h"
#include "dtensor/ops/cpu/softmax.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/cpu/vector_norm.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {
namespace {

using benchmark::Counter;
using benchmark::State;

constexpr int64_t kTokens = 2048;

Tensor random(const Shape& shape, DType dtype = DType::kFloat32) {
  const Tensor t = Tensor::empty(shape);
  auto* data = t.data<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    data[i] = philox_uniform(1, 2, static_cast<uint64_t>(i)) - 0.5F;
  }
  return t.to(dtype);
}

void set_threads() {
  const char* threads = std::getenv("DTENSOR_BENCH_THREADS");
  Context::current().slot<CurrentThreadPool>().pool =
      std::make_shared<ThreadPool>(threads == nullptr ? 1 : std::atoi(threads));
}

void count(State& state, double flops, int64_t bytes) {
  const auto runs = static_cast<double>(state.iterations());
  if (flops > 0) state.counters["flops"] = Counter(flops * runs, Counter::kIsRate);
  state.SetBytesProcessed(state.iterations() * bytes);
}

DType dtype_of(const State& state, int arg) {
  return state.range(arg) == 16 ? DType::kBFloat16 : DType::kFloat32;
}

// tokens, in, out, bits
void linear_shapes(benchmark::internal::Benchmark* b) {
  for (const int64_t bits : {32, 16}) {
    b->Args({kTokens, 256, 256, bits})->Args({kTokens, 256, 688, bits});
    b->Args({kTokens, 688, 256, bits})->Args({kTokens, 768, 768, bits});
    b->Args({kTokens, 768, 2048, bits})->Args({kTokens, 2048, 768, bits});
    b->Args({1, 768, 2048, bits})->Args({kTokens, 2048, 2048, bits});
  }
}

template <class F>
void linear_bench(State& state, const F& f) {
  set_threads();
  const int64_t m = state.range(0);
  const int64_t k = state.range(1);
  const int64_t n = state.range(2);
  const DType dtype = dtype_of(state, 3);
  const Tensor x = random({m, k}, dtype);
  const Tensor w = random({n, k}, dtype);
  const Tensor g = random({m, n}, dtype);
  for (auto _ : state) benchmark::DoNotOptimize(f(x, w, g));
  count(state, 2.0 * static_cast<double>(m * n * k),
        x.size_bytes() + w.size_bytes() + g.size_bytes());
}

void linear(State& state) {
  linear_bench(state,
               [](const Tensor& x, const Tensor& w, const Tensor&) { return cpu::linear(x, w); });
}
void linear_dx(State& state) {
  linear_bench(
      state, [](const Tensor&, const Tensor& w, const Tensor& g) { return cpu::linear_dx(g, w); });
}
void linear_dw(State& state) {
  linear_bench(
      state, [](const Tensor& x, const Tensor&, const Tensor& g) { return cpu::linear_dw(g, x); });
}
BENCHMARK(linear)->Apply(linear_shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(linear_dx)->Apply(linear_shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(linear_dw)->Apply(linear_shapes)->Unit(benchmark::kMicrosecond);

// batch, positions, groups, heads a group, d
void attention_shapes(benchmark::internal::Benchmark* b) {
  b->Args({8, 256, 8, 1, 32})->Args({8, 256, 4, 3, 64})->Args({1, 2048, 4, 3, 64});
}
// Of the scores that are seen: half of them.
double attention_flops(const State& s, double products) {
  const auto t = static_cast<double>(s.range(1));
  return products * t * (t + 1) * static_cast<double>(s.range(0) * s.range(2) * s.range(3)) *
         static_cast<double>(s.range(4));
}
struct Qkv {
  Tensor q, k, v;
  explicit Qkv(const State& s)
      : q(random({s.range(0), s.range(1), s.range(2), s.range(3), s.range(4)})),
        k(random({s.range(0), s.range(1), s.range(2), s.range(4)})),
        v(k.clone()) {}
};
void attention_forward(State& state) {
  set_threads();
  const Qkv x(state);
  for (auto _ : state) benchmark::DoNotOptimize(cpu::attention_forward(x.q, x.k, x.v, {}));
  count(state, attention_flops(state, 2), 2 * (x.q.size_bytes() + x.k.size_bytes()));
}
void attention_backward(State& state) {
  set_threads();
  const Qkv x(state);
  const cpu::AttentionResult f = cpu::attention_forward(x.q, x.k, x.v, {});
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::attention_backward(x.q, x.q, x.k, x.v, f, {}));
  }
  count(state, attention_flops(state, 5), 4 * (x.q.size_bytes() + x.k.size_bytes()));
}
BENCHMARK(attention_forward)->Apply(attention_shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(attention_backward)->Apply(attention_shapes)->Unit(benchmark::kMicrosecond);

// One position against a cache: keys, groups, heads a group, d
void attention_generate(State& state) {
  set_threads();
  const Tensor q = random({1, 1, state.range(1), state.range(2), state.range(3)});
  const Tensor k = random({1, state.range(0), state.range(1), state.range(3)});
  const Tensor v = k.clone();
  const cpu::AttentionParams params{.query_offset = state.range(0) - 1};
  for (auto _ : state) benchmark::DoNotOptimize(cpu::attention_forward(q, k, v, params));
  count(state, 4.0 * static_cast<double>(q.numel() * state.range(0)),
        k.size_bytes() + v.size_bytes());
}
BENCHMARK(attention_generate)
    ->Args({256, 3, 3, 64})
    ->Args({2048, 3, 3, 64})
    ->Args({2048, 8, 1, 64})
    ->Unit(benchmark::kMicrosecond);

void widths(benchmark::internal::Benchmark* b) {
  for (const int64_t bits : {32, 16}) b->Args({256, bits})->Args({768, bits});
}
void rms_norm(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor w = random({state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) benchmark::DoNotOptimize(cpu::rms_norm(x, w, 1e-5));
  count(state, 0, 2 * x.size_bytes());
}
void rms_norm_backward(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor w = random({state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) benchmark::DoNotOptimize(cpu::rms_norm_backward(x, x, w, 1e-5));
  count(state, 0, 3 * x.size_bytes());
}
void rope(State& state) {
  set_threads();
  const int64_t d = 64;
  const Tensor x = random({8, kTokens / 8, state.range(0) / d, d}, dtype_of(state, 1));
  const Tensor table = random({kTokens / 8, d});
  for (auto _ : state) benchmark::DoNotOptimize(cpu::rope(x, table, table));
  count(state, 0, 2 * x.size_bytes());
}
void layer_norm(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor w = random({state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::layer_norm(x, cpu::row_stats(x, 1e-5), w, w));
  }
  count(state, 0, 2 * x.size_bytes());
}
BENCHMARK(layer_norm)->Apply(widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(rms_norm)->Apply(widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(rms_norm_backward)->Apply(widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(rope)->Apply(widths)->Unit(benchmark::kMicrosecond);

void inner_widths(benchmark::internal::Benchmark* b) {
  for (const int64_t bits : {32, 16}) b->Args({688, bits})->Args({2048, bits});
}
void silu_mul(State& state) {
  set_threads();
  const Tensor a = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor b = a.clone();
  for (auto _ : state) benchmark::DoNotOptimize(cpu::silu_mul(a, b));
  count(state, 0, 3 * a.size_bytes());
}
void silu_mul_backward(State& state) {
  set_threads();
  const Tensor a = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor b = a.clone();
  const Tensor g = a.clone();
  for (auto _ : state) benchmark::DoNotOptimize(cpu::silu_mul_backward(g, a, b));
  count(state, 0, 5 * a.size_bytes());
}
void add(State& state) {
  set_threads();
  const Tensor a = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor b = a.clone();
  for (auto _ : state) benchmark::DoNotOptimize(cpu::add(a, b));
  count(state, 0, 3 * a.size_bytes());
}
void gelu(State& state) {
  set_threads();
  const Tensor a = random({kTokens, state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) benchmark::DoNotOptimize(cpu::unary(cpu::UnaryOp::kGelu, a));
  count(state, 0, 2 * a.size_bytes());
}
BENCHMARK(gelu)->Apply(inner_widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(silu_mul)->Apply(inner_widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(silu_mul_backward)->Apply(inner_widths)->Unit(benchmark::kMicrosecond);
BENCHMARK(add)->Apply(inner_widths)->Unit(benchmark::kMicrosecond);

// Classes, bits.
void vocabularies(benchmark::internal::Benchmark* b) {
  for (const int64_t bits : {32, 16}) b->Args({256, bits})->Args({8192, bits});
}
void softmax_stats(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) benchmark::DoNotOptimize(cpu::softmax_stats(x));
  count(state, 0, x.size_bytes());
}
void softmax(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::softmax(x, cpu::softmax_stats(x), cpu::SoftmaxForm::kPlain));
  }
  count(state, 0, 2 * x.size_bytes());
}
void cross_entropy_backward(State& state) {
  set_threads();
  const Tensor x = random({kTokens, state.range(0)}, dtype_of(state, 1));
  const Tensor targets = Tensor::zeros({kTokens}, DType::kInt64);
  const cpu::SoftmaxStats stats = cpu::softmax_stats(x);
  const cpu::ClassPart part{.classes = {0, state.range(0)}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::cross_entropy_backward(x, stats, targets, part, 1.0));
  }
  count(state, 0, 2 * x.size_bytes());
}
BENCHMARK(softmax)->Apply(vocabularies)->Unit(benchmark::kMicrosecond);
BENCHMARK(softmax_stats)->Apply(vocabularies)->Unit(benchmark::kMicrosecond);
BENCHMARK(cross_entropy_backward)->Apply(vocabularies)->Unit(benchmark::kMicrosecond);

// Elements.
void adamw(State& state) {
  set_threads();
  const Tensor p = random({state.range(0)});
  const Tensor g = p.clone();
  const Tensor m = Tensor::zeros(p.shape());
  const Tensor v = Tensor::zeros(p.shape());
  for (auto _ : state) cpu::adamw_step(p, g, m, v, {.lr = 1e-6, .weight_decay = 0.1});
  count(state, 0, 7 * p.size_bytes());
}
void sum_of_squares(State& state) {
  set_threads();
  const Tensor p = random({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(cpu::sum_of_squares(p));
  count(state, 0, p.size_bytes());
}
void sum_rows(State& state) {
  set_threads();
  const Tensor p = random({kTokens, state.range(0) / kTokens});
  const int rows[] = {0};
  for (auto _ : state) benchmark::DoNotOptimize(cpu::sum(p, rows));
  count(state, 0, p.size_bytes());
}
BENCHMARK(adamw)->Arg(256 * 688)->Arg(4 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(sum_of_squares)->Arg(256 * 688)->Arg(4 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(sum_rows)->Arg(256 * 2048)->Arg(4 << 20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace dtensor

BENCHMARK_MAIN();

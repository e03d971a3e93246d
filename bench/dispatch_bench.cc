// What an op costs beside its kernel: add, mm, relu and view of 8x8 DTensors cut over two ranks.
//   bazel run //bench:dispatch_bench -- --benchmark_repetitions=9
// "plain" is the kernel on this rank's Tensors with a new result, "result" the making of such a
// result alone: the kernel into memory that is there is plain - result. bench/dispatch subtracts.
// No op here sends, so one rank runs alone.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/local/local.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/gemm.h"
#include "dtensor/ops/cpu/unary.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"

namespace dtensor {
namespace {

// The operands, made once.
struct Operands {
  std::vector<std::unique_ptr<comm::Comm>> world = comm::local::make_world(2);
  DeviceMesh mesh{*world[0], {{"d", 2}}};
  DTensor x = randn({8, 8}, mesh, {Shard(0)});
  DTensor y = randn({8, 8}, mesh, {Shard(0)}, {.stream = "y"});
  DTensor w = randn({8, 8}, mesh, {Replicate()});
  DTensor leaf = x.detach();
  Tensor lx = x.local_tensor();
  Tensor ly = y.local_tensor();
  Tensor lw = w.local_tensor();
};

template <class F>
void run(const std::string& name, const F& f) {
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(f());
  });
}

// `op` of an operand x, which wants a gradient in "recorded".
template <class Op, class Plain>
void run_op(const std::string& name, const Operands& o, const Op& op, const Plain& plain) {
  run(name + "/plain", plain);
  run(name + "/result", [shape = plain().shape()] { return Tensor::empty(shape); });
  run(name + "/cached", [&o, op] {
    const NoGrad no_grad;
    return op(o.x);
  });
  run(name + "/recorded", [&o, op] { return op(o.leaf); });
}

void run_all(Operands& o) {
  o.leaf.set_requires_grad(true);
  run_op(
      "add", o, [&o](const DTensor& x) { return add(x, o.y); },
      [&o] { return cpu::add(o.lx, o.ly); });
  run_op(
      "mm", o, [&o](const DTensor& x) { return matmul(x, o.w); },
      [&o] { return cpu::matmul(o.lx, o.lw); });
  run_op(
      "relu", o, [](const DTensor& x) { return relu(x); },
      [&o] { return cpu::unary(cpu::UnaryOp::kRelu, o.lx); });
  run("view/plain", [&o] { return o.lx.view({4, 2, 4}); });
  run("view/cached", [&o] {
    const NoGrad no_grad;
    return reshape(o.x, {8, 2, 4});
  });
  run("view/recorded", [&o] { return reshape(o.leaf, {8, 2, 4}); });
  run("backward", [&o] {
    o.leaf.set_grad({});
    DTensor loss = sum(mul(o.leaf, o.y));
    loss.backward();
    return loss;
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  dtensor::Operands operands;
  dtensor::run_all(operands);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

// The C++ of docs/custom_op.md.

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/tests/ops/prover.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

// clang-format off
DTensor scale_columns(const DTensor& x, const DTensor& w, CallSite site = CallSite::here()) {
  ops::check_same_dtype("scale_columns", {x, w});
  const Rule rule{.op = "scale_columns",
                  .letters = "ij,j->ij",
                  .linear = {{0}, {1}},
                  .names = {"x", "w"}};
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    const Tensor y = in[0].clone();  // pieces may be strided or empty; y is neither strided nor shared
    const std::vector<double> factors = in[1].to_vector<double>();
    for (int64_t i = 0; i < y.numel(); ++i) {
      y.data<double>()[i] *= factors[static_cast<size_t>(i % y.size(1))];
    }
    return ops::Tensors{y};
  };
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [x = Saved(in[0], "scale_columns"), w = Saved(in[1], "scale_columns")](
               std::span<const DTensor> g) {
      return Grads{scale_columns(g[0], w.value()), sum(mul(g[0], x.value()), {0})};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {x, w});
}

void proves_scale_columns(const DeviceMesh& mesh) {
  const ops::OpEntry entry{"scale_columns", "", {{{5, 4}}, {{4}}}, [](std::span<const DTensor> in) {
                             return scale_columns(in[0], in[1]);
                           }};
  const testing::ProverReport report = testing::prove(entry, mesh, {});
  EXPECT_TRUE(report.wrong.empty() && report.missing.empty());
  EXPECT_GT(report.taken, 0);
}
// clang-format on

TEST(CustomOpPage, RunsItsExamples) {
  for (const std::vector<MeshDim>& dims :
       {std::vector<MeshDim>{{"a", 3}}, std::vector<MeshDim>{{"a", 2}, {"b", 2}}}) {
    testing::run_ranks(dims.size() == 1 ? 3 : 4,
                       [&](comm::Comm& comm) { proves_scale_columns(DeviceMesh(comm, dims)); });
  }
}

}  // namespace
}  // namespace dtensor

// Redistribute with another dtype on the wire.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"
#include "dtensor/tests/tensor/test_ops.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;
constexpr DType kBf16 = DType::kBFloat16;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

float rounded(float x) { return static_cast<float>(BFloat16(x)); }

// Numbers that bfloat16 does not hold.
Floats fine(int64_t n, int salt = 0) {
  Floats all;
  for (int64_t i = 0; i < n; ++i) {
    all.push_back(1.0F + static_cast<float>((i * 37 + salt * 101) % 509) / 512.0F);
  }
  return all;
}

Tensor tensor_of(const Floats& v, const Shape& shape) {
  return Tensor::of(std::span<const float>(v), shape);
}

TEST(WireDtype, EveryElementOfWhatMovesIsRoundedOnceAndReplicasAreAlike) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const Floats all = fine(35);
    Floats want;
    for (const float x : all) want.push_back(rounded(x));
    for (const auto& [from, to] : std::vector<std::pair<Placement, Placement>>{
             {Shard(0), Replicate()}, {Shard(0), Shard(1)}, {Shard(1), Replicate()}}) {
      const DTensor t = distribute(tensor_of(all, {7, 5}), mesh, {from});
      ledger().clear();
      const int64_t before = comm.counters().payload_bytes_sent;
      const DTensor moved = redistribute(t, {to}, {.wire_dtype = kBf16});
      const int64_t sent = comm.counters().payload_bytes_sent - before;
      EXPECT_EQ(moved.dtype(), DType::kFloat32);
      EXPECT_EQ(moved.local_tensor().to_vector<float>(),
                testing::piece_of(moved.layout(), *mesh.coordinate(), want).to_vector<float>());
      ASSERT_EQ(ledger().entries().size(), 1U);
      const LedgerEntry e = ledger().entries()[0];
      EXPECT_EQ(e.wire_dtype, kBf16);
      EXPECT_EQ(e.payload_bytes, 2 * e.wire_bytes);
      EXPECT_EQ(ledger().wire_bytes(), e.wire_bytes);
      // pytorch#188946: what the Comms counted is what the ledger says.
      const DTensor counted(Tensor::of<int64_t>({sent}, {1}),
                            Layout(mesh.layout(), {1}, {Partial()}), mesh);
      EXPECT_EQ(counted.item(), static_cast<double>(e.wire_bytes));
    }
  });
}

TEST(WireDtype, ReductionsRoundTheTermsAndTheSumOnce) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const int64_t n = 11;
    Floats want;
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;  // in float32, in the order of ranks
      for (int r = 0; r < 4; ++r) sum += rounded(fine(n, r)[static_cast<size_t>(i)]);
      want.push_back(rounded(sum));
    }
    const DTensor t(tensor_of(fine(n, comm.rank()), {n}), Layout(mesh.layout(), {n}, {Partial()}),
                    mesh);
    const DTensor r = redistribute(t, {Replicate()}, {.wire_dtype = kBf16});
    EXPECT_EQ(r.local_tensor().to_vector<float>(), want);
    const DTensor s = redistribute(t, {Shard(0)}, {.wire_dtype = kBf16});
    EXPECT_EQ(s.local_tensor().to_vector<float>(),
              testing::piece_of(s.layout(), *mesh.coordinate(), want).to_vector<float>());
    EXPECT_EQ(ledger().entries()[0].wire_bytes, 2 * 3 * n * 2);
  });
}

TEST(WireDtype, RoundsNothingWhereNothingIsSent) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Floats all = fine(6);
    const DTensor r = distribute(tensor_of(all, {6}), mesh, {});
    const DTensor s = redistribute(r, {Shard(0)}, {.wire_dtype = kBf16});
    EXPECT_EQ(s.local_tensor().to_vector<float>(),
              testing::piece_of(s.layout(), *mesh.coordinate(), all).to_vector<float>());
    const DTensor p = redistribute(r, {Partial(PartialOp::kMin)}, {.wire_dtype = kBf16});
    EXPECT_EQ(p.local_tensor().storage(), r.local_tensor().storage());
  });
}

TEST(WireDtype, MayBeWiderForABetterSum) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t(tensor_of(fine(5, comm.rank()), {5}).to(kBf16),
                    Layout(mesh.layout(), {5}, {Partial()}), mesh);
    const DTensor r = redistribute(t, {Replicate()}, {.wire_dtype = DType::kFloat32});
    EXPECT_EQ(r.dtype(), kBf16);
    Floats want;
    for (size_t i = 0; i < 5; ++i)
      want.push_back(rounded(rounded(fine(5, 0)[i]) + rounded(fine(5, 1)[i])));
    EXPECT_EQ(r.local_tensor().to(DType::kFloat32).to_vector<float>(), want);
  });
}

TEST(WireDtype, OfTheGradientIsAskedForApart) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor w = distribute(tensor_of(fine(6), {6}), mesh, {Shard(0)});
    w.set_requires_grad(true);
    const float factor = comm.rank() == 0 ? 1.0F / 3 : 1.0F / 7;
    const auto gradient = [&](const RedistributeOptions& options) {
      w.set_grad({});
      // Each rank scales its copy differently: a Partial gradient, reduced by the adjoint.
      const DTensor r = redistribute(w, {Replicate()}, options);
      const DTensor mine = local(r, {.grad = GradPlacement::kPartial});
      testing::total(testing::scale(mine, factor)).backward();
      return w.grad().local_tensor().to_vector<float>()[0];
    };
    EXPECT_EQ(gradient({.wire_dtype = kBf16}), 1.0F / 3 + 1.0F / 7);
    ledger().clear();
    EXPECT_EQ(gradient({.grad_wire_dtype = kBf16}), rounded(rounded(1.0F / 3) + rounded(1.0F / 7)));
    ASSERT_EQ(ledger().entries().size(), 2U);
    EXPECT_EQ(ledger().entries()[0].wire_dtype, DType::kFloat32);
    EXPECT_EQ(ledger().entries()[1].wire_dtype, kBf16);
    EXPECT_EQ(ledger().entries()[1].cause, Cause::kAdjoint);
  });
}

TEST(WireDtype, IsForFloatingNumbers) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor ints = distribute(Tensor::arange(4, DType::kInt32), mesh, {Shard(0)});
    EXPECT_THROW(static_cast<void>(redistribute(ints, {Replicate()}, {.wire_dtype = kBf16})),
                 ArgumentError);
    const DTensor t = distribute(Tensor::arange(4), mesh, {Shard(0)});
    EXPECT_THROW(static_cast<void>(redistribute(t, {Replicate()}, {.wire_dtype = DType::kInt8})),
                 ArgumentError);
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

}  // namespace
}  // namespace dtensor

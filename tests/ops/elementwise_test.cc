#include "dtensor/ops/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// pytorch#163193: a number added to a Partial counts once, however it is written.
TEST(Add, ANumberToAPartialCountsOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor s = sum(distribute(counted({10, 1}), mesh, {Shard(0)}));
    EXPECT_EQ(piece(s)[0], comm.rank() == 0 ? 10 : 35);
    const DTensor ten(floats({10}, {}));
    const DTensor ten_on_mesh = replicate(ten, mesh);
    const DTensor up = add(s, 10.0);
    EXPECT_EQ(up.spec().placement(0), Partial());
    EXPECT_EQ(piece(up)[0], comm.rank() == 0 ? 20 : 35);
    EXPECT_EQ(moved_bytes(), 0);
    for (const DTensor& t : {up, add(s, ten), add(ten, s), add(s, ten_on_mesh)}) {
      EXPECT_THAT(whole(t), ElementsAre(55));
    }
    for (const DTensor& t : {sub(s, 10.0), sub(s, ten), sub(s, ten_on_mesh)}) {
      EXPECT_THAT(whole(t), ElementsAre(35));
    }
    for (const DTensor& t : {add(neg(s), 10.0), sub(ten, s), sub(ten_on_mesh, s)}) {
      EXPECT_THAT(whole(t), ElementsAre(-35));
    }
    const DTensor plain(floats({10}, {1}));
    EXPECT_THAT(placement_error([&] { add(s, plain); }), HasSubstr("use replicate(b, mesh)"));
  });
}

// pytorch#159856, pytorch#163374: nonlinear ops do not see the parts.
TEST(NonlinearOps, RefuseAPartialOrResolveItUnderAuto) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{-3}, {5}}, {1}, mesh);
    const DTensor v = partial({{1, 3}, {2, 1}}, {2}, mesh);
    const std::string e = placement_error([&] { relu(x); });
    EXPECT_THAT(e, HasSubstr("relu: a f32[1] is P(sum) on mesh dim \"dp\" (2 ranks)"));
    EXPECT_THAT(e, HasSubstr("redistribute(a, {Replicate()})"));
    EXPECT_THAT(e, HasSubstr("bytes per rank"));
    EXPECT_THAT(placement_error([&] { mul(x, x); }), HasSubstr("redistribute("));
    EXPECT_THAT(placement_error([&] { amax(v); }), HasSubstr("redistribute("));
    EXPECT_EQ(moved_bytes(), 0);

    const PolicyScope policy(RedistributePolicy::kAuto);
    for (const auto& [y, want] : {std::pair{relu(x), 2.0F}, {mul(x, x), 4.0F}, {amax(v), 4.0F}}) {
      EXPECT_TRUE(y.spec().is_replicated());
      EXPECT_THAT(piece(y), ElementsAre(want));
    }
    EXPECT_EQ(x.spec().placement(0), Partial()) << "the operand is as it was";
    const auto& entries = Context::current().slot<Ledger>().entries();
    ASSERT_EQ(entries.size(), 3U) << "x * x moves x once";
    EXPECT_EQ(entries.back().cause, Cause::kAutomatic);
    EXPECT_EQ(entries.back().kind, StepKind::kAllReduce);
  });
}

// pytorch#147180, pytorch#153603: a scalar argument is no part of what is cached.
TEST(Clamp, RefusesAPartialOrResolvesItUnderAuto) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{70}, {74}}, {}, mesh);
    EXPECT_THAT(placement_error([&] { clamp(x, {.max = 2.0}); }),
                HasSubstr("redistribute(a, {Replicate()})"));
    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor y = clamp(x, {.max = 2.0});
    EXPECT_TRUE(y.spec().is_replicated());
    EXPECT_THAT(piece(y), ElementsAre(2));
  });
}

TEST(Clamp, WantsAnOrderedRange) {
  const DTensor x(counted({4}));
  EXPECT_THAT(piece(clamp(x, {.min = 1.0})), ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(piece(clamp(x, {.min = 1.0, .max = 2.0})), ElementsAre(1, 1, 2, 2));
  EXPECT_THROW(clamp(x, {.min = 2.0, .max = 1.0}), ArgumentError);
}

// pytorch#147180, pytorch#153603: a comparison sees values, not parts.
TEST(Compare, RefusesAPartialOrResolvesItUnderAuto) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{1}, {2}}, {1}, mesh);
    const DTensor down = mul(x, -5.0);
    const DTensor up = mul(x, 2.0);
    EXPECT_EQ(up.spec().placement(0), Partial());
    EXPECT_THAT(placement_error([&] { eq(down, up); }), HasSubstr("redistribute("));
    EXPECT_THAT(placement_error([&] { gt(x, 2.5); }), HasSubstr("redistribute("));
    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor same = eq(down, up);
    EXPECT_EQ(same.dtype(), DType::kBool);
    EXPECT_EQ(same.local_tensor().to_vector<bool>(), std::vector<bool>{false});
    EXPECT_EQ(gt(x, 2.5).local_tensor().to_vector<bool>(), std::vector<bool>{true});
  });
}

TEST(Where, OfAPartialCountsANumberOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{1, 2, 3}, {10, 20, 30}}, {3}, mesh);
    const DTensor mask = replicate(DTensor(ids({0, 1, 0}, {3})), mesh);
    const DTensor y = masked_fill(x, mask, 7.0);
    EXPECT_EQ(y.spec().placement(0), Partial());
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(y), ElementsAre(11, 7, 33));
    EXPECT_THAT(whole(where(mask, 7.0, x)), ElementsAre(11, 7, 33));
    EXPECT_THAT(whole(div(x, 2.0)), ElementsAre(5.5F, 11, 16.5F));
    EXPECT_THAT(placement_error([&] { div(2.0, x); }), HasSubstr("redistribute("));
    EXPECT_THAT(placement_error([&] { where(x, 1.0, x); }), HasSubstr("redistribute("));
  });
}

TEST(Scale, OfTwoFactorsGivesTwoResults) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{1}, {2}}, {1}, mesh);
    EXPECT_THAT(whole(mul(x, -5.0)), ElementsAre(-15));
    EXPECT_THAT(whole(mul(x, 2.0)), ElementsAre(6));
    const DTensor top = partial({{3}, {7}}, {1}, mesh, PartialOp::kMax);
    EXPECT_THAT(placement_error([&] { mul(top, -1.0); }), HasSubstr("P(max)"));
  });
}

// pytorch#172932, pytorch#160285: R and Partial gradients add up once each.
TEST(Gradients, ReplicatedAndPartialOnesAddUpOnceEach) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(floats({1, 2, 3}, {3}), mesh, {Shard(0)});
    const auto gradient = [&](const std::function<DTensor(const DTensor&)>& loss) {
      const DTensor w = leaf(floats({5}, {}), mesh, {});
      DTensor l = loss(w);
      const int64_t before = moved_bytes();
      l.backward();
      EXPECT_EQ(moved_bytes() - before, 8) << "one all-reduce of one float";
      return piece(w.grad())[0];
    };
    EXPECT_EQ(gradient([&](const DTensor& w) { return add(sum(mul(w, x)), mul(w, 3.0)); }), 9);
    EXPECT_EQ(gradient([&](const DTensor& w) { return sum(mul(mul(w, 2.0), x)); }), 12);
    EXPECT_FLOAT_EQ(gradient([&](const DTensor& w) { return sum(mul(exp(w), x)); }), 890.47895F);
  });
}

TEST(Broadcast, OfADimOfSizeOneDoesNotTakeACut) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({3, 4}), mesh, {Shard(1)});
    const DTensor one = distribute(counted({3, 1}), mesh, {Replicate()});
    EXPECT_THAT(whole(add(x, one)), ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13));
    const DTensor cut = distribute(counted({3, 1}), mesh, {Shard(1)});
    EXPECT_THAT(placement_error([&] { add(x, cut); }), HasSubstr("redistribute(b, {Replicate()})"));
  });
}

TEST(Cast, PassesAPartialBetweenFloatingTypesOnly) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = partial({{1.5F}, {2.25F}}, {1}, mesh);
    EXPECT_EQ(cast(x, DType::kFloat64).spec().placement(0), Partial());
    EXPECT_NE(placement_error([&] { cast(x, DType::kInt64); }), "");
    EXPECT_EQ(cast(x, DType::kFloat32).impl(), x.impl());
  });
}

// 0.1 and 2.2 are no bf16: forward and backward see the same number.
TEST(Numbers, AreNotRoundedForTheGradient) {
  const auto slope = [](double at, const std::function<DTensor(const DTensor&)>& f) {
    DTensor x(Tensor::full({}, at, DType::kBFloat16));
    x.set_requires_grad(true);
    f(x).backward();
    return x.grad().item();
  };
  EXPECT_EQ(slope(0.1, [](const DTensor& x) { return maximum(x, 0.1); }), 1) << "it is 0.1001";
  EXPECT_EQ(slope(0.1, [](const DTensor& x) { return minimum(x, 0.1); }), 0);
  const double want = 2.2 * std::pow(1000, 1.2);
  EXPECT_NEAR(slope(1000, [](const DTensor& x) { return pow(x, 2.2); }), want, want / 256);
}

// By way of f32, rounded once: half of 2^-10 of the value.
// 1.003 in bf16 is 1, and 257 between 256 and 258 would be 256.
TEST(Numbers, AreNotRoundedInSums) {
  const auto value = [](const DTensor& y) {
    EXPECT_EQ(y.dtype(), DType::kBFloat16);
    return whole(cast(y, DType::kFloat32));
  };
  const Tensor x = floats({256}, {1}).to(DType::kBFloat16);
  const Tensor minus = floats({-256}, {1}).to(DType::kBFloat16);
  EXPECT_THAT(value(add(DTensor(x), 1.003)), ElementsAre(258));
  EXPECT_THAT(value(sub(DTensor(minus), 1.003)), ElementsAre(-258));
  EXPECT_THAT(value(sub(1.003, DTensor(minus))), ElementsAre(258));
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    // Outside the mesh, too, the result has the dtype of x.
    const DeviceMesh first(comm, {{"dp", 1}}, {0});
    const DTensor there = distribute(x, first, {Replicate()});
    EXPECT_EQ(sub(1.0, there).dtype(), DType::kBFloat16);
    EXPECT_EQ(mul(sub(1.0, there), there).dtype(), DType::kBFloat16);
    // Beside a P(sum) it counts once.
    const DTensor y = cast(partial({{256}, {4}}, {1}, mesh), DType::kBFloat16);
    const DTensor up = add(y, 1.003);
    EXPECT_EQ(up.spec().placement(0), Partial());
    EXPECT_EQ(up.local_tensor().to(DType::kFloat32).to_vector<float>()[0],
              comm.rank() == 0 ? 258 : 4);
    DTensor w = replicate(DTensor(x), mesh);
    w.set_requires_grad(true);
    sum(sub(2.0, add(w, 1.003))).backward();
    EXPECT_THAT(whole(cast(w.grad(), DType::kFloat32)), ElementsAre(-1));
  });
}

TEST(SiluMul, TakesF16) {
  DTensor a(floats({-1.5F, 0.5F, 2}, {3}).to(DType::kFloat16));
  DTensor b(floats({2, -3, 0.25F}, {3}).to(DType::kFloat16));
  a.set_requires_grad(true);
  b.set_requires_grad(true);
  const DTensor y = silu_mul(a, b);
  EXPECT_EQ(y.dtype(), DType::kFloat16);
  sum(y).backward();
  EXPECT_EQ(a.grad().dtype(), DType::kFloat16);
  const std::vector<double> x = {-1.5, 0.5, 2};
  const std::vector<double> by = {2, -3, 0.25};
  const auto expect = [](const DTensor& got, size_t i, double want) {
    const float value = got.local_tensor().to(DType::kFloat32).to_vector<float>()[i];
    EXPECT_NEAR(value, want, std::fabs(want) * 0x1p-11);
  };
  for (size_t i = 0; i < 3; ++i) {
    const double s = 1 / (1 + std::exp(-x[i]));
    expect(y, i, x[i] * s * by[i]);
    expect(a.grad(), i, by[i] * s * (1 + x[i] * (1 - s)));
    expect(b.grad(), i, x[i] * s);
  }
}

TEST(Operands, OfTwoDtypesAreRefused) {
  const DTensor a(counted({2}));
  const DTensor b(Tensor::arange(2, DType::kInt64));
  EXPECT_THROW(add(a, b), ArgumentError);
  EXPECT_THROW(add(b, 0.5), ArgumentError);
  EXPECT_THROW(add(a, DTensor()), ArgumentError);
}

// As arithmetic of more bits, of which the lowest are kept.
TEST(Numbers, BeyondTheDtypeWrapInSums) {
  const DTensor bytes(Tensor::of<uint8_t>({0, 5, 255}, {3}));
  const DTensor small(Tensor::of<int8_t>({-128, 5, 127}, {3}));
  const auto u8 = [](const DTensor& t) { return t.local_tensor().to_vector<uint8_t>(); };
  const auto i8 = [](const DTensor& t) { return t.local_tensor().to_vector<int8_t>(); };
  EXPECT_EQ(u8(add(bytes, -1.0)), (std::vector<uint8_t>{255, 4, 254}));
  EXPECT_EQ(u8(sub(bytes, -1.0)), (std::vector<uint8_t>{1, 6, 0}));
  EXPECT_EQ(u8(sub(-1.0, bytes)), (std::vector<uint8_t>{255, 250, 0}));
  EXPECT_EQ(u8(mul(bytes, 257.0)), (std::vector<uint8_t>{0, 5, 255}));
  EXPECT_EQ(i8(add(small, 1000.0)), (std::vector<int8_t>{104, -19, 103}));  // 1000 = 4 * 256 - 24
  EXPECT_EQ(i8(mul(small, 1000.0)), (std::vector<int8_t>{0, -120, 24}));
  const DTensor words(Tensor::of<int32_t>({1}, {1}));
  EXPECT_EQ(add(words, 4294967295.0).local_tensor().to_vector<int32_t>()[0], 0);
  EXPECT_THROW(add(words, 1e19), ArgumentError);  // of no 64 bits
  EXPECT_THROW(add(words, HUGE_VAL), ArgumentError);
}

TEST(Numbers, BeyondTheDtypeAreComparedAsTheyAre) {
  const DTensor x(Tensor::of<int8_t>({-128, 5, 127}, {3}));
  const auto i8 = [](const DTensor& t) { return t.local_tensor().to_vector<int8_t>(); };
  const std::vector<int8_t> same{-128, 5, 127};
  EXPECT_EQ(i8(minimum(x, 1000.0)), same);
  EXPECT_EQ(i8(maximum(x, -1000.0)), same);
  EXPECT_EQ(i8(clamp(x, {.min = -1000.0, .max = 200.0})), same);
  const DTensor below = lt(x, 1000.0);
  EXPECT_EQ(below.local_tensor().to(DType::kUInt8).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_EQ(gt(x, -129.0).local_tensor().to(DType::kUInt8).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 1, 1}));
  // Results would be numbers that i8 does not hold.
  EXPECT_THROW(maximum(x, 1000.0), ArgumentError);
  EXPECT_THROW(minimum(x, -1000.0), ArgumentError);
  EXPECT_THROW(clamp(x, {.min = 200.0}), ArgumentError);
  EXPECT_THROW(clamp(x, {.max = -129.0}), ArgumentError);
  EXPECT_THROW(remainder(x, 1000.0), ArgumentError);
  EXPECT_THROW(masked_fill(x, lt(x, 0.0), 128.0), ArgumentError);
  EXPECT_EQ(i8(masked_fill(x, lt(x, 0.0), 127.0)), (std::vector<int8_t>{127, 5, 127}));
}

// Parts that hold -0.0 would become NaN, and finite ones of both signs, inf - inf.
TEST(Scale, ByInfinityWantsTheSum) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor p = redistribute(distribute(floats({3}, {1}), mesh, {Replicate()}), {Partial()});
    EXPECT_THROW(mul(p, HUGE_VAL), PlacementError);
    EXPECT_THROW(mul(p, 1e300), PlacementError);  // infinite in f32
    EXPECT_THROW(div(p, 0.0), PlacementError);
    EXPECT_THAT(whole(mul(redistribute(p, {Replicate()}), HUGE_VAL)), ElementsAre(HUGE_VALF));
    EXPECT_THAT(whole(div(p, HUGE_VAL)), ElementsAre(0));
    const PolicyScope automatic(RedistributePolicy::kAuto);
    EXPECT_THAT(whole(div(p, 0.0)), ElementsAre(HUGE_VALF));
    // A gradient that is P(sum) is summed first.
    const DTensor w = leaf(floats({3}, {1}), mesh, {Replicate()});
    const DTensor x = distribute(floats({1, -0.5}, {2}), mesh, {Shard(0)});
    sum(mul(mul(w, HUGE_VAL), x)).backward();
    EXPECT_THAT(whole(w.grad()), ElementsAre(HUGE_VALF));
  });
}

}  // namespace
}  // namespace dtensor

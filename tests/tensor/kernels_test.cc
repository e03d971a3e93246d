#include "dtensor/tensor/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<int> all_dtypes() {
  std::vector<int> all;
  for (int i = 0; i < kDTypes; ++i) all.push_back(i);
  return all;
}

// Views of 3 x 4 elements over memory of every kind of strides.
std::vector<Tensor> views_3x4(DType dtype) {
  return {Tensor::arange(12, dtype).view({3, 4}),
          Tensor::arange(12, dtype).view({4, 3}).transpose(0, 1),
          Tensor::arange(24, dtype).view({3, 8}).narrow(1, 3, 4),
          Tensor::arange(48, dtype).view({6, 8}).as_strided({3, 4}, {16, 2}, 1)};
}

// Element (i, j), by the definition of strides.
double at(const Tensor& t, int64_t i, int64_t j) {
  const int64_t k = t.offset() + i * t.strides()[0] + j * t.strides()[1];
  const Tensor flat =
      t.as_strided({1}, {1}, k).to(DType::kFloat64);  // cast is tested on its own below
  return flat.to_vector<double>()[0];
}

class EveryDType : public testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }
};

TEST_P(EveryDType, CopiesBetweenStridesOfAllKinds) {
  for (const Tensor& src : views_3x4(dtype())) {
    for (const Tensor& pattern : views_3x4(dtype())) {
      const Tensor memory =
          Tensor::zeros({pattern.storage()->size_bytes() / size_of(dtype())}, dtype());
      const Tensor dst = memory.as_strided(pattern.shape(), pattern.strides(), pattern.offset());
      const uint64_t before = dst.storage()->version();
      kernels::copy(src, dst);
      EXPECT_EQ(dst.storage()->version(), before + 1);
      double sum = 0;
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 4; ++j) {
          EXPECT_EQ(at(dst, i, j), at(src, i, j));
          sum += at(src, i, j);
        }
      }
      double all = 0;  // nothing beside the view was written
      for (const double x : memory.to(DType::kFloat64).to_vector<double>()) all += x;
      EXPECT_EQ(all, sum);
    }
  }
}

TEST_P(EveryDType, AddsAndFillsBetweenStridesOfAllKinds) {
  for (const Tensor& a : views_3x4(dtype())) {
    const Tensor ones = Tensor::full({4, 3}, 1, dtype()).transpose(0, 1);
    const Tensor dst = Tensor::full({3, 4, 2}, 7, dtype()).narrow(2, 1, 1).view({3, 4});
    kernels::add(a, ones, dst);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 4; ++j) {
        EXPECT_EQ(at(dst, i, j), dtype() == DType::kBool ? 1 : at(a, i, j) + 1);
      }
    }
    kernels::add(dst, ones, dst);  // in place
    EXPECT_EQ(at(dst, 2, 3), dtype() == DType::kBool ? 1 : at(a, 2, 3) + 2);
    kernels::fill(dst, 0);
    EXPECT_EQ(at(dst, 1, 1), 0);
    EXPECT_EQ(dst.as_strided({1}, {1}, 0).to(DType::kInt32).to_vector<int32_t>()[0],
              dtype() == DType::kBool ? 1 : 7);
  }
}

TEST_P(EveryDType, TakesEmptyTensorsAndScalars) {
  const Tensor none = Tensor::empty({0, 3}, dtype());
  const uint64_t before = none.storage()->version();
  kernels::copy(none, Tensor::empty({0, 3}, dtype()));
  kernels::fill(none, 1);
  kernels::add(none, none, none);
  // Written, for whoever saved it: other ranks have elements to write.
  EXPECT_EQ(none.storage()->version(), before + 2);
  const Tensor scalar = Tensor::full({}, 1, dtype());
  kernels::copy(scalar, scalar.clone());
  EXPECT_EQ(scalar.to(DType::kInt64).to_vector<int64_t>()[0], 1);
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryDType, testing::ValuesIn(all_dtypes()), [](const auto& p) {
  return std::string(name_of(static_cast<DType>(p.param)));
});

TEST(Kernels, RefuseOperandsThatDiffer) {
  const Tensor a = Tensor::zeros({2, 3});
  EXPECT_THROW(kernels::copy(a, Tensor::zeros({3, 2})), ArgumentError);
  EXPECT_THROW(kernels::copy(a, Tensor::zeros({2, 3}, DType::kInt32)), ArgumentError);
  EXPECT_THROW(kernels::add(a, Tensor::zeros({2, 1}), a), ArgumentError);
  EXPECT_THROW(kernels::cast(a, Tensor::zeros({6}, DType::kInt32)), ArgumentError);
}

TEST(Kernels, CopyTransposesByTilesOfAnySize) {
  for (const Shape& shape :
       std::vector<Shape>{{16, 16}, {17, 33}, {1, 40}, {50, 3, 19}, {2, 5, 40, 18}}) {
    const Tensor t = Tensor::arange(shape.numel(), DType::kInt32).view(shape);
    const auto values = t.to_vector<int32_t>();
    for (int a = 0; a < shape.ndim(); ++a) {
      for (int b = a + 1; b < shape.ndim(); ++b) {
        const Tensor turned = t.transpose(a, b);
        std::vector<int32_t> want;
        for (int64_t i = 0; i < turned.numel(); ++i) {
          int64_t rest = i;
          int64_t from = 0;
          for (int d = turned.ndim() - 1; d >= 0; --d) {
            from += rest % turned.shape()[d] * turned.strides()[d];
            rest /= turned.shape()[d];
          }
          want.push_back(values[static_cast<size_t>(from)]);
        }
        EXPECT_EQ(turned.to_vector<int32_t>(), want) << to_string(shape) << a << b;
      }
    }
  }
}

TEST(Kernels, CopyKeepsThePayloadOfNaNs) {
  const uint32_t bits = 0x7fc12345U;
  const Tensor t = Tensor::full({1}, 0);
  *static_cast<uint32_t*>(t.raw()) = bits;
  EXPECT_EQ(*static_cast<uint32_t*>(t.clone().raw()), bits);
}

TEST(Kernels, FillKeepsTheSignOfZeroAndTheEndsOfTheRange) {
  EXPECT_EQ(*static_cast<uint32_t*>(Tensor::full({1}, -0.0).raw()), 0x80000000U);
  EXPECT_EQ(*static_cast<uint16_t*>(Tensor::full({1}, -0.0, DType::kBFloat16).raw()), 0x8000U);
  EXPECT_EQ(*static_cast<uint16_t*>(Tensor::full({1}, -0.0, DType::kFloat16).raw()), 0x8000U);
  EXPECT_EQ(Tensor::full({1}, kInf, DType::kInt32).to_vector<int32_t>()[0],
            std::numeric_limits<int32_t>::max());
  EXPECT_EQ(Tensor::full({1}, -kInf, DType::kInt64).to_vector<int64_t>()[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Tensor::full({1}, -kInf, DType::kUInt8).to_vector<uint8_t>()[0], 0);
}

TEST(Kernels, AddRoundsSixteenBitSumsOnceAndWrapsIntegers) {
  // 256 + 1 needs nine bits of fraction: a tie in bf16, to even.
  const auto bf = [](float x) { return Tensor::full({1}, x, DType::kBFloat16); };
  const auto sum = [&](float x, float y) {
    const Tensor out = bf(0);
    kernels::add(bf(x), bf(y), out);
    return static_cast<float>(out.to_vector<BFloat16>()[0]);
  };
  EXPECT_EQ(sum(256, 1), 256);
  EXPECT_EQ(sum(258, 1), 260);
  EXPECT_EQ(sum(256, 1.5), 258);
  const Tensor big = Tensor::full({1}, std::numeric_limits<int32_t>::max(), DType::kInt32);
  kernels::add(big, Tensor::full({1}, 1, DType::kInt32), big);
  EXPECT_EQ(big.to_vector<int32_t>()[0], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(std::bit_cast<uint32_t>([] {
              const Tensor z = Tensor::full({1}, -0.0);
              kernels::add(z, z, z);
              return z.to_vector<float>()[0];
            }()),
            0x80000000U);
}

TEST(Kernels, CastToIntegersDropsTheFractionAndStaysInRange) {
  const Tensor t = Tensor::of<double>({1.9, -1.9, kNaN, kInf, -kInf, 300, -300}, {7});
  EXPECT_EQ(t.to(DType::kInt8).to_vector<int8_t>(),
            (std::vector<int8_t>{1, -1, 0, 127, -128, 127, -128}));
  EXPECT_EQ(t.to(DType::kUInt8).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 0, 0, 255, 0, 255, 0}));
  EXPECT_EQ(t.to(DType::kBool).to_vector<bool>(),
            (std::vector<bool>{true, true, true, true, true, true, true}));
  EXPECT_EQ(Tensor::of<float>({2147483648.0F, -2147483648.0F, 2147483520.0F}, {3})
                .to(DType::kInt32)
                .to_vector<int32_t>(),
            (std::vector<int32_t>{2147483647, -2147483647 - 1, 2147483520}));
}

// Rounds a double to `bits` of fraction by the integers around it: no float on the way.
double nearest_even(double x, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // [0.5, 1)
  const double scaled = std::ldexp(fraction, bits + 1);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) != 0)) whole += 1;
  return std::ldexp(whole, exponent - bits - 1);
}

TEST(Kernels, CastFromDoubleRoundsOnceToSixteenBits) {
  // 1 + 2^-8 is a tie in bf16; a little above it must go up, though float32 rounds that little off.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(static_cast<float>(
                Tensor::of<double>({above}, {1}).to(DType::kBFloat16).to_vector<BFloat16>()[0]),
            1.0F + 0x1p-7F);
  std::mt19937_64 random(7);
  std::vector<double> values;
  for (int i = 0; i < 2000; ++i) {
    // Near ties of both formats, and anything.
    const double tie = 1.0 + static_cast<double>(random() % 4096) * 0x1p-12;
    values.push_back(tie + static_cast<double>(static_cast<int64_t>(random() % 3) - 1) * 0x1p-45);
  }
  const Tensor t =
      Tensor::of(std::span<const double>(values), {static_cast<int64_t>(values.size())});
  const auto bf = t.to(DType::kBFloat16).to_vector<BFloat16>();
  const auto f16 = t.to(DType::kFloat16).to_vector<Float16>();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(bf[i])), nearest_even(values[i], 7));
    EXPECT_EQ(static_cast<double>(static_cast<float>(f16[i])), nearest_even(values[i], 10));
  }
}

TEST(Kernels, CastKeepsInfinitiesAndOverflows) {
  const Tensor t = Tensor::of<double>({kInf, -kInf, 1e300, -1e300, 1e-300}, {5});
  const auto bf = t.to(DType::kBFloat16).to_vector<BFloat16>();
  EXPECT_EQ(bf[0].bits, 0x7f80);
  EXPECT_EQ(bf[1].bits, 0xff80);
  EXPECT_EQ(bf[2].bits, 0x7f80);
  EXPECT_EQ(bf[3].bits, 0xff80);
  EXPECT_EQ(bf[4].bits & 0x7fff, 0);
  EXPECT_TRUE(std::isinf(t.to(DType::kFloat32).to_vector<float>()[2]));
  EXPECT_TRUE(std::isnan(static_cast<float>(
      Tensor::of<double>({kNaN}, {1}).to(DType::kFloat16).to_vector<Float16>()[0])));
}

TEST(Kernels, CastsBetweenAllPairsOfDTypes) {
  for (int from = 0; from < kDTypes; ++from) {
    for (int to = 0; to < kDTypes; ++to) {
      const Tensor t = Tensor::arange(6, static_cast<DType>(from)).view({2, 3}).transpose(0, 1);
      const auto got = t.to(static_cast<DType>(to)).to(DType::kFloat64).to_vector<double>();
      std::vector<double> want{0, 3, 1, 4, 2, 5};
      if (static_cast<DType>(from) == DType::kBool || static_cast<DType>(to) == DType::kBool) {
        for (double& x : want) x = x != 0 ? 1 : 0;
      }
      EXPECT_EQ(got, want) << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace dtensor

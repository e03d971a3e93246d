#include "dtensor/ops/cpu/dropout.h"

#include <gtest/gtest.h>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

constexpr RandomStream kStream{.seed = 4, .stream = 9};

Tensor of_whole(const Tensor& x, double p) {
  const Box box{Shape::filled(x.ndim(), 0), x.shape()};
  return cpu::dropout({x, box, x.shape()}, kStream, p);
}

class Dropout : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Dropout, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Dropout, KeepsAboutTheShareAskedForScaledUp) {
  const Tensor x = Tensor::full({300, 100}, 1.5, GetParam());
  const Values y = values(of_whole(x, 0.25));
  int64_t zeros = 0;
  for (const double v : y) {
    EXPECT_TRUE(v == 0 || v == 2) << v;
    zeros += v == 0 ? 1 : 0;
  }
  // 7,500 expected, with a standard deviation of 75.
  EXPECT_NEAR(static_cast<double>(zeros), 7500, 5 * 75);
}

TEST_P(Dropout, OfAPieceIsThePieceOfTheWhole) {
  const Tensor x = random({7, 33, 5}, GetParam(), 1, 1, 2);
  const Tensor whole = of_whole(x, 0.5);
  const Box boxes[] = {{{2, 0, 0}, {3, 33, 5}},
                       {{0, 13, 0}, {7, 9, 5}},
                       {{1, 2, 3}, {4, 6, 2}},
                       {{6, 32, 4}, {1, 1, 1}},
                       {{0, 0, 0}, {0, 33, 5}}};
  for (const Box& box : boxes) {
    Tensor piece = x;
    Tensor want = whole;
    for (int d = 0; d < 3; ++d) {
      piece = piece.narrow(d, box.offset[d], box.size[d]);
      want = want.narrow(d, box.offset[d], box.size[d]);
    }
    EXPECT_EQ(bits(cpu::dropout({strided(piece), box, x.shape()}, kStream, 0.5)),
              bits(want.contiguous()));
  }
}

TEST(Dropout, ThreadsDoNotChangeBits) {
  const Tensor x = random({200'003}, DType::kFloat32, 2);
  const auto run = [&] { return bits(of_whole(x, 0.5)); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

}  // namespace
}  // namespace dtensor

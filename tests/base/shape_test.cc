#include "dtensor/base/shape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dtensor {
namespace {

TEST(Shape, HoldsUpTo8Dims) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.ndim(), 3);
  EXPECT_EQ(shape.back(), 4);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(to_string(shape), "[2,3,4]");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ((Shape{1, 2, 3, 4, 5, 6, 7, 8}).ndim(), 8);
  const std::vector<int64_t> nine(9, 1);
  EXPECT_THROW(Shape{std::span(nine)}, ArgumentError);
  EXPECT_THROW(Shape::filled(9, 1), ArgumentError);
  Shape full = Shape::filled(8, 1);
  EXPECT_THROW(full.push_back(1), ArgumentError);
  Shape grown{2};
  grown.push_back(5);
  EXPECT_EQ(grown, (Shape{2, 5}));
}

TEST(Shape, ComparesOnlyItsOwnDims) {
  Shape a{1, 2};
  EXPECT_FALSE(a == Shape{1});
  EXPECT_FALSE(a == (Shape{1, 2, 0}));
  EXPECT_TRUE(a == (Shape{1, 2}));
}

TEST(Shape, CountsElementsOrRefuses) {
  EXPECT_EQ((Shape{INT64_MAX, 2, 0}).numel(), 0);
  EXPECT_THROW(static_cast<void>((Shape{INT64_MAX, 2}).numel()), ArgumentError);
  EXPECT_EQ((Shape{INT64_MAX, 1}).numel(), INT64_MAX);
  EXPECT_NO_THROW(check_shape({3, 0}, "x"));
  EXPECT_THROW(check_shape({-1}, "x"), ArgumentError);
  try {
    check_shape({1LL << 32, 1LL << 32}, "x");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_STREQ(e.what(), "x: shape [4294967296,4294967296] has more elements than 64 bits count");
  }
}

TEST(Shape, StridesAreRowMajor) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), (Shape{}));
}

TEST(NormalizeDim, CountsFromTheEnd) {
  EXPECT_EQ(normalize_dim(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_dim(-3, 3, "sum"), 0);
  EXPECT_EQ(normalize_dim(2, 3, "sum"), 2);
  for (const int dim : {3, -4}) {
    try {
      normalize_dim(dim, 3, "sum");
      FAIL();
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("sum: dim " + std::to_string(dim)), std::string::npos);
    }
  }
  EXPECT_THROW(normalize_dim(0, 0, "sum"), ArgumentError);
}

TEST(Checked, ThrowsWhereItWouldOverflow) {
  EXPECT_EQ(checked_add(INT64_MAX - 1, 1), INT64_MAX);
  EXPECT_THROW(checked_add(INT64_MAX, 1), ArgumentError);
  EXPECT_EQ(checked_mul(-3, 5), -15);
  EXPECT_THROW(checked_mul(INT64_MIN, -1), ArgumentError);
}

}  // namespace
}  // namespace dtensor

#include "dtensor/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace dtensor {
namespace {

// The known answers that come with Random123 (Salmon et al., SC 2011).
TEST(Philox, GivesTheKnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffffU;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UsesAllBitsOfSeedStreamAndIndex) {
  std::set<PhiloxBlock> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    for (const uint64_t stream : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
      for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        seen.insert(philox_at(seed, stream, index));
      }
    }
  }
  EXPECT_EQ(seen.size(), 27U);
}

TEST(Philox, UniformIsInTheHalfOpenInterval) {
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const float u = philox_uniform(7, 3, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    ASSERT_EQ(std::ldexp(u, 24), std::floor(std::ldexp(u, 24)));
    sum += u;
  }
  // The mean of n draws has deviation 1 / sqrt(12 n), here 0.0009; six of them.
  EXPECT_NEAR(sum / kDraws, 0.5, 0.0055);
}

TEST(Philox, NormalHasMeanZeroAndVarianceOne) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double x = philox_normal(7, 3, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 6 / std::sqrt(kDraws));            // deviation 1 / sqrt(n)
  EXPECT_NEAR(squares / kDraws, 1.0, 6 * std::sqrt(2.0 / kDraws));  // deviation sqrt(2 / n)
}

// The published FNV-1a test vectors.
TEST(StreamOf, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8U);
}

}  // namespace
}  // namespace dtensor

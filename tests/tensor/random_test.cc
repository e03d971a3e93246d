#include "dtensor/tensor/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"

namespace dtensor {
namespace {

// Rows 1..3 and columns 2..5 of [4,7], also as the transpose of a [3,2] memory.
TEST(Random, KeysByTheGlobalIndexWhateverTheStrides) {
  const Shape global{4, 7};
  const Box box{{1, 2}, {2, 3}};
  for (const bool transposed : {false, true}) {
    const Tensor piece = transposed ? Tensor::zeros({3, 2}, DType::kFloat64).transpose(0, 1)
                                    : Tensor::zeros({2, 3}, DType::kFloat64);
    std::vector<double> uniform;
    std::vector<double> normal;
    for (uint64_t row = 1; row < 3; ++row) {
      for (uint64_t column = 2; column < 5; ++column) {
        const uint64_t i = row * 7 + column;
        uniform.push_back(-1.0 + 3.0 * static_cast<double>(philox_uniform(9, 4, i)));
        normal.push_back(10.0 + 0.5 * static_cast<double>(philox_normal(9, 4, i)));
      }
    }
    const uint64_t version = piece.storage()->version();
    fill_uniform({piece, box, global}, {9, 4}, -1.0, 2.0);
    EXPECT_EQ(piece.to_vector<double>(), uniform);
    fill_normal({piece, box, global}, {9, 4}, 10.0, 0.5);
    EXPECT_EQ(piece.to_vector<double>(), normal);
    EXPECT_EQ(piece.storage()->version(), version + 2);
  }
}

TEST(Random, WordsInBulkAreThoseOfEachElement) {
  for (const uint64_t first : {0, 1, 2, 3, 4, 4093}) {
    for (const int64_t count : {0, 1, 2, 5, 64, 131}) {
      std::vector<uint32_t> words(static_cast<size_t>(count) + 1, 17);
      random_words({3, 8}, first, count, words.data());
      for (int64_t k = 0; k < count; ++k) {
        const uint64_t i = first + static_cast<uint64_t>(k);
        ASSERT_EQ(words[static_cast<size_t>(k)], philox_at(3, 8, i / 4)[i % 4]);
      }
      EXPECT_EQ(words.back(), 17U);
    }
  }
}

TEST(Random, AThresholdIsTheShareOfAllWords) {
  EXPECT_EQ(bernoulli_threshold(0.0), 0U);
  EXPECT_EQ(bernoulli_threshold(0.25), uint64_t{1} << 30);
  EXPECT_EQ(bernoulli_threshold(1.0), uint64_t{1} << 32);
  EXPECT_THROW(bernoulli_threshold(1.5), ArgumentError);
  EXPECT_THROW(bernoulli_threshold(std::nan("")), ArgumentError);
}

TEST(Random, StreamsAreCountedInTheContext) {
  Context context;
  const ContextScope scope(context);
  context.slot<Generator>() = Generator{12, 5};
  const RandomStream first = next_random_stream();
  const RandomStream second = next_random_stream();
  EXPECT_EQ(first.seed, 12U);
  EXPECT_EQ(first.stream, 5U);
  EXPECT_EQ(second.stream, 6U);
  EXPECT_EQ(context.slot<Generator>(), (Generator{12, 7}));
}

}  // namespace
}  // namespace dtensor

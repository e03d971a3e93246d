#include "dtensor/base/inline_vector.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dtensor {
namespace {

using Pointers = InlineVector<std::shared_ptr<int>, 2>;

// Inline and beyond: every element is destroyed once, wherever it went.
TEST(InlineVector, OwnsItsElementsOnce) {
  for (const size_t n : {0, 1, 2, 3, 9}) {
    const auto value = std::make_shared<int>(7);
    {
      Pointers a;
      for (size_t i = 0; i < n; ++i) a.push_back(value);
      Pointers b = a;
      Pointers c = std::move(a);
      EXPECT_EQ(value.use_count(), static_cast<long>(2 * n + 1));
      EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move)
      a = std::move(b);
      b = c;
      c = {value};
      a.push_back(value);
      EXPECT_EQ(value.use_count(), static_cast<long>(2 * n + 3));
      EXPECT_EQ(a.size(), n + 1);
      a.resize(n / 2);
      EXPECT_EQ(b.size(), n);
      const std::vector<std::shared_ptr<int>> out = b;
      EXPECT_EQ(out.size(), n);
      const Pointers back(out);
      EXPECT_EQ(back, b);
    }
    EXPECT_EQ(value.use_count(), 1);
  }
}

TEST(InlineVector, GrowsByAnElementOfItself) {
  InlineVector<std::string, 2> texts{"a long text that lies on the heap", "b"};
  texts.push_back(texts[0]);
  EXPECT_EQ(texts[2], "a long text that lies on the heap");
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(InlineVector, NestsFromBraces) {
  InlineVector<InlineVector<int, 4>, 2> sets;
  sets = {{0}};
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(sets[0], (InlineVector<int, 4>{0}));
  sets = {{0, 1}, {2}};
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0].size(), 2U);
  const std::vector<std::vector<int>> vectors = {{3, 4, 5, 6, 7}, {}, {8}};
  sets = vectors;
  EXPECT_EQ(sets[0][4], 7);
  EXPECT_TRUE(sets[1].empty());
}

}  // namespace
}  // namespace dtensor

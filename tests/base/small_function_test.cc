#include "dtensor/base/small_function.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

namespace dtensor {
namespace {

using Function = SmallFunction<int(int), 32>;

int twice(int x) { return 2 * x; }

TEST(SmallFunction, CallsWhatItHolds) {
  Function f;
  EXPECT_FALSE(f);
  EXPECT_TRUE(f == nullptr);
  f = twice;
  EXPECT_EQ(f(4), 8);
  int calls = 0;
  f = [&calls](int x) { return ++calls + x; };
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(f(1), 3);
  int (*none)(int) = nullptr;
  EXPECT_FALSE(Function(none));
}

// In the object and beside it: what is captured goes once, whichever way the function went.
template <size_t kPadding>
void owns_its_captures() {
  const auto value = std::make_shared<int>(5);
  {
    const std::array<char, kPadding> padding{};
    Function f = [value, padding](int x) { return *value + x + padding[0]; };
    EXPECT_EQ(value.use_count(), 2);
    Function g = f;
    EXPECT_EQ(value.use_count(), 3);
    Function h = std::move(f);
    EXPECT_FALSE(f);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(value.use_count(), 3);
    EXPECT_EQ(g(1) + h(2), 13);
    g = h;
    h = std::move(g);
    EXPECT_EQ(value.use_count(), 2);
    h = nullptr;
    EXPECT_EQ(value.use_count(), 1);
  }
  EXPECT_EQ(value.use_count(), 1);
}

TEST(SmallFunction, OwnsItsCaptures) {
  owns_its_captures<1>();
  owns_its_captures<200>();
}

}  // namespace
}  // namespace dtensor

// The code of docs/base.md.

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/cut.h"
#include "dtensor/base/deadline.h"
#include "dtensor/base/philox.h"

namespace dtensor {
namespace {

void parts_differ_by_at_most_one_unit() {
  EXPECT_EQ(cut({0, 11}, 3, 4), (Range{9, 11}));      // 3,3,3,2
  EXPECT_EQ(cut({0, 22}, 3, 4, 4), (Range{20, 22}));  // in units of 4: 8,4,8,2
  const std::vector<int64_t> weights = {2, 1};
  EXPECT_EQ(cut({0, 9}, 0, 2, 1, weights), (Range{0, 6}));
}
TEST(BaseDocs, PartsDifferByAtMostOneUnit) { parts_differ_by_at_most_one_unit(); }

void random_bits_depend_on_seed_stream_and_element() {
  const uint64_t stream = stream_of("layers.0.weight");
  EXPECT_EQ(philox_uniform(7, stream, 41), philox_uniform(7, stream, 41));
  EXPECT_NE(philox_uniform(7, stream, 41), philox_uniform(7, stream, 42));
}
TEST(BaseDocs, RandomBitsDependOnSeedStreamAndElement) {
  random_bits_depend_on_seed_stream_and_element();
}

void a_slot_is_set_for_a_scope() {
  Context context;  // one rank's
  const ContextScope bound(context);
  {
    const ScopedSlot<DefaultDeadline> patient({std::chrono::minutes(30)});
    EXPECT_GT(Deadline{}.left(), std::chrono::minutes(29));
  }
  EXPECT_LT(Deadline{}.left(), std::chrono::minutes(6));
}
TEST(BaseDocs, ASlotIsSetForAScope) { a_slot_is_set_for_a_scope(); }

}  // namespace
}  // namespace dtensor

#include "dtensor/base/context.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "dtensor/base/deadline.h"

namespace dtensor {
namespace {

struct Counter {
  int value = 5;
};
struct Other {
  int value = 7;
};

TEST(Context, SlotsAreMadeOnFirstUseAndKept) {
  Context context;
  EXPECT_EQ(context.slot<Counter>().value, 5);
  EXPECT_EQ(context.slot<Other>().value, 7);
  context.slot<Counter>().value = 6;
  EXPECT_EQ(context.slot<Counter>().value, 6);
  EXPECT_EQ(context.slot<Other>().value, 7);
  Context second;
  EXPECT_EQ(second.slot<Counter>().value, 5);
}

TEST(Context, EveryThreadHasItsOwnUnlessBound) {
  Context::current().slot<Counter>().value = 1;
  Context& mine = Context::current();
  std::thread([&] {
    EXPECT_NE(&Context::current(), &mine);
    EXPECT_EQ(Context::current().slot<Counter>().value, 5);
    const ContextScope bound(mine);
    EXPECT_EQ(&Context::current(), &mine);
    EXPECT_EQ(Context::current().slot<Counter>().value, 1);
  }).join();
}

TEST(Context, ScopesNest) {
  Context a;
  Context b;
  Context& before = Context::current();
  {
    const ContextScope outer(a);
    {
      const ContextScope inner(b);
      EXPECT_EQ(&Context::current(), &b);
    }
    EXPECT_EQ(&Context::current(), &a);
  }
  EXPECT_EQ(&Context::current(), &before);
}

TEST(ScopedSlot, PutsTheOldValueBackAlsoWhenThrown) {
  Context context;
  const ContextScope bound(context);
  try {
    const ScopedSlot<Counter> scope({9});
    EXPECT_EQ(context.slot<Counter>().value, 9);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(context.slot<Counter>().value, 5);
}

TEST(Deadline, TakesTheContextsDefault) {
  using std::chrono::seconds;
  Context context;
  const ContextScope bound(context);
  EXPECT_GT(Deadline{}.left(), seconds(290));
  context.slot<DefaultDeadline>().duration = seconds(20);
  const Deadline resolved = Deadline{}.resolved();
  EXPECT_LE(resolved.left(), seconds(20));
  EXPECT_GT(resolved.left(), seconds(10));
  EXPECT_FALSE(resolved.expired());
  EXPECT_TRUE(Deadline::after(seconds(-1)).expired());
  EXPECT_EQ(Deadline::after(seconds(-1)).left().count(), 0);
}

}  // namespace
}  // namespace dtensor

#include "dtensor/base/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "dtensor/tests/support/forked.h"

namespace dtensor {
namespace {

TEST(Process, KnowsItselfAlsoWhereItWasForked) {
  EXPECT_EQ(internal::process_id(), getpid());
  const int64_t parent = internal::process_id();
  EXPECT_EQ(testing::status_of_fork([&] {
              if (internal::process_id() != getpid() || internal::process_id() == parent) return 1;
              const auto deeper = [] { return internal::process_id() == getpid() ? 0 : 2; };
              return testing::status_of_fork(deeper);
            }),
            0);
  EXPECT_EQ(internal::process_id(), parent);
}

TEST(Process, WhatIsKeptForeverIsNotDestroyed) {
  auto object = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = object;
  internal::keep_forever(std::move(object));
  ASSERT_FALSE(seen.expired());
  EXPECT_EQ(*seen.lock(), 7);
}

}  // namespace
}  // namespace dtensor

#include "dtensor/base/patience.h"

#include <gtest/gtest.h>

namespace dtensor {
namespace {

TEST(Patience, SpinsAsOftenAsItIsTold) {
  for (const int64_t n : {0, 1, 300}) {
    Patience patience(n);
    int64_t spins = 0;
    for (; patience.spins(); ++spins) patience.pause();
    EXPECT_EQ(spins, n);
    patience.pause();
    EXPECT_FALSE(patience.spins());
    patience.encourage();
    EXPECT_EQ(patience.spins(), n > 0);
  }
}

// At least once in 64 looks, in vain or not; and at every look once it has been long.
TEST(Patience, LooksAtTheClockNowAndThen) {
  Patience patience(10);
  for (int round = 0; round < 3; ++round) {
    int looks = 0;
    for (; !patience.time_to_look(); ++looks) {
      if (looks % 5 == 0) patience.encourage();
      patience.pause();
    }
    EXPECT_LE(looks, 64);
    patience.pause();
  }
  int in_a_row = 0;  // it sleeps in between now
  while (in_a_row < 65) {
    patience.pause();
    in_a_row = patience.time_to_look() ? in_a_row + 1 : 0;
  }
  int looks_at_clock = 0;
  for (int k = 0; k < 64; ++k) {
    patience.encourage();
    looks_at_clock += patience.time_to_look() ? 1 : 0;
  }
  EXPECT_EQ(looks_at_clock, 1);
}

}  // namespace
}  // namespace dtensor

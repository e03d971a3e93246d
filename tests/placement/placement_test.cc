#include "dtensor/placement/placement.h"

#include <gtest/gtest.h>

#include <string>

namespace dtensor {
namespace {

TEST(Placement, PrintsAsItIsRead) {
  EXPECT_EQ(to_string(Replicate()), "R");
  EXPECT_EQ(to_string(Shard(0)), "S(0)");
  EXPECT_EQ(to_string(Shard(-1)), "S(-1)");
  EXPECT_EQ(to_string(Partial()), "P(sum)");
  for (const char* text : {"R", "S(0)", "S(7)", "S(-2)", "P(sum)", "P(min)", "P(max)", "P(prod)"}) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
}

TEST(Placement, DiffersByKindDimAndOp) {
  EXPECT_EQ(Placement(), Replicate());
  EXPECT_NE(Shard(0), Shard(1));
  EXPECT_NE(Shard(0), Shard(65536));
  EXPECT_NE(Partial(PartialOp::kSum), Partial(PartialOp::kMax));
  EXPECT_NE(Replicate(), Partial());
}

TEST(Placement, RefusesOtherText) {
  for (const char* text : {"", "r", "S", "S()", "S(", "S(0", "S(x)", "S(0))", "P", "P()", "P(sum",
                           "P(avg)", "RR", " R", "S(99999999999999999999)"}) {
    EXPECT_THROW(parse_placement(text), ArgumentError) << text;
  }
  EXPECT_THROW(parse_placement("S(99999999999)"), PlacementError);
  try {
    parse_placement("P(mean)");
    FAIL();
  } catch (const ArgumentError& e) {  // there is no average placement
    EXPECT_NE(std::string(e.what()).find("global count"), std::string::npos);
  }
}

}  // namespace
}  // namespace dtensor

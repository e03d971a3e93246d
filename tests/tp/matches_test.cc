#include "dtensor/tp/matches.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::tp {
namespace {

TEST(Matches, AStarTakesAnyPartOfOneName) {
  EXPECT_TRUE(matches("layers.*.mlp", "layers.12.mlp"));
  EXPECT_TRUE(matches("layers.*.mlp", "layers..mlp"));
  EXPECT_TRUE(matches("*_proj", "q_proj"));
  EXPECT_TRUE(matches("a*b*c", "aXbYbc"));
  EXPECT_FALSE(matches("layers.*.mlp", "layers.1.2.mlp"));
  EXPECT_FALSE(matches("layers.*", "layers.1.mlp"));
  EXPECT_FALSE(matches("*_proj", "attn.q_proj"));
  EXPECT_FALSE(matches("mlp", "mlp2"));
  EXPECT_FALSE(matches("mlp2", "mlp"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("*", ""));
}

TEST(Matches, BracesAreAlternatives) {
  const std::string pattern = "model.layers.*.self_attn.{q,k,v}_proj";
  EXPECT_TRUE(matches(pattern, "model.layers.0.self_attn.k_proj"));
  EXPECT_FALSE(matches(pattern, "model.layers.0.self_attn.o_proj"));
  EXPECT_TRUE(matches("{a,b}.{c,d}", "b.c"));
  EXPECT_TRUE(matches("{mlp.up,attn}*", "mlp.up_proj"));
  EXPECT_TRUE(matches("x{,y}", "x"));
  EXPECT_EQ(expand_braces("{a,b}.{c,d}"), (std::vector<std::string>{"a.c", "a.d", "b.c", "b.d"}));
}

TEST(Matches, RefusesBracesThatDoNotPairUp) {
  for (const char* bad : {"{a", "a}", "}{", "{a,{b}}"}) {
    EXPECT_THROW(matches(bad, "a"), ArgumentError) << bad;
  }
}

}  // namespace
}  // namespace dtensor::tp

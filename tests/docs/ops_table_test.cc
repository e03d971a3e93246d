// The table of rules in docs/ops.md is what `dtensor rules --markdown` prints.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "dtensor/ops/rules_table.h"

namespace dtensor {
namespace {

TEST(OpsPage, HoldsTheTableOfTheRulesAsTheyAre) {
  std::ifstream page("docs/ops.md");
  std::stringstream text;
  text << page.rdbuf();
  EXPECT_NE(text.str().find("\n" + ops::rules_table() + "\n"), std::string::npos)
      << "put this into docs/ops.md:\n"
      << ops::rules_table();
}

}  // namespace
}  // namespace dtensor

#include "dtensor/tools/rules_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace dtensor::tools {
namespace {

using ::testing::HasSubstr;

std::string run(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  EXPECT_EQ(rules_command(arguments, out, err), 0);
  return out.str();
}

TEST(Rules, OfOneOpAsJson) {
  const auto all = nlohmann::json::parse(run({"matmul", "--json"}));
  EXPECT_EQ(all[0]["op"], "matmul");
  EXPECT_EQ(all[0]["rule"], "mk,kn->mn");
  const auto want = nlohmann::json::parse(R"json([
    {"in":["R","R"],"out":["R"],"communicates":false},
    {"in":["S(0)","R"],"out":["S(0)"],"communicates":false
},
    {"in":["S(1)","S(0)"],"out":["P(sum)"],"communicates":false},
    {"in":["R","S(1)"],"out":["S(1)"],"communicates":false},
    {"in":["P(sum)","R"],"out":["P(sum)"],"communicates":false},
    {"in":["R","P(sum)"],"out":["P(sum)"],"communicates":false}])json");
  EXPECT_EQ(all[0]["rows"], want);
}

TEST(Rules, MarkRowsThatCommunicate) {
  EXPECT_THAT(run({"cross_entropy"}), HasSubstr("S(2), R -> P(sum)  (communicates)\n"));
}

TEST(Rules, ListEveryOpOnceAndItsGradients) {
  const auto all = nlohmann::json::parse(run({"--json"}));
  std::set<std::pair<std::string, std::string>> listed;
  int gradients = 0;
  for (const auto& entry : all) {
    EXPECT_TRUE(listed.emplace(entry["op"], entry["rule"]).second) << entry["op"];
    gradients += entry["op"] == "linear_dw" ? 1 : 0;
  }
  EXPECT_EQ(listed.count({"scale", "ab->ab"}), 1U);
  EXPECT_GE(gradients, 1);
}

TEST(Rules, OfAnOpMadeOfOthersAreTheirsInOrder) {
  const std::string all = run({"mse_loss"});
  EXPECT_THAT(all, HasSubstr("sub  ab,ab->ab\n"));
  EXPECT_THAT(all, HasSubstr("square  ab->ab\n"));
  const std::string table = run({"--markdown"});
  EXPECT_THAT(table, HasSubstr("| `mse_loss` 1: `sub` | `ab,ab->ab` |  | a + b |  |\n"
                               "| `mse_loss` 2: `square` | `ab->ab` |  |  |  |\n"
                               "| `mse_loss` 3: `"));
  EXPECT_THAT(table, HasSubstr("| `einsum` 1: `sum` | `abc->ab` |  | a |  |\n"
                               "| `einsum` 2: `einsum` | `ab,bac->cba` |  | a; b |  |\n"));
  EXPECT_THAT(table, HasSubstr("| `group_norm` 1: `reshape` | by shapes and levels | | | |\n"
                               "| `group_norm` 2: `layer_norm` | `ijh->ijh` | "));
  EXPECT_THAT(table, HasSubstr("| `sum` | `abc->b` |"));  // one op: itself
}

TEST(Rules, OfAnUnknownOpNameTheKnownOnes) {
  std::ostringstream out;
  std::ostringstream err;
  const auto refuse = [&](const std::vector<std::string>& arguments) {
    try {
      rules_command(arguments, out, err);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("took it");
  };
  EXPECT_THAT(refuse({"matmull"}), HasSubstr("there are matmul einsum outer dot linear"));
  EXPECT_THAT(refuse({"matmul", "add"}), HasSubstr("unexpected add"));
  EXPECT_THAT(refuse({"--jsn"}), HasSubstr("unexpected --jsn"));
}

}  // namespace
}  // namespace dtensor::tools

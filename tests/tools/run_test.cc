#include "dtensor/tools/run.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace dtensor::tools {
namespace {

struct Result {
  int status;
  std::string out;
  std::string err;
  std::string printed;  // by the ranks
};

Result run(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  testing::internal::CaptureStdout();
  const int status = run_command(args, out, err);
  return {status, out.str(), err.str(), testing::internal::GetCapturedStdout()};
}

TEST(Run, StartsTheRanksAndPrefixesTheirLines) {
  const Result r = run({"-n", "2", "--", "sh", "-c", "echo of $DTENSOR_WORLD_SIZE"});
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.printed.find("[0] of 2\n"), std::string::npos) << r.printed;
  EXPECT_NE(r.printed.find("[1] of 2\n"), std::string::npos) << r.printed;
}

TEST(Run, PassesCommOnAndPlainHasNoPrefix) {
  const Result r = run({"-n", "1", "--plain", "--comm", "gloo://?liveness=3", "--", "sh", "-c",
                        "echo $DTENSOR_COMM"});
  EXPECT_EQ(r.printed, "gloo://?liveness=3\n");
}

TEST(Run, TheStatusIsThatOfTheRankThatFailed) {
  EXPECT_EQ(run({"-n", "2", "--", "sh", "-c", "exit $((5 * DTENSOR_RANK))"}).status, 5);
  const Result r = run({"-n", "2", "--json", "--", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(r.status, 137);
  EXPECT_EQ(r.out, "{\"status\":137,\"ranks\":2}\n");
}

TEST(Run, ATimeoutIs124) {
  EXPECT_EQ(run({"-n", "1", "--timeout", "1", "--", "sleep", "600"}).status, 124);
}

TEST(Run, WrongUsageIs2AndSaysWhat) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "-n"},
      {{"-n"}, "-n"},
      {{"-n", "0", "--", "true"}, "-n=0"},
      {{"-n", "two", "--", "true"}, "two"},
      {{"-n", "2"}, "program"},
      {{"-n", "2", "--"}, "program"},
      {{"-n", "2", "true"}, "\"true\""},
      {{"--", "true"}, "-n"}};
  for (const auto& [args, part] : cases) {
    const Result r = run(args);
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find(part), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("usage:"), std::string::npos) << r.err;
  }
  EXPECT_EQ(run({"--help"}).status, 0);
}

}  // namespace
}  // namespace dtensor::tools

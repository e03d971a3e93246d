// `dtensor comm-bench`, as a user runs it.

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {
namespace {

std::string program() {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
         "/tools/dtensor";
}

ProcessResult bench(int ranks, const std::vector<std::string>& args) {
  std::vector<std::string> line = {program(), "run", "-n",      std::to_string(ranks),
                                   "--plain", "--",  program(), "comm-bench"};
  line.insert(line.end(), args.begin(), args.end());
  return run_process(line);
}

TEST(CommBench, MeasuresEveryOperationAndSize) {
  const std::vector<std::string> ops = {"all_reduce", "reduce_scatter", "all_gather",
                                        "all_to_all", "broadcast",      "reduce",
                                        "gather",     "scatter",        "exchange"};
  std::string list;
  for (const std::string& op : ops) list += (list.empty() ? "" : ",") + op;
  const ProcessResult r = bench(3, {"--ops", list + ",barrier", "--bytes", "8,1k:4k", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto rows = nlohmann::json::parse(r.out);
  ASSERT_EQ(rows.size(), 3 * ops.size() + 1);
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const auto& row = rows[i];
    EXPECT_EQ(row["op"], ops[i / 3]);
    EXPECT_EQ(row["bytes"], (std::vector<int>{8, 1024, 4096}[i % 3]));
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["memory"], "allocated");
    const double us = row["median_us"];
    EXPECT_GT(us, 0);
    // Of three ranks: 4/3, 2/3, or all of the bytes.
    const std::string op = row["op"];
    const double factor = op == "all_reduce"                                        ? 4.0 / 3
                          : op == "broadcast" || op == "reduce" || op == "exchange" ? 1
                                                                                    : 2.0 / 3;
    EXPECT_NEAR(row["bus_gb_s"], factor * row["bytes"].get<double>() / us / 1e3, 1e-9);
    EXPECT_EQ(row["algorithm"].get<std::string>().substr(0, 3), "shm");
  }
  EXPECT_EQ(rows.back()["op"], "barrier");
}

TEST(CommBench, PrintsWhatTheBackendTakes) {
  const ProcessResult r = bench(2, {"--comm", "gloo", "--capabilities"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.substr(0, 5), "gloo ");
  EXPECT_NE(r.out.find("\n| bool | prod, min, max | yes |\n"), std::string::npos) << r.out;
}

TEST(CommBench, MeasuresTheNetworkWhereToldTo) {
  const ProcessResult r =
      bench(2, {"--comm", "gloo://?shm=off", "--bytes", "8", "--memory", "heap", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out)[0]["algorithm"], "one step");
}

TEST(CommBench, TunesTheTable) {
  const ProcessResult r = bench(2, {"--tune", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto answer = nlohmann::json::parse(r.out);
  EXPECT_EQ(answer["ranks"], 2);
  EXPECT_GE(answer["one_step"], 0);
  EXPECT_LE(answer["one_step"], 16 * 1024);  // larger ones have no choice in shared memory
}

TEST(CommBench, SaysWhatIsWrongWithItsOptions) {
  const auto alone = [](const std::vector<std::string>& args) {
    std::vector<std::string> line = {program(), "comm-bench"};
    line.insert(line.end(), args.begin(), args.end());
    return run_process(line);
  };
  const ProcessResult no_launcher = alone({});
  EXPECT_EQ(no_launcher.status, 2);
  EXPECT_NE(no_launcher.err.find("dtensor run -n 2"), std::string::npos) << no_launcher.err;
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--ops", "all_reduced"},
                                             {"--bytes", "4x"},
                                             {"--bytes", "-1"},
                                             {"--bytes", "1:"},
                                             {"--memory", "disk"}}) {
    const ProcessResult r = alone(args);
    EXPECT_EQ(r.status, 2) << args[1];
    EXPECT_NE(r.err.find(args[0]), std::string::npos) << r.err;
  }
}

}  // namespace
}  // namespace dtensor::testing

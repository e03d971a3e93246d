// Runs `dtensor layout` and `dtensor plan` as a script would.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/tests/support/subprocess.h"

namespace dtensor {
namespace {

using nlohmann::json;

testing::ProcessResult dtensor_program(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tools/dtensor");
  return testing::run_process(arguments);
}

json json_of(const std::vector<std::string>& arguments) {
  const auto result = dtensor_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return json::parse(result.out);
}

TEST(LayoutCommand, TellsWhatEachRankHolds) {
  EXPECT_EQ(json_of({"layout", "--shape", "11,4", "dp=2,tp=2:S(0),R", "--json"}), json::parse(R"([
    {"rank":0,"coordinate":[0,0],"offset":[0,0],"size":[6,4]},
    {"rank":1,"coordinate":[0,1],"offset":[0,0],"size":[6,4]},
    {"rank":2,"coordinate":[1,0],"offset":[6,0],"size":[5,4]},
    {"rank":3,"coordinate":[1,1],"offset":[6,0],"size":[5,4]}])"));
}

// pytorch#193224
TEST(LayoutCommand, ListsByRankAlsoOnAMeshInAnotherOrder) {
  EXPECT_EQ(json_of({"layout", "--json", "--shape=8", "a=2,b=2@3,1,0,2:S(0),S(0)"}),
            json::parse(R"([
    {"rank":0,"coordinate":[1,0],"offset":[4],"size":[2]},
    {"rank":1,"coordinate":[0,1],"offset":[2],"size":[2]},
    {"rank":2,"coordinate":[1,1],"offset":[6],"size":[2]},
    {"rank":3,"coordinate":[0,0],"offset":[0],"size":[2]}])"));
}

TEST(LayoutCommand, TakesOrderUnitsWeightsAndScalars) {
  const auto sizes = [](const json& ranks) {
    std::vector<int64_t> all;
    for (const json& rank : ranks) all.push_back(rank["size"][0]);
    return all;
  };
  const json heads = json_of(
      {"layout", "--shape", "30", "--json", "dp=2,tp=2:S(0),S(0);order=0:tp,dp;unit=0:tp:6"});
  EXPECT_EQ(sizes(heads), (std::vector<int64_t>{9, 6, 9, 6}));
  const json weighed = json_of({"layout", "--shape", "9", "--json", "x=2:S(0);weights=x:2,1"});
  EXPECT_EQ(sizes(weighed), (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(json_of({"layout", "--shape", "", "--json", "x=1:R"}),
            json::parse(R"([{"rank":0,"coordinate":[0],"offset":[],"size":[]}])"));
}

TEST(PlanCommand, TellsStepsBytesAndMessages) {
  const json plan = json_of(
      {"plan", "--shape", "5", "--from", "a=2,b=2:S(0),S(0)", "--to", "a=2,b=2:R,S(0)", "--json"});
  EXPECT_EQ(plan["bytes_total"], 28);
  EXPECT_EQ(plan["bytes_minimum"], 28);
  EXPECT_EQ(plan["received"], json::parse("[4,8,12,4]"));
  ASSERT_EQ(plan["steps"].size(), 1U);
  EXPECT_EQ(plan["steps"][0]["kind"], "exchange");
  EXPECT_EQ(plan["steps"][0]["payload_bytes"], 28);
  int64_t bytes = 0;
  for (const json& message : plan["messages"]) bytes += message["bytes"].get<int64_t>();
  EXPECT_EQ(bytes, 28);
}

TEST(PlanCommand, NamesGatherAndReduction) {
  const json plan = json_of({"plan", "--shape", "6,5", "--dtype", "bf16", "--from",
                             "dp=2,tp=2:P(sum),S(0)", "--to", "dp=2,tp=2:R,R", "--json"});
  ASSERT_EQ(plan["steps"].size(), 2U);
  const json& reduce = plan["steps"][0];
  EXPECT_EQ(reduce["kind"], "all_reduce");
  EXPECT_EQ(reduce["op"], "sum");
  EXPECT_EQ(reduce["group"], json::parse("[0,2]"));
  EXPECT_EQ(reduce["groups"], json::parse("[[0,2],[1,3]]"));
  EXPECT_EQ(reduce["payload_bytes"], 2 * 30 * 2);  // 2(n - 1) S over two groups of half the rows
  EXPECT_EQ(plan["steps"][1]["kind"], "all_gather");
  EXPECT_EQ(plan["steps"][1]["mesh_dims"], json::parse(R"(["tp"])"));
  EXPECT_EQ(plan["messages"], json::parse(R"([
    {"src":0,"dst":1,"bytes":30},{"src":1,"dst":0,"bytes":30},
    {"src":2,"dst":3,"bytes":30},{"src":3,"dst":2,"bytes":30}])"));
  int64_t sent = 0;
  for (const json& rank : plan["sent"]) sent += rank.get<int64_t>();
  EXPECT_EQ(sent, plan["bytes_total"]);
}

// pytorch#180346
TEST(PlanCommand, TakesTwoMeshes) {
  const json plan =
      json_of({"plan", "--shape", "5", "--from", "x=2:S(0)", "--to", "y=3@1-3:S(0)", "--json"});
  EXPECT_EQ(plan["bytes_total"], 20);
  EXPECT_EQ(plan["messages"], json::parse(R"([
    {"src":0,"dst":1,"bytes":8},{"src":0,"dst":2,"bytes":4},
    {"src":1,"dst":2,"bytes":4},{"src":1,"dst":3,"bytes":4}])"));
  EXPECT_EQ(plan["ranks"], json::parse("[0,1,2,3]"));
  EXPECT_EQ(plan["sent"], json::parse("[12,8,0,0]"));
  EXPECT_EQ(plan["received"], json::parse("[0,8,8,4]"));
}

TEST(PlanCommand, TakesTwoMeshesAndPartial) {
  const json plan =
      json_of({"plan", "--shape", "4", "--from", "x=2:P(sum)", "--to", "y=3:R", "--json"});
  EXPECT_EQ(plan["ranks"], json::parse("[0,1,2]"));
  int64_t sent = 0;
  int64_t received = 0;
  for (const json& rank : plan["sent"]) sent += rank.get<int64_t>();
  for (const json& rank : plan["received"]) received += rank.get<int64_t>();
  EXPECT_EQ(sent, plan["bytes_total"]);
  EXPECT_EQ(received, plan["bytes_total"]);
  EXPECT_EQ(plan["bytes_total"], plan["bytes_minimum"]);
  EXPECT_EQ(plan["bytes_total"], 48);  // 16 B added on one rank, the sum sent on to two
}

TEST(PlanCommand, TellsOfOneRank) {
  const json plan = json_of({"plan", "--shape", "5", "--from", "x=2:S(0)", "--to", "y=3@1-3:S(0)",
                             "--json", "--rank", "2"});
  EXPECT_EQ(plan["bytes_total"], 20);
  EXPECT_EQ(plan["ranks"], json::parse("[2]"));
  EXPECT_EQ(plan["sent"], json::parse("[0]"));
  EXPECT_EQ(plan["received"], json::parse("[8]"));
  EXPECT_EQ(plan["messages"], json::parse(R"([
    {"src":0,"dst":2,"bytes":4},{"src":1,"dst":2,"bytes":4}])"));
  EXPECT_EQ(json_of({"layout", "--shape", "5", "x=2:S(0)", "--rank=1", "--json"}),
            json::parse(R"([{"rank":1,"coordinate":[1],"offset":[3],"size":[2]}])"));
}

TEST(PlanCommand, TellsTimeMemoryAndBytesOnTheWire) {
  const std::vector<std::string> pair = {"plan",   "--shape",    "1000,1000",
                                         "--json", "--from",     "a=2,b=2:P(sum),P(sum)",
                                         "--to",   "a=2,b=2:R,R"};
  const json least = json_of(pair);
  ASSERT_EQ(least["steps"].size(), 1U);
  EXPECT_EQ(least["wire_bytes"], least["bytes_total"]);
  // One all-reduce over four ranks: 6 messages of 10 us, and 6 MB received at 10 GB/s.
  EXPECT_NEAR(least["seconds"].get<double>(), 6 * 10e-6 + 6e6 / 10e9, 1e-9);
  EXPECT_EQ(least["steps"][0]["seconds"], least["seconds"]);
  EXPECT_EQ(least["peak_temporary"].size(), 4U);

  auto by_time = pair;
  by_time.insert(by_time.end(), {"--links", "a=1:50,b=300:2", "--wire-dtype", "bf16"});
  const json fast = json_of(by_time);  // little over the slow link a
  EXPECT_EQ(fast["steps"].size(), 3U);
  EXPECT_EQ(fast["wire_bytes"], fast["bytes_total"].get<int64_t>() / 2);
  double seconds = 0;
  for (const json& step : fast["steps"]) seconds += step["seconds"].get<double>();
  EXPECT_NEAR(fast["seconds"].get<double>(), seconds, 1e-12);
  EXPECT_LT(seconds, 6 * 50e-6 + 6e6 / 1e9) << "as one all-reduce over the slowest link";
}

TEST(PlanCommand, ExplainDrawsTheMeshAndTheMoves) {
  const auto plan = dtensor_program({"plan", "--explain", "--shape", "6,5", "--from",
                                     "dp=2,tp=2:P(sum),S(0)", "--to", "dp=2,tp=2:R,R"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan.out, R"(f32[6,5]
  from dp=2,tp=2:P(sum),S(0)
  to   dp=2,tp=2:R,R

before: rank and what it holds; each holds a term of the sum over dp
        tp 0          tp 1
  dp 0  0: [0:3,0:5]  1: [3:6,0:5]
  dp 1  2: [0:3,0:5]  3: [3:6,0:5]

step 1 of 2: all_reduce by sum over dp, 240 B, 20 us
  [dp:P(sum), tp:S(0)] -> [dp:R, tp:S(0)]
  why: each rank of a group will hold the whole sum of their terms; before other moves, so that these send the value once and not each term
  groups {0,2} {1,3}
    {0,2} all: sum of 2 terms of [0:3,0:5], 60 B each
    {1,3} all: sum of 2 terms of [3:6,0:5], 60 B each
  then
        tp 0          tp 1
  dp 0  0: [0:3,0:5]  1: [3:6,0:5]
  dp 1  2: [0:3,0:5]  3: [3:6,0:5]

step 2 of 2: all_gather over tp, 240 B, 10 us
  [dp:R, tp:S(0)] -> [dp:R, tp:R]
  why: each rank of a group has a part of what all of them will hold
  groups {0,1} {2,3}
    1 -> 0  [3:6,0:5], 60 B
    0 -> 1  [0:3,0:5], 60 B
    3 -> 2  [3:6,0:5], 60 B
    2 -> 3  [0:3,0:5], 60 B
  then
        tp 0          tp 1
  dp 0  0: [0:6,0:5]  1: [0:6,0:5]
  dp 1  2: [0:6,0:5]  3: [0:6,0:5]

480 B sent in all, least possible 480 B, 30 us by the links
)");
}

TEST(PlanCommand, ExplainSaysWhyOfEachKindOfStep) {
  const auto explained = [](const char* from, const char* to, const char* shape = "6,4") {
    const auto plan =
        dtensor_program({"plan", "--explain", "--shape", shape, "--from", from, "--to", to});
    EXPECT_EQ(plan.status, 0) << plan.err;
    return plan.out;
  };
  const auto has = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  };
  has(explained("x=2:R", "x=2:S(0)"), "on x every rank has all and keeps its part");
  has(explained("x=2:R", "x=2:P(sum)"), "the value stays at coordinate 0");
  has(explained("x=2:S(0)", "x=2:P(max)"), "filled with the identity of max");
  has(explained("x=2:P(sum)", "x=2:S(0)"), "{0,1} -> 1  sum of [3:6,0:4], 48 B a term");
  has(explained("x=2:S(0)", "x=2:S(1)"),
      "dim 0 is cut by x before and not cut after and dim 1 is not cut before and cut by x after: "
      "each rank has a piece for each other one");
  has(explained("x=2:S(0)", "x=2:S(0);unit=0:x:4"), "cut by x before and cut by x in units of 4");
  has(explained("x=2:S(0)", "y=3@1-3:S(0)"), "the meshes differ");
  has(explained("a=2,b=2:P(sum),R", "a=2,b=2:R,S(1)"), "first, so that less is sent after");
  has(explained("x=2:S(0)", "x=2:S(0)"), "no steps");
  has(explained("x=2:S(0)", "x=2:S(0)", "1,1"), "1: empty");
  const std::string three = explained("pp=2,dp=2,tp=2:S(0),R,R", "pp=2,dp=2,tp=2:R,R,R");
  has(three, "  pp 1\n        tp 0          tp 1\n  dp 0  4: [3:6,0:4]  5: [3:6,0:4]\n");
}

// What is printed for people, and how long it takes, does not grow with the mesh.
TEST(Commands, TakeHugeMeshes) {
  const auto lines = [](const std::vector<std::string>& arguments) {
    const auto result = dtensor_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return std::ranges::count(result.out, '\n');
  };
  const std::string from = "a=256,b=256:S(0),S(1)";
  const std::string to = "a=256,b=256:S(1),S(0)";
  EXPECT_LT(lines({"layout", "--shape", "100000,3000", from}), 300);
  EXPECT_EQ(json_of({"layout", "--shape", "100000,3000", from, "--json"}).size(), 65536U);
  EXPECT_LT(lines({"plan", "--shape", "100000,3000", "--from", from, "--to", to}), 100);
  EXPECT_LT(lines({"plan", "--explain", "--shape", "100000,3000", "--from", from, "--to", to}),
            200);
  const json one = json_of(
      {"plan", "--shape", "100000,3000", "--from", from, "--to", to, "--rank", "65535", "--json"});
  EXPECT_EQ(one["ranks"], json::parse("[65535]"));
  // Reductions too; the least is told where it is counted.
  const auto rank_of = [&](const char* before, const char* after) {
    return json_of({"plan", "--shape", "100000,3000", "--from",
                    std::string("a=256,b=256:") + before, "--to",
                    std::string("a=256,b=256:") + after, "--rank", "777", "--json"});
  };
  const json reduced = rank_of("P(sum),P(sum)", "R,R");
  EXPECT_EQ(reduced["bytes_minimum"], reduced["bytes_total"]);
  const json moved = rank_of("P(sum),S(0)", "S(0),S(1)");
  EXPECT_FALSE(moved.contains("bytes_minimum"));
  EXPECT_GT(moved["bytes_total"], 0);
  EXPECT_FALSE(rank_of("S(0),S(1)", "P(sum),R").contains("bytes_minimum"));
  const auto table = dtensor_program({"plan", "--shape", "100000,3000", "--from",
                                      "a=256,b=256:P(sum),S(0)", "--to", "a=256,b=256:S(0),S(1)"});
  EXPECT_NE(table.out.find("least possible not counted"), std::string::npos) << table.out;
  EXPECT_LT(std::ranges::count(table.out, '\n'), 100);
  const auto all = dtensor_program(
      {"plan", "--shape", "65536", "--from", "a=65536:S(0)", "--to", "a=65536:R", "--json"});
  EXPECT_EQ(all.status, 2);
  EXPECT_NE(all.err.find("--rank R lists those of one rank"), std::string::npos) << all.err;
}

TEST(PlanCommand, PrintsForPeopleToo) {
  const auto plan =
      dtensor_program({"plan", "--shape", "4", "--from", "x=2:S(0)", "--to", "x=2:R"});
  EXPECT_EQ(plan.status, 0);
  EXPECT_NE(plan.out.find("all_gather"), std::string::npos);
  EXPECT_NE(plan.out.find("least possible 16 B"), std::string::npos);
}

// A full disk or a closed stdout is an error, however short the answer.
TEST(Dtensor, OutputThatIsLostIsAnError) {
  for (const char* command :
       {"layout --shape 4 'x=2:S(0)' --json", "layout --shape 4 'x=2:S(0)'",
        "plan --shape 4 --from 'x=2:S(0)' --to x=2:R", "plan --help", "--help", "rules add"}) {
    for (const char* lost : {">/dev/full", ">&-"}) {
      const auto result = testing::run_process(
          {"/bin/sh", "-c", std::string("tools/dtensor ") + command + " " + lost});
      EXPECT_EQ(result.status, 1) << command << lost;
      EXPECT_NE(result.err.find("could not be written"), std::string::npos) << result.err;
    }
  }
}

TEST(Dtensor, HelpOfACommandIsNoError) {
  for (const char* command : {"layout", "plan", "rules", "checkpoint"}) {
    const auto result = dtensor_program({command, "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out.find(std::string("usage: dtensor ") + command), std::string::npos);
    EXPECT_EQ(result.err, "");
  }
}

// A step whose layouts look alike moves what of them lies within a third: here each rank has summed
// its own rows alone, and the rest of them comes from the other part of c.
TEST(PlanCommand, TellsWithinWhatRanksHoldAStep) {
  const std::vector<std::string> arguments = {
      "--shape", "9,2,3", "--from", "z=5,c=2:P(sum),S(0)", "--to", "z=5,c=2:S(0),R"};
  std::vector<std::string> as_json = {"plan", "--json"};
  as_json.insert(as_json.end(), arguments.begin(), arguments.end());
  const json steps = json_of(as_json)["steps"];
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1]["from"], steps[1]["to"]);
  for (const json& step : steps) EXPECT_EQ(step["within"], "z=5,c=2:P(sum),S(0)");
  std::vector<std::string> explained = {"plan", "--explain"};
  explained.insert(explained.end(), arguments.begin(), arguments.end());
  const auto text = dtensor_program(explained);
  EXPECT_NE(text.out.find("of the former, what lies within [z:P(sum), c:S(0)] alone"),
            std::string::npos)
      << text.out;
}

// Their number is asked for, not the messages.
TEST(PlanCommand, CountsTheMessagesOfARankWithMoreThanItLists) {
  const std::vector<std::string> arguments = {"plan",        "--shape",        "1000000",
                                              "--from",      "a=1048576:S(0)", "--to",
                                              "a=1048576:R", "--rank",         "1"};
  const auto table = dtensor_program(arguments);
  EXPECT_EQ(table.status, 0) << table.err;
  // Parts are [ceil(i s), ceil((i + 1) s)) with s = 1000000 / 1048576, so that rank 1 has [1, 2)
  // and 48,576 ranks have none: it sends one to each other rank, and gets 999,999.
  EXPECT_NE(table.out.find("2048574 messages of boxes of this rank"), std::string::npos)
      << table.out;
  auto as_json = arguments;
  as_json.push_back("--json");
  const auto list = dtensor_program(as_json);
  EXPECT_EQ(list.status, 2);
  EXPECT_NE(list.err.find("every message of rank 1"), std::string::npos) << list.err;
}

TEST(PlanCommand, LinksAreOfTheMeshDimThatIsNamed) {
  const auto seconds = [](const char* mesh_dim) {
    const std::string name(mesh_dim);
    return json_of({"plan", "--shape", "4", "--from", name + "=2:S(0)", "--to", name + "=2:R",
                    "--links", name + "=1:7", "--json"})["seconds"]
        .get<double>();
  };
  // One message of 8 B.
  EXPECT_DOUBLE_EQ(seconds("x"), 7e-6 + 8e-9);
  EXPECT_DOUBLE_EQ(seconds("between"), 7e-6 + 8e-9);
}

TEST(Dtensor, ExitStatusTellsWrongUsageFromAFinding) {
  const auto status = [](const std::vector<std::string>& arguments, const char* text) {
    const auto result = dtensor_program(arguments);
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    return result.status;
  };
  EXPECT_EQ(status({}, "usage"), 2);
  EXPECT_EQ(status({"lay"}, "\"lay\""), 2);
  EXPECT_EQ(status({"layout", "--shape", "4"}, "missing"), 2);
  EXPECT_EQ(status({"layout", "x=2:R"}, "--shape is missing"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4,", "x=2:R"}, "a length"), 2);
  EXPECT_EQ(status({"layout", "--shape", "-4", "x=2:R"}, "negative"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=2:R", "x=2:R"}, "too many"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "--verbose", "x=2:R"}, "--verbose"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=2:Q"}, "character 5"), 2);
  EXPECT_EQ(status({"layout", "--shape", "", "x=2:S(0)"}, "scalar"), 2);
  EXPECT_EQ(status({"plan", "--shape", "4", "--from", "x=2:R"}, "--to is missing"), 2);
  EXPECT_EQ(status({"plan", "--shape", "4", "--shape", "4"}, "twice"), 2);
  EXPECT_EQ(status({"plan", "--shape"}, "lacks its value"), 2);
  EXPECT_EQ(
      status({"plan", "--shape", "4", "--dtype", "f8", "--from", "x=2:R", "--to", "x=2:R"}, "bf16"),
      2);
  EXPECT_EQ(status({"plan", "--shape", "4", "--from", "x=2:P(sum)", "--to", "x=2:P(max)"},
                   "P(sum) cannot become P(max)"),
            1);
  EXPECT_EQ(
      status({"plan", "--shape", "4611686018427387904", "--from", "x=3:S(0)", "--to", "x=3:R"},
             "more elements than 64 bits"),
      1);
  EXPECT_EQ(status({"plan", "--shape", "4", "--from", "x=2:R", "--to", "x=2:R", "--rank", "2"},
                   "in neither mesh"),
            2);
  EXPECT_EQ(
      status({"plan", "--shape", "4", "--from", "x=2:R", "--to", "x=2:R", "--explain", "--json"},
             "--explain"),
      2);
  const auto links = [](const char* text) {
    return std::vector<std::string>{"plan", "--shape", "4",       "--from", "x=2:R",
                                    "--to", "x=2:R",   "--links", text};
  };
  EXPECT_EQ(status(links("x=3"), "MICROSECONDS"), 2);
  EXPECT_EQ(status(links("x=-3:1"), "\"-3\" is no positive number"), 2);
  EXPECT_EQ(status(links("x=3:1s"), "\"1s\" is no positive number"), 2);
  EXPECT_EQ(status(links("y=3:1"), "\"y\""), 2);
  EXPECT_EQ(status(links("x=3:1,"), "MICROSECONDS"), 2);
  EXPECT_EQ(status(links("x=1:1,x=2:2"), "\"x\" is given twice"), 2);
  EXPECT_EQ(status(links("x=1e-320:1"), "\"1e-320\" is no positive number"), 2);
  EXPECT_EQ(status(links("x=1e308:1"), "\"1e308\" is no positive number"), 2);
  EXPECT_EQ(status({"plan", "--shape", "1099511627776", "--from", "x=2:S(0)", "--to", "x=2:R",
                    "--links", "x=1e-314:1"},
                   "longer on them than a number can tell"),
            2);
  EXPECT_EQ(
      status({"plan", "--shape", "4", "--dtype", "bool", "--from", "x=2:P(sum)", "--to", "x=2:R"},
             "bool has no P(sum)"),
      2);
  EXPECT_EQ(dtensor_program({"plan", "--shape", "4", "--dtype", "bool", "--from", "x=2:P(max)",
                             "--to", "x=2:R"})
                .status,
            0);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=2:R", "--rank", "-1"}, "rank -1"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=2:R", "--rank", "one"}, "a rank"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=2:R", "--rank", "2"}, "not in the mesh"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4,x", "x=2:R"}, "character 3"), 2);
  EXPECT_EQ(status({"layout", "--shape", "9223372036854775808", "x=2:R"}, "a length"), 2);
  EXPECT_EQ(status({"layout", "--shape", "9223372036854775807,2", "x=2:R"}, "64 bits"), 2);
  EXPECT_EQ(status({"layout", "--shape", "1,1,1,1,1,1,1,1,1", "x=2:R"}, "at most 8"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "x=99999999:R"}, "99999999"), 2);
  EXPECT_EQ(status({"layout", "--shape", "4", "a=2,b=2:S(0),S(0);order=0:b,b"}, "once"), 2);
  EXPECT_EQ(dtensor_program({"--help"}).status, 0);
}

}  // namespace
}  // namespace dtensor

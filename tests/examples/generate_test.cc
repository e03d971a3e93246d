// Generation: the logits of the prompt against PyTorch's, and the cached continuation against
// prompts that already hold it.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/tests/examples/golden.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int64_t>;

Json generate(const Golden& golden, const Ids& prompt, int max_new,
              const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {"examples/llama/generate",
                                   "--model",
                                   golden.dir,
                                   "--prompt-ids",
                                   fmt::format("{}", fmt::join(prompt, ",")),
                                   "--max-new",
                                   std::to_string(max_new),
                                   "--json"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  const ProcessResult run = run_process(argv);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? Json::parse(run.out) : Json();
}

// The first row that the golden run reads, and its last logits by PyTorch.
Ids first_row(const Golden& golden) {
  const auto bytes = expected(golden, "tokens");
  return Ids(bytes.begin(), bytes.begin() + golden.seq);
}

struct Case {
  const char* golden;
  std::vector<std::string> flags;
};

class Generate : public ::testing::TestWithParam<Case> {};

TEST_P(Generate, GivesPyTorchsLogitsOfThePrompt) {
  const Golden golden = read_golden(GetParam().golden);
  const Json got = generate(golden, first_row(golden), 1, GetParam().flags);
  const auto all = expected(golden, "logits0.row0");  // [seq, vocabulary]
  const auto vocabulary = static_cast<int64_t>(all.size()) / golden.seq;
  const std::vector<double> last(all.end() - vocabulary, all.end());
  Ids order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return last[static_cast<size_t>(a)] > last[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(got["last_logits_top5"][i][0], order[i]);
    EXPECT_NEAR(got["last_logits_top5"][i][1].get<double>(), last[static_cast<size_t>(order[i])],
                2e-5);
  }
  EXPECT_EQ(got["ids"], Json({order[0]}));
}

TEST_P(Generate, GoesOnFromItsCacheAsFromALongerPrompt) {
  const Golden golden = read_golden(GetParam().golden);
  Ids prompt = first_row(golden);
  prompt.resize(9);
  const auto whole = generate(golden, prompt, 6, GetParam().flags)["ids"].get<Ids>();
  ASSERT_EQ(whole.size(), 6U);
  prompt.insert(prompt.end(), whole.begin(), whole.begin() + 4);
  EXPECT_EQ(generate(golden, prompt, 2, {})["ids"].get<Ids>(), Ids(whole.begin() + 4, whole.end()));
}

INSTANTIATE_TEST_SUITE_P(Meshes, Generate,
                         ::testing::Values(Case{"tiny", {}}, Case{"tiny", {"--mesh", "tp=2"}},
                                           Case{"uneven", {"--mesh", "tp=2", "--comm", "local"}},
                                           Case{"uneven", {"--mesh", "tp=3"}},
                                           Case{"uneven", {"--mesh", "tp=7", "--comm", "local"}}));

// Parameters and activations rounded to 8 bits of mantissa, some dozens of roundings deep.
TEST(Generate, InBf16StaysNearPyTorchsLogits) {
  const Golden golden = read_golden("tiny");
  const Json got = generate(golden, first_row(golden), 2, {"--dtype", "bf16"});
  const auto all = expected(golden, "logits0.row0");
  const auto vocabulary = static_cast<int64_t>(all.size()) / golden.seq;
  const std::vector<double> last(all.end() - vocabulary, all.end());
  for (const Json& entry : got["last_logits_top5"]) {
    const double want = last[entry[0].get<size_t>()];
    EXPECT_NEAR(entry[1].get<double>(), want, 0.03 * std::max(1.0, std::abs(want)));
  }
  EXPECT_EQ(got["last_logits_top5"].size(), 5U);
  EXPECT_EQ(got["ids"].size(), 2U);
}

TEST(Generate, StopsAtTheStopId) {
  const Golden golden = read_golden("tiny");
  const Ids prompt = first_row(golden);
  const auto ids = generate(golden, prompt, 8, {})["ids"].get<Ids>();
  const auto stopped =
      generate(golden, prompt, 8, {"--stop-id", std::to_string(ids[0])})["ids"].get<Ids>();
  EXPECT_EQ(stopped, Ids{ids[0]});
  EXPECT_TRUE(generate(golden, prompt, 0, {})["ids"].empty());
}

// An id that never comes: what was made up to the last position is printed.
TEST(Generate, StopsAtTheLastPositionWhereTheStopIdDoesNotCome) {
  const Golden golden = read_golden("tiny");
  std::ifstream config(golden.dir + "/config.json");
  const auto most = Json::parse(config)["max_position_embeddings"].get<int64_t>();
  Ids prompt = first_row(golden);
  while (static_cast<int64_t>(prompt.size()) < most - 2) prompt.push_back(prompt.back());
  prompt.resize(static_cast<size_t>(most - 2));
  const auto plain = generate(golden, prompt, 3, {})["ids"].get<Ids>();
  int64_t never = 0;
  while (std::ranges::count(plain, never) > 0) ++never;
  const std::string stop = std::to_string(never);
  EXPECT_EQ(generate(golden, prompt, 100000, {"--stop-id", stop})["ids"].get<Ids>(), plain);
  EXPECT_EQ(generate(golden, prompt, 2, {"--stop-id", stop})["ids"].get<Ids>(),
            Ids(plain.begin(), plain.begin() + 2));
  const std::vector<std::string> argv = {"examples/llama/generate",
                                         "--model",
                                         golden.dir,
                                         "--prompt-ids",
                                         fmt::format("{}", fmt::join(prompt, ",")),
                                         "--max-new",
                                         "4"};
  const ProcessResult without = run_process(argv);
  EXPECT_NE(without.status, 0);
  EXPECT_NE(without.err.find("max_position_embeddings"), std::string::npos) << without.err;
}

TEST(Generate, NamesThePositionOfLogitsThatAreNaN) {
  const Golden golden = read_golden("tiny");
  const std::string dir = std::string(std::getenv("TEST_TMPDIR")) + "/nan";
  std::filesystem::create_directory(dir);
  std::filesystem::copy_file(golden.dir + "/config.json", dir + "/config.json");
  std::ifstream in(golden.dir + "/model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  std::fill(bytes.begin() + 8 + static_cast<int64_t>(header), bytes.end(), '\xff');  // all NaN
  std::ofstream(dir + "/model.safetensors", std::ios::binary) << bytes;
  const ProcessResult run = run_process(
      {"examples/llama/generate", "--model", dir, "--prompt-ids", "1,2,3", "--max-new", "2"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("position 3 is NaN"), std::string::npos) << run.err;
}

// More threads than the machine gives, which a bound on memory stands for: an error of every rank.
TEST(Generate, TellsThatThereAreNotSoManyThreads) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer maps memory of its own";
  const Golden golden = read_golden("tiny");
  const std::string command =
      "ulimit -v 1000000; exec examples/llama/generate --model " + golden.dir +
      " --prompt-ids 1,2 --max-new 1 --mesh tp=2 --comm local --threads 100000";
  const ProcessResult run = run_process({"/bin/sh", "-c", command});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("of 100000 could not be started"), std::string::npos) << run.err;
}

TEST(Generate, RefusesAnEmptyPromptAndAnIdOutsideTheVocabulary) {
  const Golden golden = read_golden("tiny");
  const std::vector<std::string> model = {"examples/llama/generate", "--model", golden.dir};
  for (const char* ids : {"256", "-1", "1,x", "", "9999999999999999999999"}) {
    std::vector<std::string> argv = model;
    argv.insert(argv.end(), {"--prompt-ids", ids, "--max-new", "1"});
    const ProcessResult run = run_process(argv);
    EXPECT_NE(run.status, 0) << ids;
    EXPECT_NE(run.err.find("generate:"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace dtensor::testing

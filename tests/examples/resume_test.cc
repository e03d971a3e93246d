// Save on one mesh, go on from there on another; export and load again.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/tests/examples/golden.h"

namespace dtensor::testing {
namespace {

std::string scratch(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// The run on dp=2,tp=2 that saves after 10 of the steps and goes on to the end.
class Resume : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    golden_ = new Golden(read_golden("tiny"));
    const ProcessResult run = run_train(
        *golden_, {"--steps", "20", "--mesh", "dp=2,tp=2", "--save", scratch("run"), "--save-every",
                   "10", "--log", scratch("whole.jsonl"), "--export", scratch("whole.export")});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    // Only the step in the middle is wanted: without the last one the newest is step 10.
    for (const auto& entry : std::filesystem::directory_iterator(scratch("run"))) {
      if (entry.path().filename().string().starts_with("step-20.")) {
        std::filesystem::remove_all(entry.path());
      }
    }
  }
  static void TearDownTestSuite() { delete golden_; }

  static void goes_on(const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--steps", "20", "--resume", scratch("run"), "--log", scratch(name + ".jsonl")});
    const ProcessResult run = run_train(*golden_, flags);
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const Log whole = read_log(scratch("whole.jsonl"));
    const Log rest = read_log(scratch(name + ".jsonl"));
    EXPECT_EQ(rest.first_step, 10);
    ASSERT_EQ(rest.steps.size(), 10U);
    for (size_t s = 0; s < rest.steps.size(); ++s) {
      EXPECT_NEAR(rest.steps[s].loss / whole.steps[10 + s].loss, 1, 2e-5) << "step " << 10 + s;
    }
  }

  static Golden* golden_;
};
Golden* Resume::golden_ = nullptr;

TEST_F(Resume, OnTheSameMesh) { goes_on("same", {"--mesh", "dp=2,tp=2"}); }
TEST_F(Resume, OnThreeTensorParallelRanks) { goes_on("tp3", {"--mesh", "tp=3"}); }
TEST_F(Resume, OnOneProcessWithoutAMesh) { goes_on("one", {}); }
TEST_F(Resume, OnThreadsWithReplicas) {
  goes_on("threads", {"--mesh", "dp=3", "--dp-mode", "ddp", "--comm", "local"});
}

// Also where the run before was killed in the middle of a line.
TEST_F(Resume, AddsToTheLogOfTheRunBefore) {
  const std::string path = scratch("both.jsonl");
  std::filesystem::copy_file(scratch("whole.jsonl"), path);
  const auto before = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, before - 1);  // its last newline
  const ProcessResult run =
      run_train(*golden_, {"--steps", "11", "--resume", scratch("run"), "--log", path});
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  std::vector<int64_t> steps;
  std::ifstream in(path);
  int starts = 0;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    starts += json.contains("event") ? 1 : 0;
    if (!json.contains("event")) steps.push_back(json["step"].get<int64_t>());
  }
  std::vector<int64_t> want(20);
  std::iota(want.begin(), want.end(), 0);
  want.push_back(10);
  EXPECT_EQ(steps, want);
  EXPECT_EQ(starts, 2);
}

TEST_F(Resume, FromAnEmptyDirectoryIsAnErrorThatNamesIt) {
  std::filesystem::create_directory(scratch("empty"));
  const ProcessResult run = run_train(*golden_, {"--steps", "1", "--resume", scratch("empty")});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find(scratch("empty")), std::string::npos) << run.err;
}

TEST_F(Resume, TheExportHasTheNamesAndValuesOfTheModel) {
  const safetensors::File before(golden_->dir + "/model.safetensors");
  const safetensors::File after(scratch("whole.export") + "/model.safetensors");
  ASSERT_EQ(after.entries().size(), before.entries().size());
  for (const auto& entry : before.entries()) {
    const auto* found = after.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->shape, entry.shape);
    EXPECT_EQ(found->dtype, entry.dtype);
  }
  EXPECT_LT(worst_error(*golden_, "final.", after.path()), 1e-3);

  // A fresh process on another mesh reads it: its first loss is that of step 20.
  std::vector<std::string> argv = {"examples/llama/train",
                                   "--model",
                                   scratch("whole.export"),
                                   "--data",
                                   golden_->text,
                                   "--batch",
                                   "8",
                                   "--seq",
                                   "64",
                                   "--steps",
                                   "1",
                                   "--lr",
                                   "0",
                                   "--mesh",
                                   "tp=3",
                                   "--comm",
                                   "local",
                                   "--log",
                                   scratch("export.jsonl")};
  const ProcessResult run = run_process(argv);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_LT(read_log(scratch("export.jsonl")).steps[0].loss, 3.5);
}

}  // namespace
}  // namespace dtensor::testing

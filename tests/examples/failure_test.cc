// What a user gets when something is wrong: a message that names it, on every rank, a status that
// is not 0, and no process left behind.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dtensor/tests/examples/golden.h"

namespace dtensor::testing {
namespace {

std::string scratch(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class Failure : public ::testing::TestWithParam<const char*> {
 protected:
  Golden golden_ = read_golden("tiny");

  ProcessResult train(std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--steps", "2", "--comm", GetParam()});
    return run_train(golden_, flags);
  }
};

TEST_P(Failure, AMeshWithAnUnknownDim) {
  const ProcessResult run = train({"--mesh", "dp=2,xp=2"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("\"xp\""), std::string::npos) << run.err;
}

TEST_P(Failure, AMeshThatCannotBeRead) {
  const ProcessResult run = train({"--mesh", "dp=2,tp=zwei"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("tp"), std::string::npos) << run.err;
}

TEST_P(Failure, AMissingTextIsNamedByEveryRank) {
  golden_.flags[3] = scratch("nothing.txt");
  const ProcessResult run = train({"--mesh", "dp=2,tp=2"});
  EXPECT_EQ(run.status, 1);
  EXPECT_GE(count(run.err, "nothing.txt"), 1) << run.err;
}

TEST_P(Failure, AMissingModel) {
  golden_.flags[1] = scratch("no-model");
  const ProcessResult run = train({"--mesh", "tp=2"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("no-model/config.json"), std::string::npos) << run.err;
}

TEST_P(Failure, ATruncatedModelFile) {
  const std::string dir = scratch("short");
  std::filesystem::create_directories(dir);
  std::filesystem::copy_file(golden_.dir + "/config.json", dir + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::ifstream in(golden_.dir + "/model.safetensors", std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  std::ofstream(dir + "/model.safetensors", std::ios::binary)
      << bytes.str().substr(0, bytes.str().size() - 1000);
  golden_.flags[1] = dir;
  const ProcessResult run = train({"--mesh", "tp=2"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("model.safetensors"), std::string::npos) << run.err;
}

TEST_P(Failure, ABackendThatIsNotThere) {
  for (std::vector<std::string> flags : {std::vector<std::string>{"--mesh", "dp=2"}, {}}) {
    flags.insert(flags.end(), {"--steps", "1", "--comm", "glo"});
    const ProcessResult run = run_train(golden_, flags);
    EXPECT_EQ(run.status, 2);
    EXPECT_NE(run.err.find("--comm glo:"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("gloo"), std::string::npos) << "lists the known ones: " << run.err;
  }
}

TEST_P(Failure, AStrayWord) {
  const ProcessResult run = train({"extra"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("positional"), std::string::npos) << run.err;
}

TEST_P(Failure, AResultThatCannotBeWrittenIsFoundBeforeTheTraining) {
  const std::string file = scratch("a-file");
  std::ofstream(file) << "no directory";
  for (const char* flag : {"--save", "--export"}) {
    const ProcessResult run = train({"--mesh", "dp=2", flag, file});
    EXPECT_EQ(run.status, 1);
    EXPECT_NE(run.err.find(file), std::string::npos) << run.err;
    EXPECT_EQ(run.out.find("step "), std::string::npos) << run.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Failure, ::testing::Values("local", "gloo"));

// A rank that is killed: the others name it and end, long before the operation's deadline (300 s),
// and no process of the run is left.
TEST(KilledRank, IsNamedByTheOthersAndNoProcessIsLeft) {
  const Golden golden = read_golden("tiny");
  for (const size_t victim : {size_t{2}, size_t{0}}) {
    const std::string log = scratch("killed" + std::to_string(victim) + ".jsonl");
    std::vector<std::string> argv = {"examples/llama/train"};
    argv.insert(argv.end(), golden.flags.begin(), golden.flags.end());
    argv.insert(argv.end(), {"--steps", "1000000", "--mesh", "dp=2,tp=2", "--log", log});
    Subprocess run(argv, {.bound = std::chrono::seconds{120}});
    ASSERT_TRUE(run.wait_for_output("step     3/")) << run.wait().err;
    std::ifstream in(log);
    const Log begun = [&] {  // the last line may be half written: only the first is read
      std::string line;
      std::getline(in, line);
      std::ofstream(log + ".start") << line << '\n';
      return read_log(log + ".start");
    }();
    ASSERT_EQ(begun.pids.size(), 4U);
    ASSERT_EQ(kill(static_cast<pid_t>(begun.pids[victim]), SIGKILL), 0);
    const ProcessResult result = run.wait();
    EXPECT_GT(result.status, 0);
    // Each of the other three says which rank died.
    EXPECT_GE(count(result.err, "rank " + std::to_string(victim) + " of the world"), 3)
        << result.err;
    for (const int64_t pid : begun.pids) EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0) << pid;
  }
}

}  // namespace
}  // namespace dtensor::testing

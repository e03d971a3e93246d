// The example against PyTorch: every step's loss and gradient norm, the first gradients and the
// final weights, on one process and on meshes of threads and of processes. Tolerances are those of
// float32 sums taken in another order over some hundred thousand terms.

#include "dtensor/tests/examples/golden.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>

namespace dtensor::testing {
namespace {

struct Case {
  const char* golden;
  const char* mesh;  // "" for none
  const char* dp_mode;
  const char* comm;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.golden) + "_" + info.param.mesh + "_" +
                     info.param.dp_mode + "_" + info.param.comm;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

class GoldenRun : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenRun, GivesTheLossesGradientsAndWeightsOfPyTorch) {
  const Case& c = GetParam();
  const Golden golden = read_golden(c.golden);
  const std::string dir = std::string(std::getenv("TEST_TMPDIR")) + "/" + name_of({c, 0});
  std::vector<std::string> flags = {"--steps",      std::to_string(golden.steps),
                                    "--log",        dir + ".jsonl",
                                    "--dump-grads", dir + ".grads",
                                    "--export",     dir + ".export",
                                    "--comm",       c.comm};
  if (*c.mesh != 0) flags.insert(flags.end(), {"--mesh", c.mesh, "--dp-mode", c.dp_mode});
  const ProcessResult run = run_train(golden, flags);
  ASSERT_EQ(run.status, 0) << run.out << run.err;

  const Log log = read_log(dir + ".jsonl");
  ASSERT_EQ(log.steps.size(), golden.losses.size());
  for (size_t s = 0; s < log.steps.size(); ++s) {
    EXPECT_NEAR(log.steps[s].loss / golden.losses[s], 1, 2e-5) << "step " << s;
    EXPECT_NEAR(log.steps[s].grad_norm / golden.grad_norms[s], 1, 1e-4) << "step " << s;
    EXPECT_EQ(log.steps[s].bytes_sent > 0, log.pids.size() > 1);
  }
  EXPECT_LT(worst_error(golden, "grad0.", dir + ".grads"), 2e-5);
  EXPECT_LT(worst_error(golden, "final.", dir + ".export/model.safetensors"), 1e-3);
}

constexpr Case kCases[] = {
    {"tiny", "", "fsdp", "local"},
    {"tiny", "dp=2", "fsdp", "local"},
    {"tiny", "dp=2", "ddp", "local"},
    {"tiny", "dp=3", "fsdp", "local"},
    {"tiny", "tp=2", "fsdp", "local"},
    {"tiny", "tp=3", "fsdp", "local"},
    {"tiny", "dp=2,tp=2", "fsdp", "local"},
    {"tiny", "dp=2,tp=2", "ddp", "local"},
    {"tiny", "dp=1,tp=1", "fsdp", "local"},
    {"uneven", "", "fsdp", "local"},
    {"uneven", "dp=2", "fsdp", "local"},
    {"uneven", "dp=2", "ddp", "local"},
    {"uneven", "dp=3", "ddp", "local"},
    {"uneven", "dp=3", "fsdp", "local"},
    {"uneven", "dp=4", "fsdp", "local"},
    {"uneven", "dp=4", "ddp", "local"},
    {"uneven", "tp=2", "fsdp", "local"},
    {"uneven", "tp=3", "fsdp", "local"},
    {"uneven", "dp=2,tp=2", "fsdp", "local"},
    {"uneven", "dp=2,tp=2", "ddp", "local"},
    {"tiny", "dp=2", "ddp", "gloo"},
    {"tiny", "tp=2", "fsdp", "gloo"},
    {"tiny", "dp=2,tp=2", "fsdp", "gloo"},
    {"uneven", "dp=2", "fsdp", "gloo"},
    {"uneven", "dp=3", "fsdp", "gloo"},
    {"uneven", "dp=4", "fsdp", "gloo"},
    {"uneven", "dp=4", "ddp", "gloo"},
    {"uneven", "tp=2", "fsdp", "gloo"},
    {"uneven", "tp=3", "fsdp", "gloo"},
    {"uneven", "dp=2,tp=2", "fsdp", "gloo"},
    {"uneven", "dp=2,tp=2", "ddp", "gloo"},
};

INSTANTIATE_TEST_SUITE_P(All, GoldenRun, ::testing::ValuesIn(kCases), name_of);

}  // namespace
}  // namespace dtensor::testing

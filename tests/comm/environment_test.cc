#include "dtensor/comm/environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

using Variables = std::map<std::string, std::string>;

Environment read(const Variables& variables) {
  return read_environment([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

// The ArgumentError of these variables names each of `names`.
void expect_refused(const Variables& variables, const std::vector<std::string>& names) {
  try {
    read(variables);
    FAIL() << "was accepted";
  } catch (const ArgumentError& e) {
    for (const std::string& name : names) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  }
}

TEST(Environment, NothingSetIsNoLauncher) {
  const Environment e = read({});
  EXPECT_FALSE(e.launched);
  EXPECT_EQ(e.size, 1);
  EXPECT_EQ(e.store, "");
}

TEST(Environment, DtensorRun) {
  const Environment e = read({{"DTENSOR_RANK", "2"},
                              {"DTENSOR_WORLD_SIZE", "4"},
                              {"DTENSOR_LOCAL_RANK", "1"},
                              {"DTENSOR_STORE", "file:/tmp/x"},
                              {"DTENSOR_COMM", "gloo"},
                              {"RANK", "0"},
                              {"WORLD_SIZE", "9"}});
  EXPECT_TRUE(e.launched);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.size, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.store, "file:/tmp/x");
  EXPECT_EQ(e.comm, "gloo");
}

TEST(Environment, Torchrun) {
  Variables v = {{"RANK", "5"},           {"WORLD_SIZE", "8"},
                 {"LOCAL_RANK", "1"},     {"MASTER_ADDR", "node0"},
                 {"MASTER_PORT", "4000"}, {"TORCHELASTIC_RESTART_COUNT", "3"}};
  Environment e = read(v);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.generation, 3);
  EXPECT_EQ(e.store, "node0:4000");
  // The agent's own store has the port: ours is beside it.
  v["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(read(v).store, "node0:4001");
  v["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(read(v).store, "node0:4000");
  v["DTENSOR_STORE"] = "other:1";
  EXPECT_EQ(read(v).store, "other:1");
  // srun may start one torchrun per node: its variables count nodes.
  v["SLURM_PROCID"] = "1";
  v["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_EQ(read(v).size, 8);
}

// Paddle#37951: the allocation's size is not the step's.
TEST(Environment, SlurmCountsTheStepNotTheAllocation) {
  const Environment e = read({{"SLURM_PROCID", "3"},
                              {"SLURM_STEP_NUM_TASKS", "4"},
                              {"SLURM_NTASKS", "8"},
                              {"SLURM_LOCALID", "1"},
                              {"DTENSOR_STORE", "node0:4000"}});
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.size, 4);
  EXPECT_EQ(e.local_rank, 1);
  expect_refused({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
}

TEST(Environment, MpiAndPmi) {
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).size, 2);
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).size, 3);
  const Variables both = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}};
  EXPECT_EQ(read(both).rank, 1);
}

TEST(Environment, HalfOfAPairIsRefused) {
  expect_refused({{"RANK", "0"}}, {"RANK", "WORLD_SIZE"});
  expect_refused({{"WORLD_SIZE", "4"}}, {"RANK", "WORLD_SIZE"});
  expect_refused({{"DTENSOR_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
                 {"DTENSOR_RANK", "DTENSOR_WORLD_SIZE"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}},
                 {"MASTER_ADDR", "MASTER_PORT"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}},
                 {"MASTER_ADDR", "MASTER_PORT"});
}

// A rank that does not know it must not train alone.
TEST(Environment, TheRestOfALaunchWithoutARankIsRefused) {
  expect_refused({{"DTENSOR_STORE", "file:/tmp/x"}}, {"DTENSOR_STORE", "DTENSOR_RANK"});
  expect_refused({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, {"MASTER_ADDR", "DTENSOR_RANK"});
  expect_refused({{"LOCAL_RANK", "0"}}, {"LOCAL_RANK"});
  EXPECT_FALSE(read({{"DTENSOR_COMM", "gloo"}}).launched);
}

TEST(Environment, ImpossibleValuesAreRefused) {
  expect_refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, {"RANK=4", "WORLD_SIZE=4"});
  expect_refused({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, {"RANK"});
  expect_refused({{"RANK", "one"}, {"WORLD_SIZE", "4"}}, {"RANK", "one"});
  expect_refused({{"RANK", ""}, {"WORLD_SIZE", "4"}}, {"RANK"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, {"WORLD_SIZE"});
  expect_refused({{"RANK", "0"},
                  {"WORLD_SIZE", "1"},
                  {"MASTER_ADDR", "a"},
                  {"MASTER_PORT", "65535"},
                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                 {"MASTER_PORT"});
}

TEST(Environment, WhereARankIsReachedIsSaidOnce) {
  Variables v = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"DTENSOR_INTERFACE", "eth1"}};
  EXPECT_EQ(read(v).interface, "eth1");
  v["DTENSOR_ADDRESS"] = "10.0.0.7";
  expect_refused(v, {"DTENSOR_INTERFACE=eth1", "DTENSOR_ADDRESS=10.0.0.7"});
  v.erase("DTENSOR_INTERFACE");
  EXPECT_EQ(read(v).address, "10.0.0.7");
}

// Enerzyme#107: mpirun inside a Slurm step of one task; each rank must not train alone.
TEST(Environment, SlurmAndMpiInDisagreementAreRefused) {
  expect_refused(
      {{"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", "1"},
       {"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"}},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
}

}  // namespace
}  // namespace dtensor::comm

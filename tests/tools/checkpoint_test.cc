// dtensor checkpoint ls and verify: their JSON and exit status.

#include "dtensor/tools/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/save.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

struct Result {
  int status = 0;
  std::string out;
  std::string err;
};

Result run(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = checkpoint_command(args, out, err);
  return {status, out.str(), err.str()};
}

class CheckpointCommand : public ::testing::Test {
 protected:
  CheckpointCommand() {
    for (const int64_t step : {10, 20}) {
      testing::run_ranks(2, [&](comm::Comm& comm) {
        const DeviceMesh mesh(comm, {{"x", 2}});
        testing::Bag bag;
        bag.add("w", distribute(Tensor::arange(15).view({5, 3}), mesh, {Shard(0)}));
        checkpoint::save(dir_ / "run", step, {.model = bag});
      });
    }
    twenty_ = checkpoint::list_attempts(dir_ / "run").front();
  }

  TemporaryDirectory dir_;
  checkpoint::Attempt twenty_;
};

TEST_F(CheckpointCommand, LsListsTensorsAndChunks) {
  const json want = json::parse(R"([{"name":"w","dtype":"F32","shape":[5,3],"chunks":[
      {"file":"rank-00000.safetensors","offset":[0,0],"size":[3,3]},
      {"file":"rank-00001.safetensors","offset":[3,0],"size":[2,3]}]}])");
  for (const std::string& path : {dir_ / "run", twenty_.path, twenty_.path + "/"}) {
    const Result r = run({"ls", path, "--json"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(json::parse(r.out), want);
  }
  EXPECT_THAT(run({"ls", dir_ / "run"}).out, HasSubstr("[5,3]"));
}

TEST_F(CheckpointCommand, LsTakesOneFileAndAHuggingFaceDirectory) {
  checkpoint::write_tensors(dir_ / "hf.safetensors", {{"a", Tensor::zeros({2}, DType::kBFloat16)}});
  std::filesystem::create_directories(dir_ / "hf");
  std::filesystem::copy(dir_ / "hf.safetensors", dir_ / "hf/model.safetensors");
  const auto want = [](const std::string& file) {
    return json::parse(R"([{"name":"a","dtype":"BF16","shape":[2],"chunks":[{"file":")" + file +
                       R"(","offset":[0],"size":[2]}]}])");
  };
  EXPECT_EQ(json::parse(run({"ls", "--json", dir_ / "hf.safetensors"}).out),
            want("hf.safetensors"));
  EXPECT_EQ(json::parse(run({"ls", "--json", dir_ / "hf"}).out), want("model.safetensors"));
  EXPECT_EQ(run({"verify", dir_ / "hf.safetensors"}).status, 0);
  write_file(dir_ / "bad.safetensors", read_file(dir_ / "hf.safetensors") + "x");
  const Result r = run({"verify", "--json", dir_ / "bad.safetensors"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(json::parse(r.out)["complete"], false);
  EXPECT_EQ(json::parse(r.out)["problems"][0]["file"], "bad.safetensors");
  EXPECT_EQ(run({"ls", dir_ / "bad.safetensors"}).status, 1);
}

TEST_F(CheckpointCommand, VerifyTakesTheNewestCompleteStepAndNamesNewerOnes) {
  json got = json::parse(run({"verify", dir_ / "run", "--json"}).out);
  EXPECT_EQ(got, json({{"complete", true},
                       {"step", 20},
                       {"attempt", twenty_.name},
                       {"world", 2},
                       {"newer_incomplete", json::array()},
                       {"problems", json::array()}}));
  std::filesystem::remove(twenty_.path + "/rank-00001.record.json");
  Result r = run({"verify", dir_ / "run", "--json"});
  EXPECT_EQ(r.status, 0);
  got = json::parse(r.out);
  EXPECT_EQ(got["step"], 10);
  EXPECT_EQ(got["newer_incomplete"][0]["attempt"], twenty_.name);
  EXPECT_THAT(got["newer_incomplete"][0]["reason"].get<std::string>(), HasSubstr("rank 1 of 2"));
  r = run({"verify", twenty_.path, "--json"});
  EXPECT_EQ(r.status, 1);
  got = json::parse(r.out);
  EXPECT_EQ(got["complete"], false);
  EXPECT_EQ(got["step"], 20);
  EXPECT_EQ(got["problems"][0]["what"], "missing");
  EXPECT_EQ(got["problems"][0]["file"], "rank-00001.record.json");
}

TEST_F(CheckpointCommand, OnlyDeepReadsTheData) {
  const std::string path = twenty_.path + "/rank-00001.safetensors";
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(path, bytes);
  EXPECT_EQ(run({"verify", dir_ / "run"}).status, 0);
  const Result r = run({"verify", "--deep", dir_ / "run", "--json"});
  EXPECT_EQ(r.status, 1);
  const json problem = json::parse(r.out)["problems"][0];
  EXPECT_EQ(problem["file"], "rank-00001.safetensors");
  EXPECT_EQ(problem["tensor"], "w");
  EXPECT_EQ(problem["block"], 0);
  EXPECT_EQ(problem["what"], "crc");
  EXPECT_THAT(run({"verify", "--deep", twenty_.path}).out, HasSubstr("not complete"));
}

TEST_F(CheckpointCommand, WrongUsageIsTwoAndNothingCompleteIsOne) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{},
                                               {"ls"},
                                               {"frobnicate", dir_.path()},
                                               {"ls", "a", "b"},
                                               {"verify", dir_.path(), "--deeper"},
                                               {"ls", dir_.path(), "--deep"},
                                               {"verify", dir_ / "absent"}}) {
    const Result r = run(args);
    EXPECT_EQ(r.status, 2);
    EXPECT_FALSE(r.err.empty());
    EXPECT_TRUE(r.out.empty());
  }
  EXPECT_EQ(run({"verify", dir_.path()}).status, 1);
  EXPECT_EQ(run({"ls", dir_.path()}).status, 1);
}

}  // namespace
}  // namespace dtensor::tools

// dtensor checkpoint: what the subcommands print, write and return.

#include "dtensor/tools/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/latest.h"
#include "dtensor/checkpoint/load.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/save.h"
#include "dtensor/checkpoint/tensor_file.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/checkpoint/without_override.h"
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

TEST_F(CheckpointCommand, VerifyNamesReplicasThatDiffer) {
  testing::run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    testing::Bag bag;
    const Tensor mine = Tensor::full({4}, comm.rank() == 1 ? 5 : 4);
    bag.add("w", DTensor(mine, Layout(mesh.layout(), {4}, {Replicate()}), mesh));
    checkpoint::save(dir_ / "drifted", 1, {.model = bag},
                     {.replicas = checkpoint::Replicas::kCompared});
  });
  const Result r = run({"verify", dir_ / "drifted", "--json"});
  EXPECT_EQ(r.status, 1);
  const json got = json::parse(r.out);
  EXPECT_EQ(got["complete"], true);  // it can be loaded
  ASSERT_EQ(got["problems"].size(), 1U);
  EXPECT_EQ(got["problems"][0]["what"], "replicas");
  EXPECT_EQ(got["problems"][0]["tensor"], "w");
  EXPECT_THAT(got["problems"][0]["text"].get<std::string>(), HasSubstr("ranks 0, 2; rank 1"));
}

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

// One that is being written, or was left by a rank that was killed.
TEST_F(CheckpointCommand, LsSaysWhatIsNotComplete) {
  std::filesystem::remove(twenty_.path + "/rank-00001.record.json");
  Result r = run({"ls", twenty_.path, "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(json::parse(r.out)[0]["chunks"].size(), 1U);
  EXPECT_THAT(r.err, HasSubstr("no record of rank 1 of 2"));
  std::filesystem::create_directory(dir_ / "run/step-30.x");
  r = run({"ls", dir_ / "run/step-30.x"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("no commit record"));
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

// Of a directory on the way, the run's, an attempt's, and of a file: each command says what may not
// be read, with status 1.
TEST_F(CheckpointCommand, SaysWhatMayNotBeRead) {
  namespace fs = std::filesystem;
  fs::create_directory(dir_ / "on");
  fs::rename(dir_ / "run", dir_ / "on/run");
  const std::string run_dir = dir_ / "on/run";
  const std::string attempt = run_dir + "/" + twenty_.name;
  for (const std::string& path :
       {dir_ / "on", run_dir, attempt, attempt + "/rank-00000.record.json",
        attempt + "/rank-00001.safetensors"}) {
    const fs::perms before = fs::status(path).permissions();
    fs::permissions(path, fs::perms::none);
    const std::string& from = path.starts_with(attempt) ? attempt : run_dir;
    for (const std::vector<std::string>& args : {std::vector<std::string>{"ls", from},
                                                 {"verify", from},
                                                 {"verify", "--deep", from},
                                                 {"merge", from},
                                                 {"reshard", from, dir_ / "to", "--world", "3"},
                                                 {"import", from, dir_ / "to", "--step", "3"},
                                                 {"export", from, dir_ / "hf"},
                                                 {"diff", from, from}}) {
      const testing::WithoutOverride scope;
      const Result r = run(args);
      EXPECT_EQ(r.status, 1) << args[0] << " " << path;
      EXPECT_THAT(r.out + r.err, HasSubstr("Permission denied")) << args[0] << " " << path;
    }
    fs::permissions(path, before);
  }
  EXPECT_FALSE(fs::exists(dir_ / "to"));
  EXPECT_FALSE(fs::exists(dir_ / "hf"));
}

// A file where a directory is due, an empty directory, and one that is gone.
TEST_F(CheckpointCommand, SaysWhatIsNoCheckpoint) {
  write_file(dir_ / "file", "");
  std::filesystem::create_directory(dir_ / "empty");
  for (const std::vector<std::string>& rest : {std::vector<std::string>{"ls"},
                                               {"verify"},
                                               {"merge"},
                                               {"reshard", dir_ / "to", "--world", "2"},
                                               {"import", dir_ / "to", "--step", "3"},
                                               {"export", dir_ / "to"},
                                               {"diff", dir_ / "run"}}) {
    for (const std::string name : {"file", "empty", "gone"}) {
      std::vector<std::string> args = rest;
      args.insert(args.begin() + 1, dir_ / name);
      const Result r = run(args);
      EXPECT_EQ(r.status, name == "gone" ? 2 : 1) << rest[0] << " " << name;
      EXPECT_THAT(r.out + r.err, HasSubstr(dir_ / name)) << rest[0];
    }
  }
  EXPECT_FALSE(std::filesystem::exists(dir_ / "to"));
  const Result r = run({"export", dir_ / "run", dir_ / "file"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("Not a directory"));
}

// The values of a checkpoint's tensor "w", loaded whole.
std::vector<float> loaded(const std::string& run, const std::string& name, const Shape& shape) {
  testing::Bag bag;
  const auto w = bag.add(name, DTensor(Tensor::full(shape, -1)));
  checkpoint::load(run, {.model = bag}, {.unexpected = checkpoint::Unexpected::kIgnore});
  return w.value().local_tensor().to_vector<float>();
}

std::vector<float> counting(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

TEST_F(CheckpointCommand, MergeWritesAManifestAndTheCheckpointStaysComplete) {
  const Result r = run({"merge", dir_ / "run", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(json::parse(r.out)["attempt"], twenty_.name);
  EXPECT_TRUE(
      std::filesystem::exists(twenty_.path + "/" + json::parse(r.out)["file"].get<std::string>()));
  EXPECT_EQ(run({"verify", "--deep", dir_ / "run"}).status, 0);
  std::filesystem::remove(twenty_.path + "/rank-00001.record.json");
  EXPECT_EQ(run({"merge", twenty_.path}).status, 1);
  // A record that is damaged is found. Its copy in the manifest is whole: the attempt is complete
  // and what load takes.
  write_file(twenty_.path + "/rank-00001.record.json", "{}");
  const Result damaged = run({"verify", twenty_.path, "--json"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_EQ(json::parse(damaged.out)["complete"], true);
  ASSERT_EQ(json::parse(damaged.out)["problems"].size(), 1U);
  EXPECT_EQ(json::parse(damaged.out)["problems"][0]["file"], "rank-00001.record.json");
  EXPECT_EQ(json::parse(damaged.out)["problems"][0]["what"], "record");
  const Result newest = run({"verify", dir_ / "run"});
  EXPECT_EQ(newest.status, 1);
  EXPECT_NE(newest.out.find(twenty_.name + ": complete\n  record: "), std::string::npos);
  EXPECT_NE(newest.out.find("the manifest has it whole"), std::string::npos);
  EXPECT_EQ(checkpoint::latest(dir_ / "run").step, 20);
  EXPECT_EQ(run({"merge", twenty_.path}).status, 1);
  // Without the manifest it is not complete, for both.
  std::filesystem::remove(twenty_.path + "/manifest.jsonl");
  EXPECT_EQ(json::parse(run({"verify", twenty_.path, "--json"}).out)["complete"], false);
  EXPECT_EQ(json::parse(run({"verify", dir_ / "run", "--json"}).out)["step"], 10);
  const checkpoint::Latest ten = checkpoint::latest(dir_ / "run");
  EXPECT_EQ(ten.step, 10);
  // Where nothing is complete it says why.
  std::filesystem::remove(ten.directory + "/rank-00001.record.json");
  const Result none = run({"merge", dir_ / "run"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("no record of rank 1"), std::string::npos) << none.err;
  EXPECT_EQ(run({"merge"}).status, 2);
}

// DeepSpeed#1070: cut for another world without it.
TEST_F(CheckpointCommand, ReshardCutsAsAnotherMeshWouldHave) {
  Result r =
      run({"reshard", dir_ / "run", dir_ / "other", "--layout", "a=3,b=2:S(0),S(1)", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(json::parse(r.out)["world"], 6);
  EXPECT_EQ(json::parse(r.out)["step"], 20);
  EXPECT_EQ(run({"verify", "--deep", dir_ / "other"}).status, 0);
  const json listed = json::parse(run({"ls", dir_ / "other", "--json"}).out);
  ASSERT_EQ(listed[0]["chunks"].size(), 6U);
  EXPECT_EQ(listed[0]["chunks"][5]["offset"], json::parse("[4,2]"));
  EXPECT_EQ(listed[0]["chunks"][5]["size"], json::parse("[1,1]"));
  EXPECT_EQ(loaded(dir_ / "other", "w", {5, 3}), counting(15));
  EXPECT_EQ(run({"diff", dir_ / "run", dir_ / "other"}).status, 0);
  r = run({"reshard", twenty_.path, dir_ / "one", "--world", "1", "--step", "7"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(loaded(dir_ / "one", "w", {5, 3}), counting(15));
  EXPECT_EQ(run({"reshard", twenty_.path, dir_ / "x"}).status, 2);
  EXPECT_EQ(run({"reshard", twenty_.path, dir_ / "x", "--world", "0"}).status, 2);
  EXPECT_EQ(run({"reshard", twenty_.path, dir_ / "x", "--layout", "a=2:P(sum)"}).status, 2);
  for (const char* layout : {"tp=2:S(-1)", "tp=2:S( -1)", "x=2@0,1000000000:S(0)"}) {
    const Result r = run({"reshard", twenty_.path, dir_ / "x", "--layout", layout});
    EXPECT_EQ(r.status, 2) << layout;
    EXPECT_FALSE(std::filesystem::exists(dir_ / "x")) << layout;
  }
  EXPECT_EQ(
      run({"reshard", twenty_.path, dir_ / "x", "--layout", "a=2:S(0)", "--world", "2"}).status, 2);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x"));
}

// What `ls` says of the offsets along dim 0 after a reshard.
TEST_F(CheckpointCommand, ReshardKeepsOrderUnitAndWeightsOfTheLayout) {
  const auto rows = [&](const std::string& layout) {
    std::filesystem::remove_all(dir_ / "other");
    const Result r = run({"reshard", dir_ / "run", dir_ / "other", "--layout", layout});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(run({"verify", "--deep", dir_ / "other"}).status, 0);
    EXPECT_EQ(loaded(dir_ / "other", "w", {5, 3}), counting(15));
    std::map<std::string, int64_t> first;
    const json listed = json::parse(run({"ls", dir_ / "other", "--json"}).out);
    for (const auto& c : listed[0]["chunks"]) first[c["file"]] = c["offset"][0];
    std::string text;
    for (const auto& [file, row] : first) text += std::to_string(row) + " ";
    return text;
  };
  EXPECT_EQ(rows("x=2:S(0)"), "0 3 ");
  EXPECT_EQ(rows("x=2:S(0);weights=x:1,4"), "0 1 ");
  EXPECT_EQ(rows("x=2:S(0);unit=0:x:4"), "0 4 ");
  EXPECT_EQ(rows("x=2,y=2:S(0),S(0)"), "0 2 3 4 ");
  EXPECT_EQ(rows("x=2,y=2:S(0),S(0);order=0:y,x"), "0 3 2 4 ");
}

class Conversion : public ::testing::Test {
 protected:
  // Four tensors of 40 bytes to 240 kB, and state of an optimizer.
  Conversion() {
    testing::run_ranks(2, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 2}});
      testing::Bag bag;
      const auto add = [&](const std::string& name, int rows, int columns, Placement p) {
        bag.add(name, distribute(Tensor::arange(rows * columns).view({rows, columns}), mesh, {p}));
      };
      add("a", 5, 2, Shard(0));
      add("b", 300, 200, Shard(1));
      add("c.weight", 7, 11, Replicate());
      add("optimizer.exp_avg.a", 5, 2, Shard(0));
      checkpoint::save(dir_ / "run", 3, {.model = bag});
    });
  }
  TemporaryDirectory dir_;
};

TEST_F(Conversion, ExportGivesOneFileOrSeveralWithAnIndexAndNoOptimizerState) {
  Result r = run({"export", dir_ / "run", dir_ / "hf", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(json::parse(r.out)["files"], json::parse(R"(["model.safetensors"])"));
  const auto tensors = checkpoint::read_tensors(dir_ / "hf/model.safetensors");
  EXPECT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors.at("b").to_vector<float>(), counting(60000));
  // Over it, in several files: the old one is no longer part of the model.
  r = run({"export", dir_ / "hf", dir_ / "hf", "--max-shard-size", "1KB", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(
      testing::files_under(dir_ / "hf"),
      (std::set<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                             "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const json index = json::parse(read_file(dir_ / "hf/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 40 + 240000 + 308);
  EXPECT_EQ(index["weight_map"]["c.weight"], "model-00003-of-00003.safetensors");
  EXPECT_EQ(run({"diff", dir_ / "run", dir_ / "hf", "--exclude", "optimizer.**"}).status, 0);
  // Several over several, and one over several: no shard of the old number is left.
  const auto files_of = [&](const std::string& size) {
    EXPECT_EQ(run({"export", dir_ / "run", dir_ / "hf", "--max-shard-size", size}).status, 0);
    return testing::files_under(dir_ / "hf");
  };
  testing::write_file(dir_ / "hf/model-of-mine.safetensors", "x");
  EXPECT_EQ(
      files_of("240100"),
      (std::set<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                             "model-of-mine.safetensors", "model.safetensors.index.json"}));
  EXPECT_EQ(files_of("5GB"),
            (std::set<std::string>{"model-of-mine.safetensors", "model.safetensors"}));
  // In a smaller dtype, a part only.
  r = run({"export", dir_ / "run", dir_ / "bf16", "--dtype", "bf16", "--include", "a,c.*"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto small = checkpoint::read_tensors(dir_ / "bf16/model.safetensors");
  EXPECT_EQ(small.size(), 2U);
  EXPECT_EQ(small.at("a").dtype(), DType::kBFloat16);
  EXPECT_EQ(small.at("a").to(DType::kFloat32).to_vector<float>(), counting(10));
  EXPECT_EQ(run({"export", dir_ / "run", dir_ / "x", "--max-shard-size", "5 parsecs"}).status, 2);
  EXPECT_EQ(run({"export", dir_ / "run", dir_ / "x", "--dtype", "i8"}).status, 2);
}

TEST_F(Conversion, AFailedExportLeavesTheOldFileAndNoTemporary) {
  ASSERT_EQ(run({"export", dir_ / "run", dir_ / "hf"}).status, 0);
  const std::string before = read_file(dir_ / "hf/model.safetensors");
  const std::string path =
      checkpoint::list_attempts(dir_ / "run").front().path + "/rank-00001.safetensors";
  std::string bytes = read_file(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(path, bytes);
  const Result r = run({"export", dir_ / "run", dir_ / "hf"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("rank-00001.safetensors"));
  EXPECT_EQ(read_file(dir_ / "hf/model.safetensors"), before);
  EXPECT_EQ(testing::files_under(dir_ / "hf"), std::set<std::string>{"model.safetensors"});
}

TEST_F(Conversion, ImportTakesHuggingFaceFiles) {
  ASSERT_EQ(run({"export", dir_ / "run", dir_ / "hf", "--max-shard-size", "1KB"}).status, 0);
  Result r = run({"import", dir_ / "hf", dir_ / "back", "--step", "0", "--world", "3"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(run({"verify", "--deep", dir_ / "back"}).status, 0);
  EXPECT_EQ(loaded(dir_ / "back", "b", {300, 200}), counting(60000));
  r = run({"import", dir_ / "hf/model-00001-of-00003.safetensors", dir_ / "file", "--step", "1"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(run({"import", dir_ / "hf", dir_ / "x"}).status, 2);
  EXPECT_EQ(run({"verify", "--deep", dir_ / "hf"}).out, (dir_ / "hf") + ": complete\n");
  std::filesystem::remove(dir_ / "hf/model-00002-of-00003.safetensors");
  r = run({"import", dir_ / "hf", dir_ / "x", "--step", "0"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("model-00002-of-00003.safetensors"));
  r = run({"verify", dir_ / "hf", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(json::parse(r.out)["problems"][0]["text"].get<std::string>(),
              HasSubstr("model-00002-of-00003.safetensors"));
}

// The files as torch.distributed.checkpoint's HuggingFaceStorageWriter makes them with
// save_distributed=True: in each the parts of one rank, with their offsets in the metadata.
class DcpImport : public ::testing::Test {
 protected:
  void write(int shard, const std::string& offsets, const std::vector<safetensors::Item>& items) {
    std::filesystem::create_directories(dir_ / "dcp");
    safetensors::write(
        dir_ / ("dcp/shard-0000" + std::to_string(shard) + "-model-00001-of-00001.safetensors"),
        items, {{"DCP_SHARDING_INFO", offsets}, {"DCP_VERSION", "1.0"}, {"format", "pt"}});
  }
  Result import() { return run({"import", dir_ / "dcp", dir_ / "run", "--step", "5"}); }

  TemporaryDirectory dir_;
  std::vector<float> values_ = counting(12);
};

TEST_F(DcpImport, PartsGoWhereTheirOffsetsSay) {
  const std::vector<float> left = {0, 1, 4, 5, 8, 9};
  const std::vector<float> right = {2, 3, 6, 7, 10, 11};
  write(1, R"({"w":{"saved_offsets":[0,0]},"s":{"saved_offsets":[]}})",
        {{"w", DType::kFloat32, {3, 2}, left.data()}, {"s", DType::kFloat32, {}, &values_[7]}});
  write(2, R"({"w":{"saved_offsets":[0,2]}})", {{"w", DType::kFloat32, {3, 2}, right.data()}});
  const Result r = import();
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(loaded(dir_ / "run", "w", {3, 4}), counting(12));
  EXPECT_EQ(loaded(dir_ / "run", "s", {}), std::vector<float>{7});
  EXPECT_EQ(run({"diff", dir_ / "dcp", dir_ / "run"}).status, 0);
  EXPECT_EQ(run({"verify", dir_ / "dcp"}).status, 0);
}

// Written by PyTorch itself on two ranks; tests/data/README.md says what.
TEST_F(DcpImport, FilesOfPyTorchAreRead) {
  const Result r = run({"import", "tests/data/dcp", dir_ / "run", "--step", "5", "--world", "2"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Result d = run({"diff", "tests/data/dcp_whole.safetensors", dir_ / "run"});
  EXPECT_EQ(d.status, 0) << d.out;
  EXPECT_EQ(json::parse(run({"ls", dir_ / "run", "--json"}).out).size(), 5U);
}

TEST_F(DcpImport, WhatDoesNotFitTogetherIsRefusedByName) {
  const auto part = [&](int shard, const std::string& offsets) {
    write(shard, offsets, {{"w", DType::kFloat32, {3, 2}, values_.data()}});
  };
  const auto refused = [&](const std::string& says) {
    const Result r = import();
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr(says));
    EXPECT_FALSE(std::filesystem::exists(dir_ / "run"));
  };
  part(1, R"({"w":{"saved_offsets":[0,0]}})");
  part(2, R"({"w":{"saved_offsets":[0,3]}})");
  refused("in none of the files");
  const Result verified = run({"verify", dir_ / "dcp"});
  EXPECT_EQ(verified.status, 1);
  EXPECT_THAT(verified.out, HasSubstr("in none of the files"));
  part(2, R"({"w":{"saved_offsets":[0,1]}})");
  refused("held twice");
  for (const std::string bad :
       {R"({"w":{"saved_offsets":[0]}})", R"({"v":{"saved_offsets":[0,0]}})", R"({"w":{}})", "[]",
        "", R"({"w":{"saved_offsets":[0,-1]}})",
        R"({"w":{"saved_offsets":[0,9223372036854775807]}})",
        R"({"w":{"saved_offsets":[0,2]},"w":{"saved_offsets":[0,2]}})"}) {
    part(2, bad);
    refused("");
  }
  part(2, R"({"w":{"saved_offsets":[0,9223372036854775807]}})");
  refused("shard-00002-model-00001-of-00001.safetensors: tensor \"w\": size");
  part(2, R"({"w":{"saved_offsets":[4611686018427387904,4611686018427387904]}})");
  refused(".safetensors: tensor \"w\": size");
  safetensors::write(dir_ / "dcp/shard-00002-model-00001-of-00001.safetensors", {});
  refused("does not belong");
}

TEST_F(Conversion, DiffTellsNamesShapesDtypesAndValues) {
  const auto write = [&](const std::string& name, const std::map<std::string, Tensor>& tensors) {
    checkpoint::write_tensors(dir_ / name, tensors);
    return dir_ / name;
  };
  const std::string x = write("x", {{"same", Tensor::arange(9)},
                                    {"gone", Tensor::zeros({2})},
                                    {"shape", Tensor::zeros({2})},
                                    {"dtype", Tensor::arange(4)},
                                    {"value", Tensor::arange(100000)},
                                    {"nan", Tensor::full({3}, std::nan(""))}});
  Tensor value = Tensor::arange(100000);
  value.data<float>()[70000] += 0.5F;
  const std::string y = write("y", {{"same", Tensor::arange(9)},
                                    {"new", Tensor::zeros({2})},
                                    {"shape", Tensor::zeros({3})},
                                    {"dtype", Tensor::arange(4).to(DType::kBFloat16)},
                                    {"value", value},
                                    {"nan", Tensor::zeros({3})}});
  Result r = run({"diff", x, y, "--json", "--buffer", "1"});
  EXPECT_EQ(r.status, 1);
  std::map<std::string, json> got;
  for (const auto& d : json::parse(r.out)) got[d["name"]] = d;
  EXPECT_EQ(got.size(), 6U);
  EXPECT_EQ(got["gone"]["what"], "only in first");
  EXPECT_EQ(got["new"]["what"], "only in second");
  EXPECT_EQ(got["shape"]["what"], "shape");
  EXPECT_EQ(got["dtype"]["what"], "dtype");
  EXPECT_EQ(got["value"]["max_difference"], 0.5);
  EXPECT_EQ(got["nan"]["max_difference"], "inf");
  r = run({"diff", x, y, "--include", "same,value,nan", "--exclude", "nan", "--tolerance", "0.5"});
  EXPECT_EQ(r.status, 0) << r.out;
  EXPECT_EQ(run({"diff", x, x}).status, 0);
  EXPECT_EQ(run({"diff", x}).status, 2);
  EXPECT_EQ(run({"diff", x, dir_ / "absent"}).status, 2);
}

// Both are 2^60 in float64.
TEST_F(Conversion, DiffComparesWholeNumbersExactly) {
  constexpr int64_t kLarge = int64_t{1} << 60;
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto differ = [&](const Tensor& x, const Tensor& y) {
    checkpoint::write_tensors(dir_ / "x", {{"n", x}});
    checkpoint::write_tensors(dir_ / "y", {{"n", y}});
    const Result r = run({"diff", dir_ / "x", dir_ / "y", "--json"});
    const json found = json::parse(r.out);
    EXPECT_EQ(r.status, found.empty() ? 0 : 1);
    return found.empty() ? 0.0 : found[0]["max_difference"].get<double>();
  };
  const Tensor x = Tensor::of<int64_t>({kLarge, 7, kLeast}, {3});
  EXPECT_EQ(differ(x, x), 0);
  EXPECT_EQ(differ(x, Tensor::of<int64_t>({kLarge + 1, 7, kLeast}, {3})), 1);
  EXPECT_EQ(differ(x, Tensor::of<int64_t>({kLarge, 7, -(kLeast + 1)}, {3})), std::exp2(64));
  EXPECT_EQ(differ(Tensor::full({2}, 0, DType::kBool), Tensor::full({2}, 1, DType::kBool)), 1);
  EXPECT_EQ(differ(Tensor::of<int8_t>({-128}, {1}), Tensor::of<int8_t>({127}, {1})), 255);
}

TEST_F(Conversion, MemoryIsThatOfTheBufferAndProgressIsShownWhenAskedFor) {
  {
    testing::Bag bag;
    bag.add("large", DTensor(Tensor::full({3000, 1000}, 2)));
    checkpoint::save(dir_ / "large", 1, {.model = bag});
  }
  const auto allocator = make_heap_allocator();
  const ScopedSlot<CurrentAllocator> scope({allocator});
  EXPECT_EQ(run({"verify", "--deep", dir_ / "large"}).err, "");
  Result r = run({"reshard", dir_ / "large", dir_ / "cut", "--layout", "x=2:S(1)", "--buffer", "4",
                  "--progress"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("100%"));
  r = run({"diff", dir_ / "large", dir_ / "cut", "--buffer", "4"});
  EXPECT_EQ(r.status, 0) << r.out;
  EXPECT_LE(allocator->stats().peak_bytes, 4 << 20);
}

}  // namespace
}  // namespace dtensor::tools

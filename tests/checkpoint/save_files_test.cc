// Which files a rank writes: of a limited size, each legal by itself, in few writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using ::testing::ElementsAre;
using testing::FileCall;
using testing::RecordingFileSystem;
using testing::run_ranks;
using testing::TemporaryDirectory;

// File -> key -> shape.
std::map<std::string, std::map<std::string, std::vector<int64_t>>> keys_in(const Contents& c) {
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> keys;
  for (const StoredFile& f : c.files) {
    const safetensors::File file(f.path);
    for (const safetensors::Entry& e : file.entries()) keys[f.name][e.name] = e.shape;
  }
  return keys;
}

TEST(SaveFiles, AreSplitAtTheLimitAndLargeTensorsByRows) {
  const TemporaryDirectory run;
  Bag bag;
  const auto add = [&](const std::string& name, const Shape& shape) {
    return bag.add(name, DTensor(Tensor::arange(shape.numel()).view(shape)));
  };
  add("a", {10});
  add("b", {9, 4});    // 144 bytes: more than a file
  add("c#", {2, 50});  // rows of 200 bytes: each a file of its own
  add("d", {});
  add("e", {5});
  save(run.path(), 1, {.model = bag}, {.file_bytes = 100});
  const Contents contents = *find_complete(run.path()).complete;
  using Keys = std::map<std::string, std::vector<int64_t>>;
  EXPECT_EQ(keys_in(contents),
            (std::map<std::string, Keys>{{"rank-00000.safetensors", {{"a", {10}}}},
                                         {"rank-00000-1.safetensors", {{"b", {6, 4}}}},
                                         {"rank-00000-2.safetensors", {{"b#1", {3, 4}}}},
                                         {"rank-00000-3.safetensors", {{"c##", {1, 50}}}},
                                         {"rank-00000-4.safetensors", {{"c###1", {1, 50}}}},
                                         {"rank-00000-5.safetensors", {{"d", {}}, {"e", {5}}}}}));
  EXPECT_TRUE(examine_data(contents).empty());
  Bag other;
  for (const auto& [name, p] : bag.named_parameters()) {
    other.add(name, DTensor(Tensor::full(p.value().shape(), -1)));
  }
  EXPECT_EQ(load(run.path(), {.model = other}), 1);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(other.parameters()[i].value().local_tensor().to_vector<float>(),
              bag.parameters()[i].value().local_tensor().to_vector<float>());
  }
  EXPECT_THROW(save(run.path(), 2, {.model = bag}, {.file_bytes = 0}), ArgumentError);
}

TEST(SaveFiles, SplitOnesLoadOnOtherMeshes) {
  const TemporaryDirectory run;
  const Tensor whole = Tensor::arange(30 * 7).view({30, 7});
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(whole, mesh, {Shard(0)}));
    bag.add("v", distribute(whole, mesh, {Shard(1)}));
    save(run.path(), 1, {.model = bag}, {.file_bytes = 61});
  });
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    const auto w = bag.add("w", distribute(Tensor::zeros({30, 7}), mesh, {Shard(1)}));
    const auto v = bag.add("v", distribute(Tensor::zeros({30, 7}), mesh, {Shard(0)}));
    EXPECT_EQ(load(run.path(), {.model = bag}), 1);
    EXPECT_EQ(full(w.value()).to_vector<float>(), whole.to_vector<float>());
    EXPECT_EQ(full(v.value()).to_vector<float>(), whole.to_vector<float>());
  });
}

TEST(SaveFiles, ThousandsOfTensorsAreFewWrites) {
  const TemporaryDirectory run;
  Bag bag;
  for (int i = 0; i < 5000; ++i) {
    bag.add("layers." + std::to_string(i) + ".weight", DTensor(Tensor::full({8, 8}, i)));
  }
  const auto system = std::make_shared<RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> slot({system});
  save(run.path(), 1, {.model = bag});
  std::map<FileCall::Kind, int> counts;
  int64_t bytes = 0;
  for (const FileCall& c : system->calls()) {
    ++counts[c.kind];
    bytes += std::ssize(c.bytes);
  }
  using enum FileCall::Kind;
  EXPECT_GT(bytes, 5000 * 256);
  EXPECT_LE(counts[kWrite], bytes / (1 << 20) + 2);  // blocks of 1 MiB, a last one of each file
  EXPECT_EQ(counts[kSync], 2);
  EXPECT_EQ(counts[kSyncDirectory], 2);
}

// The order that makes it safe: data, fsync, record, fsync, rename, fsync of the directories.
TEST(SaveFiles, TheRecordComesLast) {
  const TemporaryDirectory run;
  Bag bag;
  bag.add("w", DTensor(Tensor::full({8}, 1)));
  const auto system = std::make_shared<RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> slot({system});
  save(run / "new", 1, {.model = bag});
  std::vector<std::string> order;
  for (const FileCall& c : system->calls()) {
    const std::string name = std::filesystem::path(c.path).filename().string();
    const bool record = name.find(".record.json") != std::string::npos;
    const std::string what = record ? "record" : name.starts_with("step-") ? "attempt" : name;
    order.push_back(std::to_string(static_cast<int>(c.kind)) + " " + what);
  }
  const std::string data = "rank-00000.safetensors";
  const std::string above = std::filesystem::path(run.path()).filename().string();
  const auto call = [](FileCall::Kind kind, const std::string& what) {
    return std::to_string(static_cast<int>(kind)) + " " + what;
  };
  using enum FileCall::Kind;
  EXPECT_THAT(order,
              ElementsAre(call(kMakeDirectory, "new"), call(kSyncDirectory, above),
                          call(kMakeDirectory, "attempt"), call(kCreate, data), call(kWrite, data),
                          call(kSync, data), call(kClose, data), call(kCreate, "record"),
                          call(kWrite, "record"), call(kSync, "record"), call(kClose, "record"),
                          call(kRename, "record"), call(kSyncDirectory, "attempt"),
                          call(kSyncDirectory, "new")));
}

// A replica that is declared as a shard: its local tensor is not what the layout says.
TEST(SaveFiles, AShardOfTheWrongShapeIsRefusedBeforeItCanBeSaved) {  // pytorch#126595
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const Layout layout(mesh.layout(), {16, 4}, {Shard(0)});
    EXPECT_THROW(DTensor(Tensor::zeros({16, 4}), layout, mesh), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor::checkpoint

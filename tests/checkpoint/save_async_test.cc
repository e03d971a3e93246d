// Saves in the background: the values of the call, bounded memory, errors that are not lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::FileCall;
using testing::Gate;
using testing::RecordingFileSystem;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

// What is saved while this lives is not written before the gate is opened.
class SlowDisk {
 public:
  SlowDisk()
      : slot_({std::make_shared<RecordingFileSystem>(
            [this](const FileCall&) { return gate_.wait(); })}) {}
  ~SlowDisk() {
    open();
    release_save_buffers();  // nobody waits at the gate any more
  }
  void open() { gate_.open(); }

 private:
  Gate gate_;
  ScopedSlot<CurrentFileSystem> slot_;
};

// pytorch#144657, torchtitan#930, Megatron-Bridge#3267
TEST(SaveAsync, HoldsTheValuesOfTheCall) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::of<float>({1}, {1, 1})));
  std::map<std::string, int64_t> numbers = {{"step", 7}};
  std::map<std::string, std::string> json = {{"scheduler", R"({"step":7})"}};
  const State state{.model = bag, .numbers = numbers, .json = json};
  {
    SlowDisk disk;
    const PendingSave save = save_async(run.path(), 7, state);
    kernels::fill(w.value().local_tensor(), 2);
    numbers["step"] = 8;
    json["scheduler"] = R"({"step":8})";
    EXPECT_TRUE(save.is_started());
    EXPECT_FALSE(save.is_done());
    disk.open();
    save.wait();
    EXPECT_TRUE(save.is_done());
    EXPECT_EQ(save.directory(), find_complete(run.path()).complete->attempt.path);
  }
  EXPECT_EQ(load(run.path(), state), 7);
  EXPECT_EQ(numbers.at("step"), 7);
  EXPECT_EQ(json.at("scheduler"), R"({"step":7})");
  EXPECT_EQ(w.value().local_tensor().to_vector<float>(), std::vector<float>{1});
}

TEST(SaveAsync, HoldsTheValuesOfStridedAndManyTensorsOnAMesh) {
  const TemporaryDirectory run;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    const Tensor whole = Tensor::arange(300 * 200).view({300, 200});
    const auto w = bag.add("w", distribute(whole, mesh, {Shard(1)}));
    const auto t = bag.add("t", distribute(whole.transpose(0, 1), mesh, {Shard(0)}));
    const auto b =
        bag.add("b", distribute(Tensor::full({3}, 1, DType::kUInt8), mesh, {Replicate()}));
    const int64_t calls = comm.counters().calls;
    save_async(run.path(), 1, {.model = bag}, {.file_bytes = 50'001});
    for (const auto& p : bag.parameters()) kernels::fill(p.value().local_tensor(), 0);
    wait_for_save();
    EXPECT_EQ(comm.counters().calls, calls);
    comm.barrier().wait();
    EXPECT_EQ(load(run.path(), {.model = bag}), 1);
    EXPECT_EQ(full(w.value()).to_vector<float>(), whole.to_vector<float>());
    EXPECT_EQ(full(t.value()).to_vector<float>(), whole.transpose(0, 1).to_vector<float>());
    EXPECT_EQ(full(b.value()).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 1, 1}));
  });
}

TEST(SaveAsync, ManySavesHoldTheMemoryOfTwo) {  // Megatron-Bridge#3267
  const TemporaryDirectory run;
  Bag bag;
  bag.add("w", DTensor(Tensor::full({100, 1000}, 1)));
  auto& allocator = *Context::current().slot<CurrentAllocator>().allocator;
  const AllocatorStats before = allocator.stats();
  allocator.reset_peak();
  for (int i = 0; i < 200; ++i) {
    save_async(run.path(), i, {.model = bag}, {.retention = {.keep_last = 2}});
  }
  wait_for_save();
  const AllocatorStats after = allocator.stats();
  EXPECT_LE(after.peak_bytes, before.live_bytes + 2 * (100 * 1000 * 4 + 64));
  EXPECT_LE(after.allocations - before.allocations, 2);
  release_save_buffers();
  EXPECT_EQ(allocator.stats().live_bytes, before.live_bytes);
  EXPECT_EQ(find_complete(run.path()).complete->attempt.step, 199);
  EXPECT_LE(list_attempts(run.path()).size(), 3U);
}

TEST(SaveAsync, AThirdIsRefusedOrWaitsByChoice) {
  const TemporaryDirectory run;
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({10}, 1)));
  {
    SlowDisk disk;
    const PendingSave first = save_async(run.path(), 1, {.model = bag});
    kernels::fill(w.value().local_tensor(), 2);
    const PendingSave second =
        save_async(run.path(), 2, {.model = bag}, {.when_busy = WhenBusy::kRefuse});
    kernels::fill(w.value().local_tensor(), 3);
    const PendingSave third =
        save_async(run.path(), 3, {.model = bag}, {.when_busy = WhenBusy::kRefuse});
    EXPECT_TRUE(second.is_started());
    EXPECT_FALSE(third.is_started());
    EXPECT_EQ(third.directory(), "");
    third.wait();
    disk.open();
    save_async(run.path(), 4, {.model = bag}).wait();
    EXPECT_TRUE(first.is_done() && second.is_done());  // in the order of the calls
  }
  for (const auto& [step, value] : std::map<int, float>{{1, 1}, {2, 2}, {4, 3}}) {
    EXPECT_EQ(load(run.path(), {.model = bag}, {.step = step}), step);
    EXPECT_EQ(w.value().local_tensor().data<float>()[0], value);
  }
  EXPECT_EQ(list_attempts(run.path()).size(), 3U);
}

// A refused save has its number too: the ids of the ranks stay the same.
TEST(SaveAsync, AfterARefusalOnOneRankTheNextSaveIsComplete) {
  const TemporaryDirectory run;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    bag.add("w", distribute(Tensor::full({10}, 1), mesh, {Shard(0)}));
    {
      std::optional<SlowDisk> disk;
      if (comm.rank() == 1) disk.emplace();
      for (int step = 1; step <= 3; ++step) {
        const PendingSave save =
            save_async(run.path(), step, {.model = bag}, {.when_busy = WhenBusy::kRefuse});
        if (comm.rank() == 0) save.wait();
      }
    }
    save(run.path(), 4, {.model = bag});
  });
  EXPECT_EQ(find_complete(run.path()).complete->attempt.step, 4);
  const Found third = find_complete(run.path(), 3);
  EXPECT_FALSE(third.complete.has_value());
  EXPECT_THAT(third.passed_over.at(0).reason(), ::testing::HasSubstr("no record of rank 1"));
}

TEST(SaveAsync, AnErrorIsThrownByTheNextSaveOrWaitOnce) {
  const TemporaryDirectory run;
  write_file(run / "file", "");
  Bag bag;
  bag.add("w", DTensor(Tensor::full({3}, 1)));
  const auto failed = [&] {
    PendingSave save = save_async(run / "file", 1, {.model = bag});
    while (!save.is_done()) std::this_thread::yield();
    return save;
  };
  failed();
  EXPECT_THROW(wait_for_save(), CheckpointError);
  wait_for_save();  // once
  failed();
  EXPECT_THROW(save_async(run / "good", 2, {.model = bag}), CheckpointError);
  failed();
  EXPECT_THROW(save(run / "good", 2, {.model = bag}), CheckpointError);
  EXPECT_FALSE(std::filesystem::exists(run / "good"));
  const PendingSave told = failed();
  EXPECT_THROW(told.wait(), CheckpointError);
  EXPECT_THROW(told.wait(), CheckpointError);
  save(run / "good", 2, {.model = bag});
  EXPECT_EQ(load(run / "good", {.model = bag}), 2);
}

TEST(SaveAsync, AContextThatEndsWaitsForItsSave) {
  const TemporaryDirectory run;
  {
    Context context;
    const ContextScope scope(context);
    Bag bag;
    bag.add("w", DTensor(Tensor::full({2000, 1000}, 1)));
    save_async(run.path(), 1, {.model = bag});
  }
  EXPECT_TRUE(find_complete(run.path()).complete.has_value());
}

}  // namespace
}  // namespace dtensor::checkpoint

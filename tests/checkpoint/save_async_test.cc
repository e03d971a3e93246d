// Saves in the background: the values of the call, bounded memory, errors that are not lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

// pytorch#144657, torchtitan#930, Megatron-Bridge#3267
TEST(SaveAsync, HoldsTheValuesOfTheCall) {
  const TemporaryDirectory run;
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    // Large enough that the writer is not done before the next line runs.
    const auto w = bag.add("w", distribute(Tensor::full({2000, 1000}, 1), mesh, {Shard(0)}));
    std::map<std::string, int64_t> numbers = {{"step", 7}};
    const int64_t calls = comm.counters().calls;
    save_async(run.path(), 7, {.model = bag, .numbers = numbers});
    kernels::fill(w.value().local_tensor(), 2);
    numbers["step"] = 8;
    wait_for_save();
    EXPECT_EQ(comm.counters().calls, calls);
    comm.barrier().wait();
    EXPECT_EQ(load(run.path(), {.model = bag, .numbers = numbers}), 7);
    EXPECT_EQ(numbers.at("step"), 7);
    const auto values = w.value().local_tensor().to_vector<float>();
    EXPECT_EQ(values, std::vector<float>(values.size(), 1));
  });
}

TEST(SaveAsync, ManySavesHoldTheMemoryOfOne) {
  const TemporaryDirectory run;
  Bag bag;
  bag.add("w", DTensor(Tensor::full({100, 1000}, 1)));
  auto& allocator = *Context::current().slot<CurrentAllocator>().allocator;
  const int64_t before = allocator.stats().live_bytes;
  allocator.reset_peak();
  for (int i = 0; i < 50; ++i) save_async(run.path(), i, {.model = bag});
  wait_for_save();
  EXPECT_EQ(allocator.stats().live_bytes, before);
  EXPECT_LE(allocator.stats().peak_bytes, before + 100 * 1000 * 4 + 4096);
  EXPECT_EQ(list_attempts(run.path()).size(), 50U);
  EXPECT_EQ(find_complete(run.path()).complete->attempt.step, 49);
}

TEST(SaveAsync, AnErrorIsThrownByTheNextSaveOrWait) {
  const TemporaryDirectory run;
  write_file(run / "file", "");
  Bag bag;
  bag.add("w", DTensor(Tensor::full({3}, 1)));
  save_async(run / "file", 1, {.model = bag});
  EXPECT_THROW(wait_for_save(), CheckpointError);
  wait_for_save();  // once
  save_async(run / "file", 1, {.model = bag});
  EXPECT_THROW(save_async(run / "good", 2, {.model = bag}), CheckpointError);
  save_async(run / "file", 1, {.model = bag});
  EXPECT_THROW(save(run / "good", 2, {.model = bag}), CheckpointError);
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

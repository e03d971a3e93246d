// Loading and saving where the system has no more threads. The binary's own pthread_create stands
// before the system's, so that it can refuse.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace {

std::atomic<int> threads_left = 1 << 20;
std::atomic<int> refused = 0;

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  if (threads_left.fetch_sub(1) <= 0) {
    ++refused;
    return EAGAIN;
  }
  static const auto system =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return system(thread, attributes, run, argument);
}

namespace dtensor::checkpoint {
namespace {

TEST(NoThreads, ASaveInTheBackgroundIsRefusedAndTheNextOneIsMade) {
  const testing::TemporaryDirectory run;
  testing::Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::full({1000}, 1)));
  threads_left = 0;
  for (int i = 0; i < 3; ++i) {  // more often than there are buffers
    EXPECT_THROW(save_async(run / "run", 1, {.model = bag}), CheckpointError);
  }
  threads_left = 1 << 20;
  EXPECT_FALSE(std::filesystem::exists(run / "run"));
  wait_for_save();  // nothing is left to be told
  save_async(run / "run", 2, {.model = bag}).wait();
  EXPECT_EQ(latest(run / "run").step, 2);
}

TEST(NoThreads, AFillThatCanStartNoneReadsAll) {
  const testing::TemporaryDirectory dir;
  const std::string path = dir / "file.safetensors";
  std::vector<uint8_t> data(6 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7 + i / 251);
  const std::vector<safetensors::Item> items = {
      {"w", DType::kUInt8, {static_cast<int64_t>(data.size())}, data.data()}};
  safetensors::write(path, items);
  const auto size = static_cast<int64_t>(testing::read_file(path).size());
  const Box box{{0}, {static_cast<int64_t>(data.size())}};
  const std::vector<FillSource> sources = {{path, size}};
  for (const int left : {0, 1}) {
    const std::vector<FillTarget> targets = {
        {"w", Tensor::zeros(box.size, DType::kUInt8), box, DType::kUInt8}};
    refused = 0;
    threads_left = left;
    fill(sources, targets, {{0, 0, size - std::ssize(data), box, box}},
         {.buffer_bytes = 1, .threads = 4});
    threads_left = 1 << 20;
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(targets[0].local.to_vector<uint8_t>(), data);
  }
}

}  // namespace
}  // namespace dtensor::checkpoint

// The ranks of a host read each block once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/redistribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using testing::Bag;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr int64_t kBlock = 1 << 20;
constexpr int kRanks = 4;

// [3000, 1000] f32, 11.4 MiB, saved on two ranks.
class SharedLoad : public ::testing::Test {
 protected:
  SharedLoad() {
    run_ranks(2, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 2}});
      Bag bag;
      bag.add("w", distribute(Tensor::arange(3'000'000).view({3000, 1000}), mesh, {Shard(0)}));
      save(run_.path(), 1, {.model = bag});
    });
    for (const std::string& name : testing::files_under(run_.path())) {
      if (!name.ends_with(".safetensors")) continue;
      files_.push_back(run_ / name);
      bytes_ += static_cast<int64_t>(read_file(files_.back()).size());
    }
  }

  // Loads on four ranks; the bytes that the ranks of all hosts read.
  int64_t load_on(Placement placement, Reading reading, const std::string& hosts) {
    std::atomic<int64_t> read = 0;
    run_ranks(kRanks, [&](comm::Comm& comm) {
      const auto allocator = make_heap_allocator();
      const ScopedSlot<CurrentAllocator> scope({allocator});
      const DeviceMesh mesh(comm, {{"x", kRanks}});
      Bag bag;
      const auto w = bag.add("w", distribute(Tensor::zeros({3000, 1000}), mesh, {placement}));
      const int64_t live = allocator->stats().live_bytes;
      allocator->reset_peak();
      LoadReport report;
      load(run_.path(), {.model = bag},
           {.buffer_bytes = 4 * kBlock,
            .reading = reading,
            .host = hosts.substr(static_cast<size_t>(comm.rank()), 1),
            .report = &report});
      EXPECT_LE(allocator->stats().peak_bytes, live + 4 * kBlock);
      read += report.bytes_read;
      const Box box = w.value().layout().box_of(comm.rank());
      const Tensor local = w.value().local_tensor();
      int64_t wrong = 0;
      for (int64_t i = 0; i < box.size[0]; ++i) {
        for (int64_t j = 0; j < box.size[1]; ++j) {
          const auto want = static_cast<float>((box.offset[0] + i) * 1000 + box.offset[1] + j);
          wrong += local.data<float>()[i * box.size[1] + j] != want ? 1 : 0;
        }
      }
      EXPECT_EQ(wrong, 0);
    });
    return read;
  }

  TemporaryDirectory run_;
  std::vector<std::string> files_;
  int64_t bytes_ = 0;
};

TEST_F(SharedLoad, ABlockIsReadOnceByAHost) {
  // Besides, every rank looks at the headers: a block of each of the two files.
  const int64_t headers = kRanks * 2 * kBlock;
  for (const Placement placement : {Placement(Replicate()), Placement(Shard(1))}) {
    EXPECT_EQ(load_on(placement, Reading::kByEachRank, "aaaa"), kRanks * bytes_ + headers);
    EXPECT_EQ(load_on(placement, Reading::kOncePerHost, "aaaa"), bytes_ + headers);
    EXPECT_EQ(load_on(placement, Reading::kOncePerHost, "abab"), 2 * bytes_ + headers);
    EXPECT_EQ(load_on(placement, Reading::kOncePerHost, "aaab"), 2 * bytes_ + headers);
  }
  // Nobody else needs it: no more is read than without sharing.
  EXPECT_LE(load_on(Shard(0), Reading::kOncePerHost, "aaaa"),
            load_on(Shard(0), Reading::kByEachRank, "aaaa"));
}

// pytorch: a rank that fails alone leaves the others waiting.
TEST_F(SharedLoad, MemoryThatIsOutOnOneRankIsAnErrorOnAll) {
  for (const bool strided : {false, true}) {
    run_ranks(kRanks, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", kRanks}});
      Bag bag;
      const Tensor whole = Tensor::zeros({1000, 3000});
      const Tensor local = strided ? whole.transpose(0, 1) : whole.view({3000, 1000});
      bag.add("w", replicate(DTensor(local), mesh));
      // Less than a block, and than a copy of the whole.
      const int64_t most = comm.rank() == 2 ? 700'000 : int64_t{1} << 40;
      const ScopedSlot<CurrentAllocator> scope({make_heap_allocator({.most_bytes = most})});
      try {
        load(run_.path(), {.model = bag}, {.reading = Reading::kOncePerHost, .host = "a"});
        ADD_FAILURE() << "memory was not out";
      } catch (const CheckpointError& e) {
        EXPECT_THAT(e.what(), HasSubstr("out of memory"));
      }
      comm.barrier().wait();  // the Comm is good
    });
  }
}

TEST_F(SharedLoad, DamageOnOneRankIsAnErrorOnAll) {
  std::string bytes = read_file(files_[1]);
  bytes[static_cast<size_t>(4 * kBlock + 9)] ^= 1;
  write_file(files_[1], bytes);
  run_ranks(kRanks, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", kRanks}});
    Bag bag;
    bag.add("w", distribute(Tensor::zeros({3000, 1000}), mesh, {Replicate()}));
    std::string message;
    try {
      load(run_.path(), {.model = bag},
           {.buffer_bytes = 4 * kBlock,
            .reading = Reading::kOncePerHost,
            .host = comm.rank() < 2 ? "a" : "b"});
    } catch (const CheckpointError& e) {
      message = e.what();
    }
    EXPECT_THAT(message, AllOf(HasSubstr(files_[1]), HasSubstr("block 4 "), HasSubstr("\"w\""),
                               HasSubstr("Overwritten by then")));
    // The Comm is still good.
    comm.barrier().wait();
  });
}

}  // namespace
}  // namespace dtensor::checkpoint

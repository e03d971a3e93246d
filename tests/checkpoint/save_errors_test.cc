// A disk that is full, read-only or gone at any call of a save: a clear error, no half file, and
// the earlier step still loads. Lightning#688, ultralytics#5793, safetensors#762

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using testing::Bag;
using testing::FileCall;
using testing::files_under;
using ::testing::HasSubstr;
using testing::RecordingFileSystem;
using testing::run_ranks;
using testing::TemporaryDirectory;

namespace fs = std::filesystem;

class Failing : public ::testing::Test {
 protected:
  Failing() {
    w_ = bag_.add("w", DTensor(Tensor::full({400'000}, 1)));  // two blocks
    save(run_.path(), 10, {.model = bag_});
    kernels::fill(w_.value().local_tensor(), 2);
  }

  // Saves step 20 with the `n`-th call failing; its message, "" where there was no error.
  std::string error_at(int n, int error) {
    int calls = 0;
    const ScopedSlot<CurrentFileSystem> slot({std::make_shared<RecordingFileSystem>(
        [&, n, error](const FileCall&) { return calls++ == n ? error : 0; })});
    try {
      save(run_.path(), 20, {.model = bag_}, {.file_bytes = 1'000'000});
    } catch (const CheckpointError& e) {
      return e.what();
    }
    return "";
  }

  TemporaryDirectory run_;
  Bag bag_;
  nn::Parameter w_;
};

TEST_F(Failing, AnErrorOfAnyCallNamesFileAndReasonAndLeavesTheOldStep) {
  const auto before = files_under(run_.path());
  for (const int error : {ENOSPC, EROFS, EACCES, EIO}) {
    int failed = 0;
    for (int n = 0;; ++n) {
      const std::string message = error_at(n, error);
      if (message.empty()) {
        // That was one call more than a save makes, or one whose failure does no harm.
        if (latest(run_.path()).step == 20) break;
        continue;
      }
      ++failed;
      EXPECT_THAT(message, AllOf(HasSubstr(run_.path()), HasSubstr(std::strerror(error))));
      if (latest(run_.path()).step == 20) {  // only what makes the name durable has failed
        EXPECT_THAT(message, HasSubstr("fsync"));
      } else {
        for (const std::string& file : files_under(run_.path())) {
          EXPECT_TRUE(before.contains(file)) << file << " was left after: " << message;
        }
        kernels::fill(w_.value().local_tensor(), 0);
        EXPECT_EQ(load(run_.path(), {.model = bag_}), 10);
        EXPECT_EQ(w_.value().local_tensor().data<float>()[399'999], 1);
      }
      for (const Attempt& a : list_attempts(run_.path())) {
        if (a.step == 20) fs::remove_all(a.path);
      }
    }
    EXPECT_GT(failed, 10) << std::strerror(error);
    for (const Attempt& a : list_attempts(run_.path())) {
      if (a.step == 20) fs::remove_all(a.path);
    }
  }
}

TEST_F(Failing, ADirectoryThatVanishesWhileItIsWrittenIsAnError) {
  const std::string run = run_ / "other";
  int calls = 0;
  const ScopedSlot<CurrentFileSystem> slot(
      {std::make_shared<RecordingFileSystem>([&](const FileCall& call) {
        if (call.kind == FileCall::Kind::kSync && calls++ == 0) fs::remove_all(run);
        return 0;
      })});
  EXPECT_THROW(save(run, 20, {.model = bag_}), CheckpointError);
  EXPECT_EQ(latest(run).step, std::nullopt);
  EXPECT_EQ(latest(run_.path()).step, 10);
}

TEST_F(Failing, AFileWhereTheRunsDirectoryShouldBe) {
  testing::write_file(run_ / "file", "");
  EXPECT_THROW(save(run_ / "file", 1, {.model = bag_}), CheckpointError);
  EXPECT_THROW(save(run_ / "file/below", 1, {.model = bag_}), CheckpointError);
  EXPECT_EQ(testing::read_file(run_ / "file"), "");
}

// The number of a save that fails on one rank only is used up on all.
TEST_F(Failing, AfterAnErrorOnOneRankTheNextSaveIsComplete) {
  const std::string run = run_ / "ranks";
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(Tensor::full({6}, 1), mesh, {Shard(0)}));
    Bag bad;
    bad.add("w", distribute(Tensor::full({6}, 1), mesh, {Shard(0)}));
    std::map<std::string, std::string> json = {{"a", comm.rank() == 1 ? "{" : "{}"}};
    if (comm.rank() == 1) {
      EXPECT_THROW(save(run, 1, {.model = bad, .json = json}), ArgumentError);
      EXPECT_THROW(save("", 2, {.model = bad}), ArgumentError);
    } else {
      save(run, 1, {.model = bad, .json = json});
      save(run, 2, {.model = bad});
    }
    save(run, 3, {.model = bag});
  });
  const Found found = find_complete(run);
  EXPECT_EQ(found.complete->attempt.step, 3);
  EXPECT_FALSE(find_complete(run, 1).complete.has_value());
}

// The mesh's root Comm counts the saves, not this Context's, also where a save fails early.
TEST_F(Failing, TheRootOfTheModelCountsAlsoWhereASaveFails) {
  const std::string run = run_ / "roots";
  const auto inner = comm::local::make_world(3, {.name = "inner"});
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh first(comm, {{"x", 3}});  // this Context's root from now on
    comm::Comm& own = *inner[static_cast<size_t>(comm.rank())];
    const DeviceMesh mesh(own, {{"x", 3}});
    Bag bag;
    bag.add("w", distribute(Tensor::full({6}, 1), mesh, {Shard(0)}));
    std::map<std::string, std::string> json = {{"a", comm.rank() == 1 ? "{" : "{}"}};
    if (comm.rank() == 1) {
      EXPECT_THROW(save(run, 1, {.model = bag, .json = json}), ArgumentError);
    } else {
      save(run, 1, {.model = bag, .json = json});
    }
    save(run, 2, {.model = bag});
  });
  const Found found = find_complete(run);
  ASSERT_TRUE(found.complete.has_value());
  EXPECT_EQ(found.complete->attempt.step, 2);
}

}  // namespace
}  // namespace dtensor::checkpoint

// A process killed between any two system calls, and a disk that is full at any byte: the old step,
// or the old file, is still what loads. KempnerForge#102, Lightning#688, ultralytics#5793,
// burn#5479, safetensors#762, speculators#739

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/convert.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/killed_child.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::Child;
using testing::files_under;
using testing::killed_at;
using testing::TemporaryDirectory;

class Crash : public ::testing::Test {
 protected:
  Crash() {
    w_ = bag_.add("w", DTensor(Tensor::full({1000}, 1)));
    v_ = bag_.add("v", DTensor(Tensor::full({3}, 1)));
    other_.add("w", DTensor(Tensor::full({1000}, 0)));
    other_.add("v", DTensor(Tensor::full({3}, 0)));
  }
  void set(double value) {
    kernels::fill(w_.value().local_tensor(), value);
    kernels::fill(v_.value().local_tensor(), value);
  }
  // The one value that all elements of the other model have; -1 where they differ.
  double loaded_value() {
    const double first = other_.parameters()[0].value().local_tensor().data<float>()[0];
    for (const auto& p : other_.parameters()) {
      for (const float v : p.value().local_tensor().to_vector<float>()) {
        if (v != first) return -1;
      }
    }
    return first;
  }

  // Kills a save of step 20 at every stop. How often step 10 was left.
  int kill_everywhere(const SaveOptions& options) {
    int old_steps = 0;
    bool done = false;
    for (int n = 0; !done && n < kMostStops; ++n) {
      std::filesystem::remove_all(dir_ / "copy");
      std::filesystem::copy(dir_ / "run", dir_ / "copy", std::filesystem::copy_options::recursive);
      const Child child = killed_at(n, [&] { save(dir_ / "copy", 20, {.model = bag_}, options); });
      if (child == Child::kNotTraced) return -1;
      done = child == Child::kEnded;
      const auto step = load(dir_ / "copy", {.model = other_});
      EXPECT_TRUE(step == 20 || (step == 10 && !done)) << "killed at stop " << n;
      EXPECT_EQ(loaded_value(), step == 10 ? 1 : 2) << "killed at stop " << n;
      EXPECT_EQ(latest(dir_ / "copy").step, step);
      old_steps += step == 10 ? 1 : 0;
    }
    EXPECT_TRUE(done);
    return old_steps;
  }

  static constexpr int kMostStops = 2000;
  TemporaryDirectory dir_;
  Bag bag_;
  Bag other_;
  nn::Parameter w_;
  nn::Parameter v_;
};

TEST_F(Crash, ASaveKilledAnywhereLeavesTheOldStepOrIsWhole) {
  save(dir_ / "run", 10, {.model = bag_});
  set(2);
  const int old_steps = kill_everywhere({});
  if (old_steps < 0) GTEST_SKIP() << "this machine does not let a child be traced";
  EXPECT_GT(old_steps, 20);
}

// What keeps one step only, in several files, and merges the records: the old step goes once the
// new one is whole. KempnerForge#102
TEST_F(Crash, ASaveThatClearsTheOldStepAwayKilledAnywhereLeavesOne) {
  save(dir_ / "run", 10, {.model = bag_});
  set(2);
  const int old_steps = kill_everywhere(
      {.file_bytes = 3000, .retention = {.keep_last = 1}, .manifest = Manifest::kByTheLast});
  if (old_steps < 0) GTEST_SKIP() << "this machine does not let a child be traced";
  EXPECT_GT(old_steps, 20);
}

TEST_F(Crash, AnExportKilledAnywhereLeavesTheOldFileOrIsWhole) {
  bool done = false;
  for (int n = 0; !done; ++n) {
    ASSERT_LT(n, kMostStops);
    set(1);
    export_hugging_face(dir_ / "hf", bag_);
    set(2);
    const Child child = killed_at(n, [&] { export_hugging_face(dir_ / "hf", bag_); });
    if (child == Child::kNotTraced) GTEST_SKIP() << "this machine does not let a child be traced";
    done = child == Child::kEnded;
    import_hugging_face(dir_ / "hf", other_);
    const double value = loaded_value();
    ASSERT_TRUE(value == 1 || value == 2) << "killed at stop " << n;
    if (done) {
      EXPECT_EQ(value, 2);
    }
  }
}

// Of several files, over as many of the same names: the files of one, or no index.
TEST_F(Crash, AShardedExportKilledAnywhereLeavesNoMixture) {
  save(dir_ / "run", 1, {.model = bag_});
  const Contents ones = open_stored(dir_ / "run");
  set(2);
  save(dir_ / "run", 2, {.model = bag_});
  const Contents twos = open_stored(dir_ / "run");
  const HuggingFaceOptions format{.max_file_bytes = 100};
  std::map<double, int> left;  // value -> how often; -2: no model
  bool done = false;
  for (int n = 0; !done; ++n) {
    ASSERT_LT(n, kMostStops);
    ASSERT_EQ(write_hugging_face(ones, dir_ / "hf", format).size(), 3U);
    const Child child = killed_at(n, [&] { write_hugging_face(twos, dir_ / "hf", format); });
    if (child == Child::kNotTraced) GTEST_SKIP() << "this machine does not let a child be traced";
    done = child == Child::kEnded;
    double value = -2;
    try {
      import_hugging_face(dir_ / "hf", other_);
      value = loaded_value();
    } catch (const CheckpointError& e) {
      ASSERT_NE(std::string(e.what()).find("has neither"), std::string::npos) << e.what();
    }
    ++left[value];
    ASSERT_TRUE(value == -2 || value == 1 || value == 2) << value << ", killed at stop " << n;
    if (done) {
      EXPECT_EQ(value, 2);
    }
  }
  EXPECT_GT(left[1], 0);
  EXPECT_GT(left[2], 0);
}

// By a limit on the size of files: the write that reaches it is short, the next one fails.
TEST_F(Crash, AFullDiskAtAnyByteIsReportedAndLeavesTheOldStep) {
  save(dir_ / "run", 10, {.model = bag_});
  export_hugging_face(dir_ / "hf", bag_);
  const auto before = files_under(dir_.path());
  set(2);
  (void)signal(SIGXFSZ, SIG_IGN);
  struct rlimit old_limit = {};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  for (const rlim_t most : {0, 1, 7, 8, 9, 100, 200, 500, 4000}) {
    const struct rlimit limit = {most, old_limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_THROW(save(dir_ / "run", 20, {.model = bag_}), CheckpointError) << most;
    EXPECT_THROW(export_hugging_face(dir_ / "hf", bag_), CheckpointError) << most;
    setrlimit(RLIMIT_FSIZE, &old_limit);
    EXPECT_EQ(files_under(dir_.path()), before);
    EXPECT_EQ(load(dir_ / "run", {.model = other_}), 10);
    EXPECT_EQ(loaded_value(), 1);
    import_hugging_face(dir_ / "hf", other_);
    EXPECT_EQ(loaded_value(), 1);
  }
}

}  // namespace
}  // namespace dtensor::checkpoint

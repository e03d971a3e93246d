// A world of two ranks, of which one is killed at a system call of its save, in the foreground or
// in the background: the old step is what loads, or the new one, whole; never a mixture, and what
// the other rank does makes no difference. KempnerForge#102, Lightning#688, ezpz#196
// Every $CRASH_EVERY-th stop is tried; all where it is not set.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/killed_child.h"
#include "dtensor/tests/checkpoint/silent_rank.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::as_silent_rank;
using testing::Bag;
using testing::Child;
using testing::killed_at;
using testing::TemporaryDirectory;

enum class Way { kForeground, kBackground };
// When the rank that is not killed saves.
enum class Other { kBefore, kAfter, kNever };

struct Case {
  Way way = Way::kForeground;
  Other other = Other::kBefore;
  int killed = 0;
  bool clears = false;  // keeps one step only, and merges the records
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(c.way == Way::kForeground ? "Save" : "SaveAsync") + "OfRank" +
         std::to_string(c.killed) +
         std::map<Other, std::string>{{Other::kBefore, "AsTheLast"},
                                      {Other::kAfter, "AsTheFirst"},
                                      {Other::kNever, "Alone"}}[c.other] +
         (c.clears ? "Clearing" : "");
}

// Odd, so that both entries and exits of calls are met.
int stride() {
  const char* every = std::getenv("CRASH_EVERY");
  return every == nullptr ? 1 : std::atoi(every) | 1;
}

class CrashOfTwo : public ::testing::TestWithParam<Case> {
 protected:
  // All tensors have one value. One below 20 is of step 10, others of step 20.
  static int64_t step_of(int value) { return value / 10 * 10; }
  void save_as(int rank, const std::string& run, const std::string& run_id, int value) const {
    as_silent_rank(rank, 2, run_id, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 2}});
      Bag bag;
      const auto add = [&](const std::string& name, const Shape& shape, Placement placement) {
        const Layout layout(mesh.layout(), shape, {placement});
        bag.add(name, DTensor(Tensor::full(layout.box_of(rank).size, value), layout, mesh));
      };
      add("cut", {1001}, Shard(0));
      add("shared", {100, 200}, Replicate());  // above 64 KiB: each writes a part
      for (int i = 0; i < 4; ++i) add("small" + std::to_string(i), {3}, Replicate());
      SaveOptions options{.file_bytes = 30'000};
      if (GetParam().clears) options.retention.keep_last = 1;
      if (GetParam().clears) options.manifest = Manifest::kByTheLast;
      if (GetParam().way == Way::kForeground) {
        save(run, step_of(value), {.model = bag}, options);
      } else {
        save_async(run, step_of(value), {.model = bag}, options);
        wait_for_save();
      }
    });
  }

  // The value that all tensors are loaded with; -1 for a mixture.
  static int loaded_value(const std::string& run) {
    Bag bag;
    bag.add("cut", DTensor(Tensor::zeros({1001})));
    bag.add("shared", DTensor(Tensor::zeros({100, 200})));
    for (int i = 0; i < 4; ++i) bag.add("small" + std::to_string(i), DTensor(Tensor::zeros({3})));
    const auto step = load(run, {.model = bag});
    const float value = bag.parameters()[0].value().local_tensor().data<float>()[0];
    if (latest(run).step != step || step != step_of(static_cast<int>(value))) return -1;
    for (const auto& p : bag.parameters()) {
      for (const float v : p.value().local_tensor().to_vector<float>()) {
        if (v != value) return -1;
      }
    }
    return static_cast<int>(value);
  }

  TemporaryDirectory dir_;
};

TEST_P(CrashOfTwo, LeavesTheOldStepOrTheNewOne) {
  const std::string old_run = "20260301T101500Z-aa";
  const std::string new_run = "20260302T101500Z-bb";
  const std::string next_run = "20260303T101500Z-cc";
  const auto [way, other, killed, clears] = GetParam();
  for (int rank = 0; rank < 2; ++rank) save_as(rank, dir_ / "run", old_run, 10);
  std::map<int, int> left;
  bool done = false;
  constexpr int kMostStops = 4000;
  for (int n = 0; !done; n += stride()) {
    ASSERT_LT(n, kMostStops);
    const std::string run = dir_ / "copy";
    std::filesystem::remove_all(run);
    std::filesystem::copy(dir_ / "run", run, std::filesystem::copy_options::recursive);
    if (other == Other::kBefore) save_as(1 - killed, run, new_run, 20);
    const int rank = killed;
    const Child child = killed_at(n, [&] { save_as(rank, run, new_run, 20); });
    if (child == Child::kNotTraced) GTEST_SKIP() << "this machine does not let a child be traced";
    done = child == Child::kEnded;
    if (other == Other::kAfter) save_as(1 - killed, run, new_run, 20);
    const int value = loaded_value(run);
    ++left[value];
    ASSERT_TRUE(value == 10 || (value == 20 && other != Other::kNever)) << value << ", stop " << n;
    if (done) {
      EXPECT_EQ(value, other == Other::kNever ? 10 : 20);
    }
    if (n % 16 > 4) continue;
    // Started again: the same step, in an attempt of its own.
    for (int r = 0; r < 2; ++r) save_as(r, run, next_run, 21);
    ASSERT_EQ(loaded_value(run), 21) << "stop " << n;
  }
  EXPECT_GT(left[10], 30 / stride());
  if (other != Other::kNever) {
    EXPECT_GT(left[20], 0);
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Way way : {Way::kForeground, Way::kBackground}) {
    for (const Other other : {Other::kBefore, Other::kAfter, Other::kNever}) {
      for (const int killed : {0, 1}) {
        for (const bool clears : {false, true}) cases.push_back({way, other, killed, clears});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ways, CrashOfTwo, ::testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace dtensor::checkpoint

// Power that fails at any moment of a save, on a disk that has lost whatever was not synced, wholly
// or from any 4 KiB on: the newest complete checkpoint is the old one or the new one, whole.
// ultralytics#5793, burn#5479, safetensors#762

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/crashed_disk.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/silent_rank.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::as_silent_rank;
using testing::Bag;
using testing::Crash;
using testing::CrashedDisk;
using testing::Data;
using testing::FileCall;
using testing::kPage;
using testing::Names;
using testing::RecordingFileSystem;
using testing::TemporaryDirectory;

namespace fs = std::filesystem;

enum class Way { kForeground, kBackground };
enum class Ranks { kOne, kZeroThenOne, kOneThenZero, kAtOnce };

struct Case {
  Ranks ranks = Ranks::kOne;
  Way way = Way::kForeground;
  uint32_t seed = 0;  // of the order of the calls where two ranks save at once
};

thread_local int rank_of_thread = -1;

// Two ranks whose calls follow each other in an order that is drawn. A call is over when its rank
// asks for the next one, or leaves.
class Turns {
 public:
  explicit Turns(uint32_t seed) : random_(seed) {}

  // Returns 0 when the calling thread, where it is one of the ranks, has its turn.
  int wait() {
    if (rank_of_thread < 0) return 0;
    std::unique_lock lock(mutex_);
    if (turn_ == rank_of_thread) pass_on();
    changed_.wait(lock, [&] { return turn_ == rank_of_thread; });
    return 0;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    gone_[static_cast<size_t>(rank_of_thread)] = true;
    if (turn_ == rank_of_thread) pass_on();
  }
  void come_back() { gone_ = {}; }

 private:
  void pass_on() {
    turn_ = static_cast<int>(random_() % 2);
    if (gone_[static_cast<size_t>(turn_)]) turn_ = 1 - turn_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_;  // guarded by mutex_, as what follows
  int turn_ = 0;
  std::array<bool, 2> gone_ = {};
};

class TornWrite : public ::testing::TestWithParam<Case> {
 protected:
  TornWrite() {
    for (const auto& [name, shape] : kShapes) other_.add(name, DTensor(Tensor::zeros(shape)));
    fs::create_directories(dir_ / "disk");
  }

  void save_value(int64_t step, double value, const SaveOptions& options) {
    const auto save_as = [&](int rank, int size) {
      // Ids of one run, as of a job that goes on.
      const std::string run_id = "202603" + std::to_string(step) + "T101500Z-aa";
      as_silent_rank(rank, size, run_id, [&](comm::Comm& comm) {
        const ScopedSlot<CurrentFileSystem> slot({system_});
        const DeviceMesh mesh(comm, {{"x", size}});
        Bag bag;
        for (const auto& [name, shape] : kShapes) {
          const Layout layout(mesh.layout(), shape, {name == "v" ? Replicate() : Shard(0)});
          bag.add(name, DTensor(Tensor::full(layout.box_of(rank).size, value), layout, mesh));
        }
        if (GetParam().way == Way::kBackground) {
          save_async(dir_ / "disk/run", step, {.model = bag}, options).wait();
        } else {
          save(dir_ / "disk/run", step, {.model = bag}, options);
        }
      });
    };
    switch (GetParam().ranks) {
      case Ranks::kOne:
        return save_as(0, 1);
      case Ranks::kZeroThenOne:
        save_as(0, 2);
        return save_as(1, 2);
      case Ranks::kOneThenZero:
        save_as(1, 2);
        return save_as(0, 2);
      case Ranks::kAtOnce:
        turns_.come_back();
        std::vector<std::jthread> ranks;
        for (int rank = 0; rank < 2; ++rank) {
          ranks.emplace_back([&, rank] {
            rank_of_thread = rank;
            save_as(rank, 2);
            turns_.leave();
          });
        }
    }
  }

  // The value that all elements have; -1 where they differ.
  double loaded_value() {
    const double first = other_.parameters()[0].value().local_tensor().data<float>()[0];
    for (const auto& p : other_.parameters()) {
      for (const float v : p.value().local_tensor().to_vector<float>()) {
        if (v != first) return -1;
      }
    }
    return first;
  }

  // What is loaded after the crash: the step. -1 for a mixture, nullopt where nothing is complete.
  std::optional<int64_t> step_after(const CrashedDisk& disk) {
    const std::string to = dir_ / "crashed";
    fs::remove_all(to);
    fs::create_directories(to);
    disk.restore(dir_ / "disk", to);
    const auto step = load(to + "/run", {.model = other_});
    if (latest(to + "/run").step != step) return -1;
    return step && loaded_value() * 10 != static_cast<double>(*step) ? -1 : step;
  }

  // Crashes after every call from the `from`-th on. Each has to leave one of the `allowed`; returns
  // how often each was left.
  std::map<int64_t, int> crash_everywhere(const std::vector<FileCall>& calls, size_t from,
                                          const std::set<int64_t>& allowed) {
    std::map<int64_t, int> counts;
    std::map<std::string, std::optional<int64_t>> steps;  // by what is left
    for (size_t after = from; after <= calls.size(); ++after) {
      const size_t pages = CrashedDisk(calls, {.after = after}).unsynced_bytes() / kPage + 1;
      for (const Names names : {Names::kAllKept, Names::kNoneKept}) {
        for (const Data data : {Data::kLost, Data::kCut, Data::kZeros}) {
          for (size_t page = 0; page <= (data == Data::kLost ? 0 : pages); ++page) {
            const CrashedDisk disk(calls, {after, names, data, page});
            const auto [known, is_new] = steps.try_emplace(disk.left());
            if (is_new) known->second = step_after(disk);
            const auto step = known->second;
            EXPECT_TRUE(step && allowed.contains(*step))
                << "after call " << after << ", page " << page << ": " << step.value_or(-2);
            ++counts[step.value_or(-2)];
          }
        }
      }
    }
    return counts;
  }

  static inline const std::map<std::string, Shape> kShapes = {{"v", {3}},
                                                              {"w", {5000}}};  // w of five pages

  TemporaryDirectory dir_;
  Turns turns_{GetParam().seed};
  std::shared_ptr<RecordingFileSystem> system_ =
      std::make_shared<RecordingFileSystem>([this](const FileCall&) { return turns_.wait(); });
  Bag other_;
};

TEST_P(TornWrite, LeavesTheOldOrTheNewCheckpoint) {
  const SaveOptions options{.file_bytes = 10'000, .manifest = Manifest::kByTheLast};
  save_value(10, 1, options);
  const size_t first = system_->calls().size();
  // When the call has returned, the power may fail.
  EXPECT_EQ(step_after(CrashedDisk(system_->calls(), {first, Names::kNoneKept, Data::kLost, 0})),
            10);
  save_value(20, 2, options);
  const auto counts = crash_everywhere(system_->calls(), first, {10, 20});
  EXPECT_GT(counts.at(10), 100);
  EXPECT_GT(counts.at(20), 5);
  const Crash at_the_end{system_->calls().size(), Names::kNoneKept, Data::kLost, 0};
  EXPECT_EQ(step_after(CrashedDisk(system_->calls(), at_the_end)), 20);
}

TEST_P(TornWrite, ClearingAwayTheOldOneLeavesOne) {  // KempnerForge#102
  const SaveOptions options{.retention = {.keep_last = 1}};
  save_value(10, 1, options);
  save_value(20, 2, options);
  const size_t from = system_->calls().size();
  save_value(30, 3, options);
  EXPECT_FALSE(latest(dir_ / "disk/run").step != 30);
  const auto counts = crash_everywhere(system_->calls(), from, {20, 30});
  EXPECT_GT(counts.at(20), 10);
  EXPECT_GT(counts.at(30), 10);
}

// The first save of all: nothing, or the new one.
TEST_P(TornWrite, AFirstSaveIsThereOrNot) {
  save_value(10, 1, {});
  for (size_t after = 0; after <= system_->calls().size(); ++after) {
    for (const Names names : {Names::kAllKept, Names::kNoneKept}) {
      const auto step = step_after(CrashedDisk(system_->calls(), {after, names, Data::kZeros, 0}));
      EXPECT_TRUE(!step || *step == 10) << after;
      if (after == system_->calls().size()) {
        EXPECT_EQ(step, 10);
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const std::map<Ranks, std::string> names = {{Ranks::kOne, "OfOneRank"},
                                              {Ranks::kZeroThenOne, "OfZeroThenOne"},
                                              {Ranks::kOneThenZero, "OfOneThenZero"},
                                              {Ranks::kAtOnce, "AtOnce"}};
  const std::string way = info.param.way == Way::kForeground ? "Save" : "SaveAsync";
  return way + names.at(info.param.ranks) + std::to_string(info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Ways, TornWrite,
                         ::testing::Values(Case{}, Case{Ranks::kOne, Way::kBackground},
                                           Case{Ranks::kZeroThenOne, Way::kForeground},
                                           Case{Ranks::kOneThenZero, Way::kBackground},
                                           Case{Ranks::kAtOnce, Way::kForeground, 1},
                                           Case{Ranks::kAtOnce, Way::kForeground, 2}),
                         name_of);

}  // namespace
}  // namespace dtensor::checkpoint

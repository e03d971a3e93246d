// Power that fails at any moment of a save, on a disk that has lost whatever was not synced, wholly
// or from any 4 KiB on: the newest complete checkpoint is the old one or the new one, whole.
// ultralytics#5793, burn#5479, safetensors#762
// What a save asks of the file system is recorded once. A crash after the n-th call is then played:
// the calls up to it are made again in a new directory, in which a file has at least what was
// synced of it, and a name is there or not, unless its directory was synced.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::FileCall;
using testing::RecordingFileSystem;
using testing::TemporaryDirectory;
using testing::write_file;

namespace fs = std::filesystem;
using Kind = FileCall::Kind;

constexpr size_t kPage = 4096;

// What the disk does with names (directory entries) that were not synced, and with data.
enum class Names { kAllKept, kNoneKept };
enum class Data { kLost, kCut, kZeros };

struct Crash {
  size_t after = 0;  // so many calls
  Names names = Names::kAllKept;
  Data data = Data::kLost;
  size_t kept_pages = 0;  // of what was not synced of each file
};

// The files of a directory as a crash leaves them.
class Disk {
 public:
  Disk(const std::vector<FileCall>& calls, const Crash& crash) : crash_(crash) {
    for (size_t i = 0; i < crash.after; ++i) play(calls[i]);
  }

  // The most bytes of a file that were not synced.
  size_t unsynced_bytes() const {
    size_t most = 0;
    for (const auto& [name, file] : names_) {
      if (file.contents) {
        most = std::max(most, file.contents->bytes.size() - file.contents->synced);
      }
    }
    return most;
  }

  // Equal for two crashes that leave the same.
  std::string left() const {
    std::string all;
    for (const auto& [name, entry] : survivors()) {
      all += name + "\n" + (entry.contents ? entry.contents->after(crash_) : "/") + "\n";
    }
    return all;
  }

  // Makes it under `to` what it was under `from`.
  void restore(const std::string& from, const std::string& to) const {
    for (const auto& [name, entry] : survivors()) {
      const std::string path = to + name.substr(from.size());
      if (!entry.contents) {
        fs::create_directories(path);
      } else if (fs::exists(fs::path(path).parent_path())) {
        write_file(path, entry.contents->after(crash_));
      }
    }
  }

 private:
  struct Contents {
    std::string bytes;
    size_t synced = 0;

    std::string after(const Crash& crash) const {
      const size_t kept = std::min(bytes.size(), synced + crash.kept_pages * kPage);
      if (crash.data == Data::kLost) return bytes.substr(0, synced);
      if (crash.data == Data::kCut) return bytes.substr(0, kept);
      return bytes.substr(0, kept) + std::string(bytes.size() - kept, '\0');
    }
  };
  struct Entry {
    std::shared_ptr<Contents> contents;  // null: a directory
  };
  using Table = std::map<std::string, Entry>;

  static std::string parent(const std::string& path) { return directory_of(path); }

  void play(const FileCall& c) {
    switch (c.kind) {
      case Kind::kCreate:
        names_[c.path] = {std::make_shared<Contents>()};
        break;
      case Kind::kWrite:
        names_.at(c.path).contents->bytes += c.bytes;
        break;
      case Kind::kSync:
        names_.at(c.path).contents->synced = names_.at(c.path).contents->bytes.size();
        break;
      case Kind::kClose:
        break;
      case Kind::kMakeDirectory:
        names_[c.path] = {};
        break;
      case Kind::kRename:
        rename(c.path, c.to);
        break;
      case Kind::kRemove:
        names_.erase(c.path);
        break;
      case Kind::kSyncDirectory:
        sync_directory(c.path);
        break;
    }
  }

  void rename(const std::string& from, const std::string& to) {
    Table moved;
    for (auto it = names_.begin(); it != names_.end();) {
      const bool is_it = it->first == from || it->first.starts_with(from + "/");
      if (is_it) moved[to + it->first.substr(from.size())] = it->second;
      it = is_it ? names_.erase(it) : std::next(it);
    }
    names_.merge(moved);
  }

  void sync_directory(const std::string& path) {
    std::erase_if(durable_, [&](const auto& item) { return parent(item.first) == path; });
    for (const auto& [name, entry] : names_) {
      if (parent(name) == path) durable_[name] = entry;
    }
  }

  Table survivors() const { return crash_.names == Names::kAllKept ? names_ : durable_; }

  Crash crash_;
  Table names_;    // as programs see them
  Table durable_;  // as of the last sync of their directories
};

class TornWrite : public ::testing::Test {
 protected:
  TornWrite() {
    w_ = bag_.add("w", DTensor(Tensor::full({5000}, 1)));  // five pages
    v_ = bag_.add("v", DTensor(Tensor::full({3}, 1)));
    other_.add("w", DTensor(Tensor::full({5000}, 0)));
    other_.add("v", DTensor(Tensor::full({3}, 0)));
  }

  void save_value(int64_t step, double value, const SaveOptions& options) {
    kernels::fill(w_.value().local_tensor(), value);
    kernels::fill(v_.value().local_tensor(), value);
    save(dir_ / "disk/run", step, {.model = bag_}, options);
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
  std::optional<int64_t> step_after(const Disk& disk) {
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
      const size_t pages = Disk(calls, {.after = after}).unsynced_bytes() / kPage + 1;
      for (const Names names : {Names::kAllKept, Names::kNoneKept}) {
        for (const Data data : {Data::kLost, Data::kCut, Data::kZeros}) {
          for (size_t page = 0; page <= (data == Data::kLost ? 0 : pages); ++page) {
            const Disk disk(calls, {after, names, data, page});
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

  TemporaryDirectory dir_;
  Bag bag_;
  Bag other_;
  nn::Parameter w_;
  nn::Parameter v_;
};

TEST_F(TornWrite, LeavesTheOldOrTheNewCheckpoint) {
  const auto system = std::make_shared<RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> slot({system});
  fs::create_directories(dir_ / "disk");
  const SaveOptions options{.file_bytes = 10'000, .manifest = Manifest::kByTheLast};
  save_value(10, 1, options);
  const size_t first = system->calls().size();
  // When the call has returned, the power may fail.
  EXPECT_EQ(step_after(Disk(system->calls(), {first, Names::kNoneKept, Data::kLost, 0})), 10);
  save_value(20, 2, options);
  const auto counts = crash_everywhere(system->calls(), first, {10, 20});
  EXPECT_GT(counts.at(10), 100);
  EXPECT_GT(counts.at(20), 5);
  const Crash at_the_end{system->calls().size(), Names::kNoneKept, Data::kLost, 0};
  EXPECT_EQ(step_after(Disk(system->calls(), at_the_end)), 20);
}

TEST_F(TornWrite, ClearingAwayTheOldOneLeavesOne) {  // KempnerForge#102
  const auto system = std::make_shared<RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> slot({system});
  fs::create_directories(dir_ / "disk");
  const SaveOptions options{.retention = {.keep_last = 1}};
  save_value(10, 1, options);
  save_value(20, 2, options);
  const size_t from = system->calls().size();
  save_value(30, 3, options);
  EXPECT_FALSE(latest(dir_ / "disk/run").step != 30);
  const auto counts = crash_everywhere(system->calls(), from, {20, 30});
  EXPECT_GT(counts.at(20), 10);
  EXPECT_GT(counts.at(30), 10);
}

// The first save of all: nothing, or the new one.
TEST_F(TornWrite, AFirstSaveIsThereOrNot) {
  const auto system = std::make_shared<RecordingFileSystem>();
  const ScopedSlot<CurrentFileSystem> slot({system});
  fs::create_directories(dir_ / "disk");
  save_value(10, 1, {});
  for (size_t after = 0; after <= system->calls().size(); ++after) {
    for (const Names names : {Names::kAllKept, Names::kNoneKept}) {
      const auto step = step_after(Disk(system->calls(), {after, names, Data::kZeros, 0}));
      EXPECT_TRUE(!step || *step == 10) << after;
      if (after == system->calls().size()) {
        EXPECT_EQ(step, 10);
      }
    }
  }
}

}  // namespace
}  // namespace dtensor::checkpoint

// Thousands of damaged checkpoints: each is found before a value of it is used, by the file's name
// and, where the file is a data file, the name of a tensor.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using testing::files_under;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr int kSamples = testing::kSanitized ? 600 : 5000;

using Files = std::map<std::string, std::string>;  // name -> bytes

Files files_of(const std::string& dir) {
  Files files;
  for (const std::string& name : files_under(dir)) files[name] = read_file(dir + "/" + name);
  return files;
}

// A model of several dtypes and placements; `large` has more than one block.
void add_tensors(Bag& bag, const DeviceMesh& mesh, double value, bool large) {
  const auto add = [&](const std::string& name, const Shape& shape, DType dtype, Placement p) {
    bag.add(name, distribute(Tensor::full(shape, value, dtype), mesh, {p}));
  };
  add("w", {16, 4}, DType::kFloat32, Shard(0));
  add("replicated", {33}, DType::kBFloat16, Replicate());
  add("scalar", {}, DType::kFloat64, Replicate());
  add("flags", {40}, DType::kBool, Shard(0));
  add("none", {0, 3}, DType::kInt32, Shard(1));
  if (large) add("large", {1300000, 2}, DType::kUInt8, Shard(0));
}

// What a checkpoint has beside its tensors.
struct Extras {
  std::map<std::string, int64_t> numbers = {{"samples", 640}};
  std::map<std::string, std::string> documents = {{"schedule", R"({"warmup": [1, 2.50]})"}};
  friend bool operator==(const Extras&, const Extras&) = default;
};

class Corruption : public ::testing::Test {
 protected:
  // Saves `step` on `world` ranks; the files of the attempt.
  Files save_on(int world, int64_t step, bool large = false) {
    const TemporaryDirectory run;
    run_ranks(world, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", world}});
      Bag bag;
      add_tensors(bag, mesh, static_cast<double>(step % 2 == 0 ? 1 : 0), large);
      Extras extras;
      save(run.path(), step, {.model = bag, .numbers = extras.numbers, .json = extras.documents},
           options_);
    });
    const Attempt attempt = list_attempts(run.path()).front();
    name_ = attempt.name;
    return files_of(attempt.path);
  }

  // Puts exactly these files into the attempt's directory; only those that differ are written.
  void put(const Files& files) {
    std::filesystem::create_directories(path());
    for (const auto& [name, bytes] : there_) {
      if (!files.contains(name)) std::filesystem::remove(path() + "/" + name);
    }
    for (const auto& [name, bytes] : files) {
      const auto it = there_.find(name);
      if (it == there_.end() || it->second != bytes) write_file(path() + "/" + name, bytes);
    }
    there_ = files;
  }

  std::string path() const { return dir_ / name_; }

  // Damages `files`; the names of the files that are no longer what they were.
  std::set<std::string> damage(Files& files, const std::vector<Files>& others) {
    const Files good = files;
    auto it = files.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % files.size()));
    std::string& bytes = it->second;
    const size_t at = bytes.empty() ? 0 : random_() % bytes.size();
    switch (random_() % 9) {
      case 0:
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random_() % 8));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes += std::string(1 + random_() % 5000, static_cast<char>(random_()));
        break;
      case 4: {  // a stretch that was not written, or was written by something else
        const size_t size = std::min<size_t>(bytes.size() - at, 1 + random_() % 4096);
        const bool zeros = random_() % 2 == 0;
        for (size_t i = 0; i < size; ++i)
          bytes[at + i] = zeros ? '\0' : static_cast<char>(random_());
        break;
      }
      case 5:
        files.erase(it);
        break;
      case 6: {  // two files change places
        auto other = files.begin();
        std::advance(other, static_cast<std::ptrdiff_t>(random_() % files.size()));
        std::swap(bytes, other->second);
        break;
      }
      case 7: {  // a file of another step, attempt or world
        const Files& from = others[random_() % others.size()];
        if (const auto same = from.find(it->first); same != from.end()) bytes = same->second;
        break;
      }
      default: {  // all files of a rank of another
        const Files& from = others[random_() % others.size()];
        const std::string rank = it->first.substr(0, it->first.find('.'));
        for (const auto& [name, content] : from) {
          if (name.starts_with(rank)) files[name] = content;
        }
      }
    }
    std::set<std::string> changed;
    for (const auto& [name, content] : good) {
      if (!files.contains(name) || files.at(name) != content) changed.insert(name);
    }
    return changed;
  }

  // Problems by the records, and where those show none by the data.
  std::vector<Problem> find_problems() {
    Examined examined = examine(*attempt_of(dir_.path(), name_), Records::kOwnFiles);
    return examined.is_complete() ? examine_data(examined.contents) : examined.problems;
  }

  void expect_found(const std::set<std::string>& changed) {
    const auto problems = find_problems();
    if (changed == std::set<std::string>{kManifest}) {  // the records themselves count
      ASSERT_TRUE(problems.empty());
      return;
    }
    ASSERT_FALSE(problems.empty());
    bool named = false;
    for (const Problem& p : problems) {
      EXPECT_FALSE(p.text.empty());
      named = named || changed.contains(p.file);
      if (changed.contains(p.file) && p.file.ends_with(".safetensors")) {
        EXPECT_NE(p.tensor, "") << p.text;
      }
    }
    EXPECT_TRUE(named) << problems[0].text;
  }

  // Of a record and its copy in the manifest one is enough.
  bool may_load(const std::set<std::string>& changed) const {
    return options_.manifest == Manifest::kByTheLast &&
           std::ranges::none_of(
               changed, [](const std::string& name) { return name.ends_with(".safetensors"); });
  }

  static void expect_right(Bag& bag) {
    for (const auto& [name, parameter] : bag.named_parameters()) {
      const Tensor local = parameter.value().local_tensor().to(DType::kFloat64);
      for (const double v : local.to_vector<double>()) ASSERT_EQ(v, 1) << name;
    }
  }

  void expect_refused(const std::set<std::string>& changed, bool large) {
    run_ranks(1, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 1}});
      Bag bag;
      add_tensors(bag, mesh, 1, large);
      for (auto& [name, parameter] : bag.named_parameters()) {
        const Tensor local = parameter.value().local_tensor();
        if (local.dtype() == DType::kBool) continue;
        std::fill_n(static_cast<unsigned char*>(local.raw()), local.size_bytes(), 0x55);
      }
      std::string message;
      Extras extras{{{"samples", -1}}, {{"schedule", "null"}}};
      try {
        load(dir_.path(), {.model = bag, .numbers = extras.numbers, .json = extras.documents},
             {.step = step_});
      } catch (const CheckpointError& e) {
        message = e.what();
      }
      if (message.empty()) {
        ASSERT_TRUE(may_load(changed));
        expect_right(bag);
        EXPECT_EQ(extras, Extras());
        return;
      }
      EXPECT_EQ(extras.numbers.at("samples"), -1);
      EXPECT_EQ(extras.documents.at("schedule"), "null");
      const bool named = std::ranges::any_of(changed, [&](const std::string& name) {
        return message.find(name) != std::string::npos;
      });
      EXPECT_TRUE(named || message.find("no record of rank") != std::string::npos) << message;
      for (auto& [name, parameter] : bag.named_parameters()) {
        const Tensor local = parameter.value().local_tensor();
        if (local.dtype() == DType::kBool) continue;
        const auto* bytes = static_cast<const unsigned char*>(local.raw());
        const bool same = std::all_of(bytes, bytes + local.size_bytes(),
                                      [](unsigned char b) { return b == 0x55; });
        const size_t list = message.find("Overwritten by then");
        const bool told =
            list != std::string::npos && message.find(name, list) != std::string::npos;
        EXPECT_TRUE(same || told) << name << ": " << message;
        if (!large) {
          EXPECT_TRUE(same) << name << ": " << message;
        }
      }
    });
  }

  void run(int samples, bool large) {
    const std::vector<Files> others = {save_on(4, 19, large), save_on(2, 20, large),
                                       save_on(4, 20, large)};
    const Files good = save_on(4, 20, large);  // the name is that of this attempt
    put(good);
    ASSERT_TRUE(find_problems().empty());
    int tried = 0;
    for (int round = 0; tried < samples && !HasFailure(); ++round) {
      SCOPED_TRACE(round);
      Files files = good;
      const auto changed = damage(files, others);
      if (changed.empty()) continue;
      put(files);
      expect_found(changed);
      expect_refused(changed, large);
      ++tried;
    }
    put(good);
    EXPECT_TRUE(find_problems().empty());
  }

  static constexpr char kManifest[] = "manifest.jsonl";
  TemporaryDirectory dir_;
  SaveOptions options_;
  std::string name_;
  int64_t step_ = 20;
  Files there_;
  std::mt19937 random_{20260301};
};

// pytorch#189945, pytorch#126595, Megatron-LM#5077, ezpz#196
TEST_F(Corruption, IsFoundBeforeAnythingIsUsed) { run(kSamples, false); }

// A manifest, and several files of each rank.
TEST_F(Corruption, BesideAManifestIsFoundOrMadeUpFor) {
  options_ = {.file_bytes = 100, .manifest = Manifest::kByTheLast};
  run(kSamples / 2, false);
  EXPECT_TRUE(there_.contains(kManifest));
  EXPECT_TRUE(there_.contains("rank-00000-1.safetensors"));
}

TEST_F(Corruption, InFilesOfSeveralBlocksIsFoundAndWhatWasOverwrittenIsTold) {
  run(kSamples / 50, true);
}

}  // namespace
}  // namespace dtensor::checkpoint

// Attempts are never mixed, whatever was left by whom. ezpz#196, VeOmni#1172, VeOmni#1173

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/checkpoint/without_override.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using testing::Bag;
using testing::files_under;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::WithoutOverride;

namespace fs = std::filesystem;

class Attempts : public ::testing::Test {
 protected:
  // A run of its own (its nonce is new), of which only some ranks come to save: the others were
  // killed before.
  void save_by(const std::vector<int>& ranks, int64_t step, double value) {
    run_ranks(4, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 4}});
      Bag bag;
      bag.add("w", distribute(Tensor::full({8}, value), mesh, {Shard(0)}));
      for (const int r : ranks) {
        if (r == comm.rank()) save(run_.path(), step, {.model = bag});
      }
    });
  }

  // Loads on one rank; the step and the values.
  std::pair<std::optional<int64_t>, std::vector<float>> loaded() {
    Bag bag;
    const auto w = bag.add("w", DTensor(Tensor::full({8}, -1)));
    const auto step = load(run_.path(), {.model = bag});
    return {step, w.value().local_tensor().to_vector<float>()};
  }

  std::map<std::string, std::string> bytes() {
    std::map<std::string, std::string> all;
    for (const std::string& name : files_under(run_.path())) all[name] = read_file(run_ / name);
    return all;
  }

  // The attempt of step 20 that was begun as the n-th.
  Attempt attempt_20(size_t n) {
    std::vector<Attempt> found;
    for (const Attempt& a : list_attempts(run_.path())) {
      if (a.step == 20) found.insert(found.begin(), a);
    }
    return found.at(n);
  }

  TemporaryDirectory run_;
};

TEST_F(Attempts, RecordsOfAnEarlierOneNeverCompleteALaterOne) {
  const std::vector<float> zeros(8, 0);
  const std::vector<float> threes(8, 3);
  save_by({0, 1, 2, 3}, 10, 0);
  save_by({0, 1, 2}, 20, 1);
  EXPECT_EQ(loaded(), std::pair(std::optional<int64_t>(10), zeros));
  EXPECT_THAT(latest(run_.path()).passed_over.at(0),
              AllOf(HasSubstr(attempt_20(0).name), HasSubstr("no record of rank 3 of 4")));
  const auto after_first = bytes();

  // Nonces begin with the time to the second: of two runs begun in one second the order is open,
  // and does not matter here.
  save_by({3}, 20, 2);
  EXPECT_EQ(loaded(), std::pair(std::optional<int64_t>(10), zeros));
  std::string reasons;
  for (const std::string& r : latest(run_.path()).passed_over) reasons += r + "\n";
  EXPECT_THAT(reasons, AllOf(HasSubstr("no record of rank 3 of 4"),
                             HasSubstr("no record of ranks 0-2 of 4")));
  const auto after_second = bytes();
  for (const auto& [name, text] : after_first) EXPECT_EQ(after_second.at(name), text);

  save_by({0, 1, 2, 3}, 20, 3);
  EXPECT_EQ(loaded(), std::pair(std::optional<int64_t>(20), threes));
  const auto after_third = bytes();
  for (const auto& [name, text] : after_second) EXPECT_EQ(after_third.at(name), text);
  EXPECT_EQ(list_attempts(run_.path()).size(), 4U);

  // The first one's files of ranks 0 to 2 in the second one's directory.
  const auto has = [](const Attempt& a, int rank) {
    return fs::exists(a.path + "/" + record_name(rank));
  };
  Attempt first;
  Attempt second;
  for (size_t n = 0; n < 3; ++n) {
    const Attempt a = attempt_20(n);
    if (has(a, 0) && !has(a, 3)) first = a;
    if (has(a, 3) && !has(a, 0)) second = a;
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::string& name : {record_name(rank), data_file_name(rank)}) {
      fs::copy(first.path + "/" + name, second.path + "/" + name);
    }
  }
  EXPECT_THAT(examine(second).reason(),
              AllOf(HasSubstr(record_name(0)), HasSubstr(first.id), HasSubstr(second.id)));
  EXPECT_EQ(loaded(), std::pair(std::optional<int64_t>(20), threes));
}

// A record that is there is not written again, whoever says so.
TEST_F(Attempts, AnExistingOneIsNotWrittenInto) {
  Bag bag;
  bag.add("w", DTensor(Tensor::full({8}, 1)));
  save(run_.path(), 1, {.model = bag});
  const Attempt attempt = list_attempts(run_.path()).at(0);
  // The id of the next save is known: somebody has made its directory and a data file.
  std::string next = attempt.name;
  next.back() = static_cast<char>(next.back() + 1);
  next.replace(next.find("step-1."), 7, "step-2.");
  fs::create_directories(run_ / next);
  testing::write_file(run_ / (next + "/" + data_file_name(0)), "mine");
  EXPECT_THROW(save(run_.path(), 2, {.model = bag}), CheckpointError);
  EXPECT_EQ(read_file(run_ / (next + "/" + data_file_name(0))), "mine");
  EXPECT_EQ(latest(run_.path()).step, 1);
}

// Whether it is complete is not known: to begin anew, and to clear it away later, would lose it.
TEST_F(Attempts, ThatCannotBeReadAreNoFirstStart) {
  save_by({0, 1, 2, 3}, 10, 1);
  const std::string path = list_attempts(run_.path()).front().path;
  for (const std::string& file :
       {path, path + "/rank-00002.record.json", path + "/rank-00001.safetensors"}) {
    SCOPED_TRACE(file);
    const fs::perms before = fs::status(file).permissions();
    fs::permissions(file, fs::perms::none);
    {
      const WithoutOverride scope;
      Bag bag;
      bag.add("w", DTensor(Tensor::full({8}, 7)));
      try {
        load(run_.path(), {.model = bag});
        ADD_FAILURE() << "it was taken for a first start";
      } catch (const CheckpointError& e) {
        EXPECT_THAT(e.what(), AllOf(HasSubstr("no first start"), HasSubstr("Permission denied")));
      }
    }
    fs::permissions(file, before);
    EXPECT_EQ(loaded().first, 10);
  }
  fs::remove(path + "/rank-00002.record.json");  // not there is known to be incomplete
  EXPECT_EQ(loaded().first, std::nullopt);
}

}  // namespace
}  // namespace dtensor::checkpoint

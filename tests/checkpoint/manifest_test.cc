// The manifest: the records of an attempt in one file, which can be missing, old or damaged.

#include "dtensor/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::Bag;
using ::testing::HasSubstr;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryDirectory;
using testing::write_file;

class MergedRecords : public ::testing::Test {
 protected:
  void save_all(int64_t step, const SaveOptions& options, int ranks = 3) {
    run_ranks(3, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 3}});
      Bag bag;
      bag.add("w", distribute(Tensor::arange(6), mesh, {Shard(0)}));
      if (comm.rank() < ranks) save(run_.path(), step, {.model = bag}, options);
    });
    attempt_ = list_attempts(run_.path()).at(0);
    manifest_ = attempt_.path + "/" + kManifestName;
  }
  std::string record(int rank) const { return attempt_.path + "/" + record_name(rank); }

  TemporaryDirectory run_;
  Attempt attempt_;
  std::string manifest_;
};

TEST_F(MergedRecords, TheLastRankPutsTheRecordsOneAfterTheOther) {
  save_all(1, {});
  EXPECT_FALSE(std::filesystem::exists(manifest_));
  save_all(2, {.manifest = Manifest::kByTheLast});
  EXPECT_EQ(read_file(manifest_),
            read_file(record(0)) + read_file(record(1)) + read_file(record(2)));
  EXPECT_EQ(read_manifest(attempt_).size(), 3U);
  EXPECT_TRUE(examine(attempt_).is_complete());
}

TEST_F(MergedRecords, NoneIsMadeBeforeAllRecordsAreThere) {
  save_all(1, {.manifest = Manifest::kByTheLast}, 2);
  EXPECT_FALSE(std::filesystem::exists(manifest_));
  EXPECT_FALSE(write_manifest(attempt_, posix_file_system()));
  EXPECT_THAT(examine(attempt_).reason(), HasSubstr("no record of rank 2 of 3"));
}

TEST_F(MergedRecords, ARecordThatIsGoneIsMissedAllTheSame) {  // pytorch#189945
  save_all(1, {.manifest = Manifest::kByTheLast});
  std::filesystem::remove(record(2));
  EXPECT_THAT(examine(attempt_).reason(), HasSubstr("no record of rank 2 of 3"));
}

// One rule for who loads and who looks on: a whole line stands for a record damaged since.
TEST_F(MergedRecords, ARecordThatIsDamagedIsMadeUpForByItsLine) {
  save_all(1, {});
  save_all(2, {.manifest = Manifest::kByTheLast});
  write_file(record(2), read_file(record(2)).replace(40, 1, "!"));
  EXPECT_TRUE(examine(attempt_).is_complete());
  EXPECT_EQ(latest(run_.path()).step, 2);
  Bag bag;
  const auto w = bag.add("w", DTensor(Tensor::zeros({6})));
  EXPECT_EQ(load(run_.path(), {.model = bag}), 2);
  EXPECT_EQ(w.value().local_tensor().to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(examine(attempt_, Records::kOwnFiles).reason(), HasSubstr(record_name(2)));
  std::filesystem::remove(manifest_);
  EXPECT_EQ(latest(run_.path()).step, 1);
  EXPECT_EQ(load(run_.path(), {.model = bag}), 1);
}

TEST_F(MergedRecords, ADamagedOrForeignOneIsPassedOver) {
  save_all(1, {.manifest = Manifest::kByTheLast});
  const std::string good = read_file(manifest_);
  for (const std::string& bad :
       {std::string(), std::string("\n\n"), good.substr(0, good.size() / 2), good.substr(7)}) {
    write_file(manifest_, bad);
    EXPECT_LT(read_manifest(attempt_).size(), 3U);
    EXPECT_TRUE(examine(attempt_).is_complete());
  }
  save_all(2, {});
  write_file(manifest_, good);  // of step 1
  EXPECT_TRUE(read_manifest(attempt_).empty());
  EXPECT_TRUE(examine(attempt_).is_complete());
}

TEST_F(MergedRecords, NoneIsMadeOfRecordsOfTwoAttempts) {  // VeOmni#1172
  save_all(1, {});
  const std::string foreign = read_file(record(1));
  save_all(2, {});
  write_file(record(1), foreign);
  EXPECT_THROW(write_manifest(attempt_, posix_file_system()), CheckpointError);
  EXPECT_FALSE(std::filesystem::exists(manifest_));
}

}  // namespace
}  // namespace dtensor::checkpoint

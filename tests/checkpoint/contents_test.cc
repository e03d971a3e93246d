// Which attempts are complete, and why others are not: directories made by hand.

#include "dtensor/checkpoint/contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr std::string_view kId = "20260301T101500Z-ab-g0-s1";

// Rows [begin, end) of a float tensor "w" of 16x4 as a rank's data file and record.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_column = 0;
  int64_t columns = 4;
};

Record record_of(const std::string& dir, std::string_view id, int64_t step, int rank, int world,
                 const Part& part) {
  std::filesystem::create_directories(dir);
  Record record;
  record.id = id;
  record.step = step;
  record.rank = rank;
  record.world = world;
  const Box box{{part.begin, part.first_column}, {part.end - part.begin, part.columns}};
  if (box.numel() == 0) return record;
  const std::vector<float> values(static_cast<size_t>(box.numel()), 1.0F);
  const std::vector<safetensors::Item> items = {
      {"w", DType::kFloat32, {box.size[0], box.size[1]}, values.data()}};
  const std::string path = dir + "/" + data_file_name(rank);
  safetensors::write(path, items);
  const std::string data = read_file(path);
  BlockCrcs crcs;
  crcs.update(std::as_bytes(std::span(data)));
  record.files = {{data_file_name(rank), crcs.bytes(), crcs.crcs()}};
  record.tensors = {{"w", DType::kFloat32, {16, 4}, {{0, "w", box}}, {}}};
  return record;
}

void commit(const std::string& dir, const Record& record) {
  write_file(dir + "/" + record_name(record.rank), to_text(record));
}

std::string save(const std::string& run, int64_t step, std::string_view id,
                 const std::vector<Part>& parts) {
  const std::string dir = run + "/" + attempt_name(step, id);
  for (int r = 0; r < static_cast<int>(parts.size()); ++r) {
    commit(dir, record_of(dir, id, step, r, static_cast<int>(parts.size()),
                          parts[static_cast<size_t>(r)]));
  }
  return dir;
}

const std::vector<Part> kFour = {{0, 4}, {4, 8}, {8, 12}, {12, 16}};

std::string why(const std::string& run) {
  const Found found = find_complete(run);
  EXPECT_FALSE(found.complete.has_value());
  EXPECT_EQ(found.passed_over.size(), 1U);
  return found.passed_over.at(0).reason();
}

TEST(Contents, AreCompleteWhenAllIsThere) {
  const TemporaryDirectory run;
  save(run.path(), 20, kId, kFour);
  const Found found = find_complete(run.path());
  ASSERT_TRUE(found.complete.has_value());
  EXPECT_EQ(found.complete->world, 4);
  EXPECT_EQ(found.complete->attempt.step, 20);
  EXPECT_EQ(found.complete->files.size(), 4U);
  EXPECT_EQ(found.complete->tensors.at("w").chunks.size(), 4U);
  EXPECT_TRUE(examine_data(*found.complete).empty());
  EXPECT_TRUE(find_complete(run.path(), 20).complete.has_value());
  EXPECT_FALSE(find_complete(run.path(), 21).complete.has_value());
}

TEST(Contents, ARankWithoutRecordMakesItIncomplete) {  // pytorch#189945
  const TemporaryDirectory run;
  const std::string dir = save(run.path(), 20, kId, kFour);
  std::filesystem::remove(dir + "/" + record_name(3));
  EXPECT_THAT(why(run.path()), AllOf(HasSubstr(std::string(kId)), HasSubstr("rank 3 of 4")));
  std::filesystem::remove(dir + "/" + record_name(0));
  std::filesystem::remove(dir + "/" + record_name(1));
  EXPECT_THAT(why(run.path()), HasSubstr("ranks 0-1, 3 of 4"));
}

TEST(Contents, ADamagedRecordMakesItIncomplete) {  // pytorch#189945
  const TemporaryDirectory run;
  const std::string path = save(run.path(), 20, kId, kFour) + "/" + record_name(3);
  std::string text = read_file(path);
  text[100] = static_cast<char>(text[100] ^ 4);
  write_file(path, text);
  EXPECT_THAT(why(run.path()), AllOf(HasSubstr(record_name(3)), HasSubstr("damaged")));
}

TEST(Contents, ChunksThatDoNotTileMakeItIncomplete) {  // pytorch#126595, Megatron-LM#5077
  const TemporaryDirectory run;
  std::string dir = save(run.path(), 20, kId, {{0, 4}, {4, 8}, {8, 12}, {12, 12}});
  EXPECT_THAT(why(run.path()), HasSubstr("\"w\" [16,4]: rows [12,16) not covered"));
  std::filesystem::remove_all(dir);
  dir = save(run.path(), 20, kId, {{0, 4}, {4, 8}, {6, 12}, {12, 16}});
  EXPECT_THAT(why(run.path()), AllOf(HasSubstr("rows [6,8) is held twice"),
                                     HasSubstr(data_file_name(1)), HasSubstr(data_file_name(2))));
  std::filesystem::remove_all(dir);
  dir = save(run.path(), 20, kId, {{0, 16, 0, 2}, {0, 15, 2, 2}});
  EXPECT_THAT(why(run.path()), HasSubstr("[15:16,2:4] not covered"));
  std::filesystem::remove_all(dir);
  save(run.path(), 20, kId, {{0, 16}, {0, 16}});
  EXPECT_THAT(why(run.path()), HasSubstr("held twice"));
}

TEST(Contents, FilesHaveTheSizeThatTheRecordSays) {  // burn#5479
  const TemporaryDirectory run;
  const std::string path = save(run.path(), 20, kId, kFour) + "/" + data_file_name(2);
  const std::string data = read_file(path);
  write_file(path, data.substr(0, data.size() - 1));
  EXPECT_THAT(why(run.path()),
              AllOf(HasSubstr(data_file_name(2)), HasSubstr(std::to_string(data.size() - 1))));
  write_file(path, data + "x");
  EXPECT_THAT(why(run.path()), HasSubstr(data_file_name(2)));
  std::filesystem::remove(path);
  EXPECT_THAT(why(run.path()), HasSubstr("No such file"));
}

TEST(Contents, DataIsComparedOnlyWhenAsked) {
  const TemporaryDirectory run;
  const std::string path = save(run.path(), 20, kId, kFour) + "/" + data_file_name(2);
  std::string data = read_file(path);
  data.back() = static_cast<char>(data.back() ^ 1);
  write_file(path, data);
  const Found found = find_complete(run.path());
  ASSERT_TRUE(found.complete.has_value());
  const auto problems = examine_data(*found.complete);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].what, "crc");
  EXPECT_EQ(problems[0].file, data_file_name(2));
  EXPECT_EQ(problems[0].tensor, "w");
  EXPECT_EQ(problems[0].block, 0);
}

TEST(Contents, ARecordThatContradictsItsFileIsFound) {
  const TemporaryDirectory run;
  const std::string dir = run / attempt_name(3, kId);
  Record record = record_of(dir, kId, 3, 0, 1, {0, 16});
  record.tensors[0].chunks[0].key = "v";
  commit(dir, record);
  const Found found = find_complete(run.path());
  ASSERT_TRUE(found.complete.has_value());
  const auto problems = examine_data(*found.complete);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0].text, AllOf(HasSubstr(data_file_name(0)), HasSubstr("\"w\"")));
}

TEST(Contents, RanksMustAgree) {
  const TemporaryDirectory run;
  const std::string dir = run / attempt_name(3, kId);
  Record a = record_of(dir, kId, 3, 0, 2, {0, 8});
  Record b = record_of(dir, kId, 3, 1, 2, {8, 16});
  const auto with = [&](const Record& second) {
    commit(dir, a);
    commit(dir, second);
    return why(run.path());
  };
  Record other = b;
  other.tensors[0].dtype = DType::kInt32;
  EXPECT_THAT(with(other), AllOf(HasSubstr("\"w\""), HasSubstr("rank 0"), HasSubstr("rank 1")));
  other = b;
  other.world = 3;
  EXPECT_THAT(with(other), HasSubstr("3 ranks"));
  other = b;
  a.numbers["optimizer.steps"] = 3;
  other.numbers["optimizer.steps"] = 4;
  EXPECT_THAT(with(other), HasSubstr("optimizer.steps"));
}

TEST(Contents, TensorsOnNoMeshMustBeTheSameOnAllRanks) {  // torchtitan#3764
  const TemporaryDirectory run;
  const std::string dir = run / attempt_name(3, kId);
  Record a = record_of(dir, kId, 3, 0, 2, {0, 16});
  Record b = record_of(dir, kId, 3, 1, 2, {0, 0});
  a.tensors[0].same_on_all = 7;
  b.tensors = a.tensors;
  b.tensors[0].chunks.clear();
  commit(dir, a);
  commit(dir, b);
  EXPECT_TRUE(find_complete(run.path()).complete.has_value());
  b.tensors[0].same_on_all = 8;
  commit(dir, b);
  EXPECT_THAT(why(run.path()), AllOf(HasSubstr("\"w\""), HasSubstr("rank 0"), HasSubstr("rank 1")));
  b.tensors.clear();
  commit(dir, b);
  EXPECT_THAT(why(run.path()), AllOf(HasSubstr("\"w\""), HasSubstr("rank 0"), HasSubstr("rank 1")));
}

// A crash between any two system calls of a save leaves one of these. KempnerForge#102,
// Lightning#688, ultralytics#5793
TEST(Contents, WhateverACrashLeftTheOldStepIsFound) {
  const TemporaryDirectory run;
  save(run.path(), 10, kId, kFour);
  const std::string id = "20260301T101500Z-ab-g0-s2";
  const std::string dir = run / attempt_name(20, id);
  const auto finds_ten = [&](std::string_view reason) {
    const Found found = find_complete(run.path());
    ASSERT_TRUE(found.complete.has_value());
    EXPECT_EQ(found.complete->attempt.step, 10);
    ASSERT_EQ(found.passed_over.size(), 1U);
    EXPECT_THAT(found.passed_over[0].reason(),
                AllOf(HasSubstr(id), HasSubstr(std::string(reason))));
  };
  std::filesystem::create_directories(dir);
  finds_ten("no commit record");
  write_file(dir + "/" + data_file_name(0), "half a he");
  finds_ten("no commit record");
  const Record record = record_of(run / "elsewhere", id, 20, 0, 1, {0, 16});
  std::filesystem::copy(run / ("elsewhere/" + data_file_name(0)), dir + "/" + data_file_name(0),
                        std::filesystem::copy_options::overwrite_existing);
  finds_ten("no commit record");
  write_file(dir + "/" + record_name(0) + ".tmp-1-0", to_text(record));
  finds_ten("no commit record");
  write_file(dir + "/" + record_name(0), "");
  finds_ten("damaged");
  write_file(dir + "/" + record_name(0), to_text(record));
  EXPECT_EQ(find_complete(run.path()).complete->attempt.step, 20);
}

TEST(Contents, OtherEntriesAreNotAttempts) {
  const TemporaryDirectory run;
  EXPECT_FALSE(find_complete(run / "not_there").complete.has_value());
  write_file(run / "step-5.x", "a file");
  for (const char* name : {"step-.x", "step-1", "step-1.", "step--1.x", "step-1e3.x",
                           "step-99999999999999999999.x", "other"}) {
    std::filesystem::create_directories(run / name);
  }
  EXPECT_TRUE(list_attempts(run.path()).empty());
  write_file(run / "file", "");
  EXPECT_THROW(list_attempts(run / "file"), CheckpointError);
}

// ezpz#196, VeOmni#1172, VeOmni#1173
TEST(Contents, RecordsOfAnEarlierAttemptNeverCompleteALaterOne) {
  const TemporaryDirectory run;
  save(run.path(), 10, "20260301T090000Z-aa-g0-s1", kFour);
  const std::string first = "20260301T100000Z-bb-g0-s2";
  const std::string second = "20260301T110000Z-cc-g0-s0";
  const std::string third = "20260301T120000Z-dd-g0-s0";
  const std::string first_dir = save(run.path(), 20, first, kFour);
  std::filesystem::remove(first_dir + "/" + record_name(3));
  const std::string second_dir = save(run.path(), 20, second, kFour);
  for (int r = 0; r < 3; ++r) std::filesystem::remove(second_dir + "/" + record_name(r));
  Found found = find_complete(run.path());
  EXPECT_EQ(found.complete->attempt.step, 10);
  ASSERT_EQ(found.passed_over.size(), 2U);
  EXPECT_THAT(found.passed_over[0].reason(), AllOf(HasSubstr(second), HasSubstr("ranks 0-2 of 4")));
  EXPECT_THAT(found.passed_over[1].reason(), AllOf(HasSubstr(first), HasSubstr("rank 3 of 4")));

  save(run.path(), 20, third, kFour);
  found = find_complete(run.path());
  EXPECT_EQ(found.complete->attempt.id, third);
  EXPECT_TRUE(found.passed_over.empty());

  std::filesystem::remove_all(run / attempt_name(20, third));
  for (int r = 0; r < 3; ++r) {
    for (const std::string& name : {record_name(r), data_file_name(r)}) {
      std::filesystem::copy(first_dir + "/" + name, second_dir + "/" + name,
                            std::filesystem::copy_options::overwrite_existing);
    }
  }
  found = find_complete(run.path());
  EXPECT_EQ(found.complete->attempt.step, 10);
  EXPECT_THAT(found.passed_over.at(0).reason(),
              AllOf(HasSubstr(record_name(0)), HasSubstr(first), HasSubstr(second)));
}

TEST(Attempt, TheLaterOfOneStepCounts) {
  const std::vector<std::string> ordered = {
      "20260301T100000Z-ff-g0-s2",  "20260301T100001Z-00-g0-s0", "20260301T100001Z-00-g0-s9",
      "20260301T100001Z-00-g0-s10", "20260301T100001Z-00-g2-s0", "20260301T100001Z-00-g10-s0"};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(id_is_earlier(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
    }
  }
  const TemporaryDirectory run;
  save(run.path(), 20, ordered[3], kFour);
  save(run.path(), 20, ordered[2], kFour);
  save(run.path(), 9, ordered[5], kFour);
  EXPECT_EQ(find_complete(run.path()).complete->attempt.id, ordered[3]);
  EXPECT_EQ(attempt_id("20260301T100001Z-00", 10, 0), ordered[5]);
}

}  // namespace
}  // namespace dtensor::checkpoint

// What is kept, what is cleared away, and what nobody may touch; the newest, and why not newer.

#include "dtensor/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_system.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/checkpoint/without_override.h"

namespace dtensor::checkpoint {
namespace {

using std::chrono::hours;
using ::testing::AllOf;
using testing::Bag;
using ::testing::ElementsAre;
using testing::FileCall;
using ::testing::HasSubstr;
using testing::RecordingFileSystem;
using testing::TemporaryDirectory;
using testing::write_file;

namespace fs = std::filesystem;

class Retain : public ::testing::Test {
 protected:
  // An attempt of a world of one without tensors; complete or not.
  void make(int64_t step, const std::string& id, bool complete, hours age = hours(0)) {
    const std::string dir = run_ / attempt_name(step, id);
    fs::create_directories(dir);
    Record record;
    record.id = id;
    record.step = step;
    if (complete) write_file(dir + "/" + record_name(0), to_text(record));
    if (!complete) write_file(dir + "/rank-00000.safetensors", "half");
    set_age(dir, age);
  }
  void set_age(const std::string& path, hours age) {
    const auto time = start_ - age;
    if (fs::is_directory(path)) {
      for (const auto& e : fs::directory_iterator(path)) fs::last_write_time(e.path(), time);
    }
    fs::last_write_time(path, time);
  }
  std::set<int64_t> steps() {
    std::set<int64_t> steps;
    for (const Attempt& a : list_attempts(run_.path())) steps.insert(a.step);
    return steps;
  }
  using Steps = std::set<int64_t>;

  TemporaryDirectory run_;
  fs::file_time_type start_ = fs::file_time_type::clock::now();
};

TEST_F(Retain, KeepsTheLastAndEveryMthAndTheYoung) {
  for (int i = 1; i <= 10; ++i) {
    make(i * 10, "20260301T101500Z-aa-g0-s" + std::to_string(i), true, hours(10 - i));
  }
  EXPECT_THAT(clear_old(run_.path(), {}), ElementsAre());
  EXPECT_EQ(steps().size(), 10U);
  // 100 and 90 by number; 40 and 80 by step; 60 to 100 by age.
  EXPECT_THAT(clear_old(run_.path(), {.keep_last = 2, .keep_every = 40, .keep_for = hours(4)}),
              ElementsAre(HasSubstr("step-50."), HasSubstr("step-30."), HasSubstr("step-20."),
                          HasSubstr("step-10.")));
  EXPECT_EQ(steps(), (Steps{40, 60, 70, 80, 90, 100}));
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_EQ(steps(), Steps{100});
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_EQ(steps(), Steps{100});
  EXPECT_THROW(clear_old(run_.path(), {.keep_last = -1}), ArgumentError);
}

// By records that are damaged without a change of their directory: who does not read them does not
// see it.
TEST_F(Retain, ReadsTheRecordsOfTheNewestAndOfNewOnesOnly) {
  const auto id = [](int i) { return "20260301T101500Z-aa-g0-s" + std::to_string(i); };
  const auto damage = [&](int i) {
    write_file(run_ / attempt_name(i, id(i)) + "/" + record_name(0), "damaged");
  };
  for (int i = 1; i <= 4; ++i) make(i, id(i), true);
  KnownComplete known;
  const ClearOptions options{.known = &known};
  clear_old(run_.path(), {.keep_last = 3}, options);
  EXPECT_EQ(steps(), (Steps{2, 3, 4}));
  EXPECT_EQ(known.changed.size(), 4U);
  damage(3);
  clear_old(run_.path(), {.keep_last = 2}, options);
  EXPECT_EQ(steps(), (Steps{3, 4}));  // 3 counts, and 2 goes
  EXPECT_EQ(known.changed.size(), 3U);
  // The newest one is read, whatever is known of it; of damaged ones that are the newest, all.
  make(5, id(5), true);
  clear_old(run_.path(), {.keep_last = 9}, options);
  damage(5);
  damage(4);
  EXPECT_THAT(clear_old(run_.path(), {.keep_last = 1}, options), ElementsAre());
  EXPECT_EQ(steps(), (Steps{3, 4, 5}));
  // One whose directory has changed is read anew: 6 is damaged, as 3 to 5 are.
  make(6, id(6), true);
  make(7, id(7), true);
  clear_old(run_.path(), {.keep_last = 9}, options);
  damage(6);
  write_file(run_ / attempt_name(6, id(6)) + "/other", "");
  make(8, id(8), true);
  clear_old(run_.path(), {.keep_last = 3}, options);
  EXPECT_EQ(steps(), (Steps{7, 8}));
}

// KempnerForge#102: with nothing newer complete, the old one stays whatever its age and place.
TEST_F(Retain, NeverTakesTheLastCompleteOne) {
  make(10, "20260301T101500Z-aa-g0-s0", true, hours(1000));
  make(20, "20260301T101500Z-aa-g0-s1", false);
  make(999, "20260301T101500Z-aa-g0-s2", false);
  EXPECT_THAT(clear_old(run_.path(), {.keep_last = 1, .stale_after = hours(0)}), ElementsAre());
  EXPECT_EQ(steps(), (Steps{10, 20, 999}));
  const Latest found = latest(run_.path());
  EXPECT_EQ(found.step, 10);
  EXPECT_THAT(found.directory, HasSubstr("step-10.20260301T101500Z-aa-g0-s0"));
  EXPECT_THAT(found.passed_over, ElementsAre(AllOf(HasSubstr("step-999."), HasSubstr("no commit")),
                                             HasSubstr("step-20.")));
}

// It may be complete, and one that is to be kept: not to be told from one that is not.
TEST_F(Retain, WhatCannotBeReadStays) {
  make(10, "20260301T101500Z-aa-g0-s0", true, hours(1000));
  make(20, "20260301T101500Z-aa-g0-s1", true, hours(999));
  const std::string record =
      run_ / (attempt_name(10, "20260301T101500Z-aa-g0-s0") + "/" + record_name(0));
  fs::permissions(record, fs::perms::none);
  {
    const testing::WithoutOverride scope;
    clear_old(run_.path(), {.keep_last = 1, .keep_every = 10});
  }
  EXPECT_EQ(steps(), (Steps{10, 20}));
  fs::permissions(record, fs::perms::owner_all);
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_EQ(steps(), (Steps{20}));
}

TEST_F(Retain, ARunThatWentBackKeepsWhatItSavesAndWhatLoadTakes) {
  make(2000, "20260301T101500Z-aa-g0-s5", true);
  make(1000, "20260302T101500Z-bb-g0-s0", true);
  make(1010, "20260302T101500Z-bb-g0-s1", true);
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_EQ(steps(), (Steps{1010, 2000}));
}

TEST_F(Retain, OfTwoJobsInOneDirectoryEachKeepsItsLast) {
  make(10, "20260301T101500Z-aa-g0-s0", true);
  make(20, "20260301T101500Z-aa-g0-s1", true);
  make(25, "20260302T101500Z-bb-g0-s0", true);
  make(30, "20260301T101500Z-aa-g0-s2", false);  // being written by the caller
  clear_old(run_.path(), {.keep_last = 1}, {.id = "20260301T101500Z-aa-g0-s2"});
  EXPECT_EQ(steps(), (Steps{20, 25, 30}));
}

TEST_F(Retain, IncompleteOnesGoOnceNobodyCanBeWritingThem) {
  make(10, "20260301T101500Z-aa-g0-s0", false, hours(30));  // of a run that was killed
  make(20, "20260301T101500Z-aa-g0-s1", false, hours(2));   // perhaps still being written
  make(25, "20260302T101500Z-bb-g0-s0", false, hours(1));   // of a run that has gone on since
  make(30, "20260302T101500Z-bb-g0-s1", true);
  make(40, "20260302T101500Z-bb-g0-s2", false, hours(100));  // after the last complete one
  EXPECT_THAT(clear_old(run_.path(), {.keep_last = 3}),
              ElementsAre(HasSubstr("step-25."), HasSubstr("step-10.")));
  EXPECT_EQ(steps(), (Steps{20, 30, 40}));
  clear_old(run_.path(), {.stale_after = hours(1)});
  EXPECT_EQ(steps(), (Steps{30, 40}));
}

TEST_F(Retain, OldTemporariesAndHalfRemovedOnesGoAndOthersStay) {
  const std::string name = attempt_name(10, "20260301T101500Z-aa-g0-s0");
  make(10, "20260301T101500Z-aa-g0-s0", true);
  write_file(run_ / "notes.txt", "");
  const std::set<std::string> goes = {name + "/manifest.jsonl.tmp-3-4",
                                      name + "/manifest.jsonl.tmp-31-00c0ffee12345678"};
  // Ours by no rule: the library writes no temporary into the run's directory itself.
  const std::set<std::string> stays = {
      "model.safetensors.tmp-1-2", "notes.tmp-old.txt",         "notes.txt",
      "removed.backup/notes.txt",  name + "/notes.tmp-old.txt", name + "/notes.tmp-1-2.txt",
      name + "/.tmp-1-2"};
  fs::create_directories(run_ / "removed.backup");
  for (const auto& names : {goes, stays}) {
    for (const std::string& n : names) {
      write_file(run_ / n, "");
      set_age(run_ / n, hours(3000));
    }
  }
  write_file(run_ / (name + "/new.tmp-1-3"), "");
  fs::create_directories(run_ / "removed.step-5.x");
  write_file(run_ / "removed.step-5.x/rank-00000.safetensors", "");
  clear_old(run_.path(), {.keep_last = 1});
  std::set<std::string> want = stays;
  want.insert({name + "/new.tmp-1-3", name + "/" + record_name(0)});
  EXPECT_EQ(testing::files_under(run_.path()), want);
  EXPECT_FALSE(fs::exists(run_ / "removed.step-5.x"));
}

// Links to attempts of another run: they go, and what they lead to stays.
TEST_F(Retain, NothingIsRemovedThroughALink) {
  const TemporaryDirectory other;
  const std::string name = attempt_name(10, "20260301T101500Z-aa-g0-s0");
  make(10, "20260301T101500Z-aa-g0-s0", true);
  write_file(run_ / (name + "/manifest.jsonl.tmp-3-4"), "");
  set_age(run_ / name, hours(100));
  fs::rename(run_ / name, other / name);
  const std::set<std::string> before = testing::files_under(other.path());
  fs::create_directory_symlink(other / name, run_ / name);
  fs::create_directory_symlink(other / name, run_ / ("removed." + name));
  fs::create_directory_symlink(other / "not_there", run_ / "removed.step-5.x");
  fs::create_directory_symlink(other / name, run_ / "removed.backup");
  make(20, "20260301T101500Z-aa-g0-s1", true);
  clear_old(run_.path(), {.keep_last = 2, .stale_after = hours(1)});
  EXPECT_EQ(steps(), (Steps{10, 20}));
  EXPECT_EQ(testing::files_under(other.path()), before);
  EXPECT_FALSE(fs::is_symlink(run_ / ("removed." + name)));
  EXPECT_FALSE(fs::is_symlink(run_ / "removed.step-5.x"));
  EXPECT_TRUE(fs::is_symlink(run_ / "removed.backup"));
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_EQ(steps(), Steps{20});
  EXPECT_FALSE(fs::is_symlink(run_ / name));
  EXPECT_EQ(testing::files_under(other.path()), before);
}

// A link inside of an attempt goes with it, one that leads nowhere too.
TEST_F(Retain, LinksOfAnAttemptGoWithIt) {
  const TemporaryDirectory other;
  write_file(other / "file", "theirs");
  const std::string name = attempt_name(10, "20260301T101500Z-aa-g0-s0");
  make(10, "20260301T101500Z-aa-g0-s0", true);
  fs::create_symlink(other / "file", run_ / (name + "/link"));
  fs::create_symlink(other / "not_there", run_ / (name + "/dangling"));
  make(20, "20260301T101500Z-aa-g0-s1", true);
  clear_old(run_.path(), {.keep_last = 1});
  EXPECT_FALSE(fs::exists(run_ / ("removed." + name)));
  EXPECT_EQ(testing::read_file(other / "file"), "theirs");
}

// Before an old one goes, the newest is made durable; and it goes whole, by one rename.
TEST_F(Retain, TheOrderOfWhatIsDone) {
  make(10, "20260301T101500Z-aa-g0-s0", true);
  make(20, "20260301T101500Z-aa-g0-s1", true);
  const auto system = std::make_shared<RecordingFileSystem>();
  clear_old(run_.path(), {.keep_last = 1}, {.system = system});
  std::vector<FileCall::Kind> kinds;
  for (const FileCall& c : system->calls()) kinds.push_back(c.kind);
  using enum FileCall::Kind;
  EXPECT_THAT(kinds, ElementsAre(kSyncDirectory, kSyncDirectory, kRename, kRemove, kRemove));
  EXPECT_EQ(steps(), Steps{20});
}

TEST_F(Retain, SavingKeepsWhatItIsTold) {
  Bag bag;
  bag.add("w", DTensor(Tensor::full({3}, 1)));
  const SaveOptions options{.retention = {.keep_last = 2, .keep_every = 4}};
  for (int step = 1; step <= 9; ++step) save(run_.path(), step, {.model = bag}, options);
  EXPECT_EQ(steps(), (Steps{4, 8, 9}));
  EXPECT_THROW(save(run_.path(), 10, {.model = bag}, {.retention = {.keep_last = -1}}),
               ArgumentError);
  EXPECT_EQ(load(run_.path(), {.model = bag}), 9);
}

// A directory that cannot be cleared does not make a save fail that is on the disk.
TEST_F(Retain, WhatCannotBeRemovedIsNoErrorOfTheSave) {
  Bag bag;
  bag.add("w", DTensor(Tensor::full({3}, 1)));
  save(run_.path(), 1, {.model = bag});
  const ScopedSlot<CurrentFileSystem> slot(
      {std::make_shared<RecordingFileSystem>([](const FileCall& call) {
        const bool away = call.to.find("removed.") != std::string::npos;
        return call.kind == FileCall::Kind::kRename && away ? EACCES : 0;
      })});
  save(run_.path(), 2, {.model = bag}, {.retention = {.keep_last = 1}});
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(Retain, LatestOfNothing) {
  EXPECT_EQ(latest(run_ / "not_there").step, std::nullopt);
  EXPECT_EQ(latest(run_.path()).directory, "");
}

}  // namespace
}  // namespace dtensor::checkpoint

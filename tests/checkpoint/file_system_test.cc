#include "dtensor/checkpoint/file_system.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::FileCall;
using testing::RecordingFileSystem;
using testing::TemporaryDirectory;
using Lines = std::vector<std::string>;

// "mkdir a", "sync a", relative to `base`.
Lines calls_in(const RecordingFileSystem& system, const std::string& base) {
  Lines lines;
  for (const FileCall& c : system.calls()) {
    const std::string path = std::filesystem::relative(c.path, base).string();
    lines.push_back((c.kind == FileCall::Kind::kMakeDirectory ? "mkdir " : "sync ") + path);
  }
  return lines;
}

TEST(MakeDirectories, MakesWhatIsNotThereAndSyncsWhereItStands) {
  const TemporaryDirectory dir;
  RecordingFileSystem system;
  make_directories(system, dir / "a/b/c");
  EXPECT_EQ(calls_in(system, dir.path()),
            (Lines{"mkdir a", "sync .", "mkdir a/b", "sync a", "mkdir a/b/c", "sync a/b"}));
  RecordingFileSystem again;
  make_directories(again, dir / "a/b/c");
  make_directories(again, dir / "a/b/d/");
  EXPECT_EQ(calls_in(again, dir.path()), (Lines{"mkdir a/b/d", "sync a/b"}));
}

TEST(MakeDirectories, AFileInTheWayIsNamed) {
  const TemporaryDirectory dir;
  testing::write_file(dir / "file", "");
  RecordingFileSystem system;
  EXPECT_THROW(make_directories(system, dir / "file"), CheckpointError);
  EXPECT_THROW(make_directories(system, dir / "file/a"), CheckpointError);
}

TEST(DirectoryOf, IsWhatStandsBeforeTheLastName) {
  EXPECT_EQ(directory_of("/a/b"), "/a");
  EXPECT_EQ(directory_of("/a/b/"), "/a");
  EXPECT_EQ(directory_of("/a"), "/");
  EXPECT_EQ(directory_of("/"), "/");
  EXPECT_EQ(directory_of("a"), ".");
  EXPECT_EQ(directory_of("a/b"), "a");
  EXPECT_EQ(directory_of(""), ".");
}

TEST(Posix, RefusesToReplaceWhereItWasTold) {
  const TemporaryDirectory dir;
  testing::write_file(dir / "a", "1");
  testing::write_file(dir / "b", "2");
  const auto system = posix_file_system();
  EXPECT_EQ(system->rename(dir / "a", dir / "b", Existing::kRefuse), EEXIST);
  EXPECT_EQ(testing::read_file(dir / "b"), "2");
  EXPECT_EQ(system->rename(dir / "a", dir / "b", Existing::kReplace), 0);
  EXPECT_EQ(testing::read_file(dir / "b"), "1");
  int fd = -1;
  EXPECT_EQ(system->create(dir / "b", fd), EEXIST);
}

}  // namespace
}  // namespace dtensor::checkpoint

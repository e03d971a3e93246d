#include "dtensor/checkpoint/file_io.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::files_under;
using testing::TemporaryDirectory;

TEST(TemporaryName, OnlyTheExactForm) {
  for (const char* name : {"a.tmp-1-0", "a.json.tmp-4711-9c0e51d2f07a6b38", "a.tmp-x.tmp-1-f"}) {
    EXPECT_TRUE(is_temporary_name(name)) << name;
  }
  for (const char* name : {"", "a", "a.tmp-", "a.tmp-1", "a.tmp-1-", "a.tmp--1", "a.tmp-1-2.txt",
                           "notes.tmp-old.txt", ".tmp-1-2", "a.tmp-1-G", "a.tmp-x-1"}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

// In a container every process has the number 1, and one that was killed leaves its temporary.
TEST(TemporaryName, WhatAProcessOfTheSameNumberLeftIsNotInTheWay) {
  const TemporaryDirectory dir;
  for (int i = 0; i < 1000; ++i) {
    testing::write_file(dir / ("model.tmp-" + std::to_string(getpid()) + "-" + std::to_string(i)),
                        "");
  }
  AtomicFile file(dir / "model");
  file.append(bytes_of("new"));
  int ours = 0;
  for (const std::string& name : files_under(dir.path())) ours += is_temporary_name(name) ? 1 : 0;
  EXPECT_EQ(ours, 1001);
  file.prepare();
  file.commit(Existing::kReplace);
  EXPECT_EQ(testing::read_file(dir / "model"), "new");
  EXPECT_EQ(files_under(dir.path()).size(), 1001U);
}

}  // namespace
}  // namespace dtensor::checkpoint

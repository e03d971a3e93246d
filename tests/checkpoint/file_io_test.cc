#include "dtensor/checkpoint/file_io.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <random>
#include <string>

#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/tests/checkpoint/recording_file_system.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::checkpoint {
namespace {

using testing::files_under;
using testing::TemporaryDirectory;

// Every mixture of pieces, the writes that they make and the CRCs of the whole.
TEST(NewFile, WritesPiecesOfAnySizeInOrderAndInFewWrites) {
  const TemporaryDirectory dir;
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const auto system = std::make_shared<testing::RecordingFileSystem>();
    const std::string path = dir / std::to_string(i);
    std::string want;
    size_t large = 0;
    NewFile file(path, system);
    for (int n = static_cast<int>(random() % 30); n > 0; --n) {
      const size_t most = random() % 2 == 0 ? 3'000'000 : 300'000;
      std::string piece(random() % most, '\0');
      for (size_t at = 0; at < piece.size(); at += 97) piece[at] = static_cast<char>(random());
      large += piece.size() >= 256 << 10 ? 1 : 0;
      file.append(bytes_of(piece));
      want += piece;
    }
    file.sync();
    file.keep();
    EXPECT_TRUE(testing::read_file(path) == want);
    BlockCrcs crcs;
    crcs.update(bytes_of(want));
    EXPECT_EQ(file.crcs().crcs(), crcs.crcs());
    size_t writes = 0;
    for (const auto& call : system->calls()) {
      if (call.kind != testing::FileCall::Kind::kWrite) continue;
      EXPECT_LE(call.bytes.size(), kBlockBytes);
      ++writes;
    }
    // Of a large piece the last write, and the one before it, may be short.
    EXPECT_LE(writes, want.size() / kBlockBytes + 2 * large + 1);
  }
}

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

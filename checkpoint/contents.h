// What an attempt's directory holds, put together from its commit records, and whether that is a
// complete checkpoint: all records of one id are there with a valid CRC of their own, the files
// have their sizes, and the chunks tile every tensor exactly. Anyone can check that, at any time.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/shape.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

struct StoredFile {
  std::string name;
  std::string path;
  int64_t bytes = 0;
  std::vector<uint32_t> block_crcs;
};
struct StoredChunk {
  int file = 0;  // index into Contents::files
  std::string key;
  Box box;
  int64_t begin_bytes = -1;  // from byte 0 of the file; where that is known
};
struct StoredTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<StoredChunk> chunks;
};

struct Problem {
  // "record", "missing", "id", "size", "tiling", "mismatch", "header", "crc", "replicas";
  // "unreadable": a file that may be whole, but the system does not give it
  std::string what = {};
  std::string file = {};    // its name in the attempt; may be empty
  std::string tensor = {};  // may be empty
  int64_t block = -1;       // of a wrong CRC
  std::string text = {};    // for people
};

struct Contents {
  Attempt attempt;
  int world = 0;  // 0 where no record could be read
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> aliases;
  std::map<std::string, int64_t> numbers;
  std::map<std::string, std::string> texts;
  std::vector<Problem> differing;  // replicas that were not equal; it is complete all the same
};

struct Examined {
  Contents contents;
  std::vector<Problem> problems;

  bool is_complete() const { return problems.empty(); }
  // Is it unknown whether it is complete, since the system does not give a file?
  bool is_unreadable() const;
  // Why it is not: "step-20.ID: no record of ranks 0-2; ..." with the first few problems.
  std::string reason() const;
};

// Where records are read. kOfManifest is the rule: out of the manifest where it has the record
// whole, else out of its own file. kOwnFiles is for who looks for damage: each out of its own file,
// so that what a manifest makes up for is found as well.
enum class Records : uint8_t { kOfManifest, kOwnFiles };

// Records, sizes and tiling; reads no data. Does not throw for what it finds.
Examined examine(const Attempt& attempt, Records records = Records::kOfManifest);

struct Found {
  std::optional<Contents> complete;
  std::vector<Examined> passed_over;  // newer ones that are not complete, the newest first
};
// The newest complete attempt; of step `step` where that is given.
Found find_complete(const std::string& run_dir, std::optional<int64_t> step = {});
// CheckpointError where there is none, with what each attempt lacks.
Contents newest_complete(const std::string& run_dir);

}  // namespace dtensor::checkpoint

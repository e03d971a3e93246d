// The commit record: the small file that a rank writes last. It says what the rank has written of
// one attempt, and carries its own CRC (docs/checkpoint_format.md).

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/shape.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

struct RecordFile {
  std::string name;  // in the directory of the attempt
  int64_t bytes = 0;
  std::vector<uint32_t> block_crcs;  // CRC32C of every 1 MiB from byte 0
};

struct RecordChunk {
  int file = 0;     // index into the record's files
  std::string key;  // in that file
  Box box;          // of the whole tensor
};

// What a rank has of a tensor where others hold the same part.
struct RecordReplica {
  Box box;
  uint32_t crc32c = 0;  // of the values, row-major
};

struct RecordTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of the whole
  std::vector<RecordChunk> chunks;
  // CRC32C of the whole value, of a tensor that every rank holds without a mesh: all ranks list
  // it, and must agree.
  std::optional<uint32_t> same_on_all = {};
  std::optional<RecordReplica> replica = {};  // where the save compares replicas
};

struct Record {
  std::string id;
  int64_t step = 0;
  int rank = 0;
  int world = 1;
  std::vector<RecordFile> files;
  std::vector<RecordTensor> tensors;
  std::map<std::string, std::string> aliases;  // further name -> name of a tensor
  std::map<std::string, int64_t> numbers;      // "optimizer.steps"
  std::map<std::string, std::string> texts;    // JSON documents of the program's own
};

// The largest record that is read: a rank's with 2^20 blocks (1 TiB) and 10^5 tensors stays well
// below.
inline constexpr int64_t kMaxRecordBytes = 256'000'000;

// "rank-00003.safetensors", further ones "rank-00003-1.safetensors".
std::string data_file_name(int rank, int index = 0);
std::string record_name(int rank);  // "rank-00003.record.json"
// The rank of a record's file name; nullopt for any other name.
std::optional<int> rank_of_record_name(std::string_view name);

// "w" -> "w", "w#1", ...; a '#' of the name is doubled.
std::string chunk_key(std::string_view name, int index);

std::string to_text(const Record& record);
// CheckpointError naming `path`: a wrong CRC, another version, a field that is missing or makes no
// sense by itself (a box outside its shape, a file name that is a path).
Record parse_record(std::string_view text, const std::string& path);

}  // namespace dtensor::checkpoint

// The header of a safetensors file as data, parsed by strict rules.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"

namespace dtensor::safetensors {

// "F32", "BF16", "I64", ...: as the format spells a dtype.
std::string_view format_name(DType dtype);

struct Entry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int64_t begin_bytes = 0;  // in the data part
  int64_t end_bytes = 0;
};

struct Header {
  std::vector<Entry> entries;  // by begin
  std::map<std::string, std::string> metadata;
};

// Reads the JSON text of a header that describes `data_bytes` of data. `path` is for messages.
// CheckpointError for anything that is not a legal header that tiles the data exactly: keys given
// twice, numbers that are no size, unknown dtypes, holes, overlaps, bytes that no tensor has.
Header parse_header(std::string_view text, int64_t data_bytes, const std::string& path);

}  // namespace dtensor::safetensors

#include "dtensor/checkpoint/record.h"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/safetensors_header.h"
#include "dtensor/checkpoint/strict_json.h"

namespace dtensor::checkpoint {
namespace {

constexpr std::string_view kFormat = "dtensor checkpoint record";
constexpr int64_t kVersion = 1;
// The file is exactly kBefore, the CRC of the body, kBetween, the body, kAfter: legal JSON of
// which every byte is checked.
constexpr std::string_view kBefore = R"({"crc32c":")";
constexpr std::string_view kBetween = R"(","record":)";
constexpr std::string_view kAfter = "}\n";
constexpr size_t kCrcDigits = 8;

nlohmann::ordered_json list_of(const Shape& shape) {
  return std::vector<int64_t>(shape.begin(), shape.end());
}

nlohmann::ordered_json json_of(const RecordTensor& tensor) {
  auto chunks = nlohmann::ordered_json::array();
  for (const RecordChunk& c : tensor.chunks) {
    chunks.push_back({{"file", c.file},
                      {"key", c.key},
                      {"offset", list_of(c.box.offset)},
                      {"size", list_of(c.box.size)}});
  }
  nlohmann::ordered_json json = {{"name", tensor.name},
                                 {"dtype", safetensors::format_name(tensor.dtype)},
                                 {"shape", list_of(tensor.shape)},
                                 {"chunks", std::move(chunks)}};
  if (tensor.same_on_all) json["same_on_all"] = hex_of({{*tensor.same_on_all}});
  return json;
}

Shape read_shape(const JsonValue& json) {
  const auto dims = json.list();
  if (dims.size() > kMaxDims) json.fail(fmt::format("has {} dims", dims.size()));
  Shape shape;
  for (const JsonValue& dim : dims) shape.push_back(dim.size());
  return shape;
}

int read_int(const JsonValue& json) {
  const int64_t v = json.size();
  if (v > std::numeric_limits<int>::max()) json.fail("is too large");
  return static_cast<int>(v);
}

uint32_t read_crc(const JsonValue& json) {
  std::vector<uint32_t> crcs;
  if (!read_hex(json.text(), crcs) || crcs.size() != 1) json.fail("is no CRC");
  return crcs[0];
}

RecordFile read_file(const JsonValue& json, const std::string& path) {
  RecordFile file{json["name"].text(), json["bytes"].size(), {}};
  check_plain_name(file.name, path);
  const int64_t blocks = file.bytes / kBlockBytes + (file.bytes % kBlockBytes != 0 ? 1 : 0);
  if (!read_hex(json["crc32c"].text(), file.block_crcs) ||
      static_cast<int64_t>(file.block_crcs.size()) != blocks) {
    json.fail(
        fmt::format("has not one CRC for each of the {} blocks of {} bytes", blocks, file.bytes));
  }
  return file;
}

RecordChunk read_chunk(const JsonValue& json, const Shape& shape, size_t files) {
  RecordChunk chunk{read_int(json["file"]),
                    json["key"].text(),
                    {read_shape(json["offset"]), read_shape(json["size"])}};
  if (static_cast<size_t>(chunk.file) >= files) json["file"].fail("is not one of the files");
  bool inside = chunk.box.offset.ndim() == shape.ndim() && chunk.box.size.ndim() == shape.ndim();
  for (int d = 0; inside && d < shape.ndim(); ++d) {
    inside = chunk.box.size[d] <= shape[d] && chunk.box.offset[d] <= shape[d] - chunk.box.size[d];
  }
  if (!inside) json.fail(fmt::format("lies outside the tensor's shape {}", to_string(shape)));
  return chunk;
}

RecordTensor read_tensor(const JsonValue& json, size_t files) {
  RecordTensor tensor;
  tensor.name = json["name"].text();
  tensor.shape = read_shape(json["shape"]);
  const std::string dtype = json["dtype"].text();
  int i = 0;
  while (i < kDTypes && safetensors::format_name(static_cast<DType>(i)) != dtype) ++i;
  if (i == kDTypes) json["dtype"].fail(fmt::format("\"{}\" is not known", dtype));
  tensor.dtype = static_cast<DType>(i);
  try {
    checked_mul(tensor.shape.numel(), size_of(tensor.dtype));
  } catch (const ArgumentError& e) {
    json["shape"].fail(e.what());
  }
  for (const JsonValue& c : json["chunks"].list()) {
    tensor.chunks.push_back(read_chunk(c, tensor.shape, files));
  }
  if (json.has("same_on_all")) tensor.same_on_all = read_crc(json["same_on_all"]);
  return tensor;
}

Record read_body(const JsonValue& json, const std::string& path) {
  if (json["format"].text() != kFormat || json["version"].number() != kVersion) {
    json.fail(fmt::format("is not of format \"{}\", version {}", kFormat, kVersion));
  }
  Record record;
  record.id = json["id"].text();
  record.step = json["step"].size();
  record.rank = read_int(json["rank"]);
  record.world = read_int(json["world"]);
  if (record.rank >= record.world)
    json.fail(fmt::format("rank {} of a world of {}", record.rank, record.world));
  for (const JsonValue& f : json["files"].list()) record.files.push_back(read_file(f, path));
  std::set<std::string> names;
  for (const JsonValue& t : json["tensors"].list()) {
    record.tensors.push_back(read_tensor(t, record.files.size()));
    if (!names.insert(record.tensors.back().name).second) t.fail("is the second of its name");
  }
  for (const auto& [name, target] : json["aliases"].fields()) record.aliases[name] = target.text();
  for (const auto& [name, number] : json["numbers"].fields())
    record.numbers[name] = number.number();
  return record;
}

}  // namespace

std::string data_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }
std::string record_name(int rank) { return fmt::format("rank-{:05}.record.json", rank); }

std::optional<int> rank_of_record_name(std::string_view name) {
  constexpr std::string_view kPrefix = "rank-";
  constexpr size_t kMaxDigits = 9;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int rank = 0;
  size_t end = kPrefix.size();
  while (end < name.size() && end < kPrefix.size() + kMaxDigits && name[end] >= '0' &&
         name[end] <= '9') {
    rank = rank * 10 + (name[end++] - '0');
  }
  if (name != record_name(rank)) return std::nullopt;
  return rank;
}

std::string chunk_key(std::string_view name, int index) {
  std::string key;
  for (const char c : name) key.append(c == '#' ? 2 : 1, c);
  return index == 0 ? key : fmt::format("{}#{}", key, index);
}

std::string to_text(const Record& record) {
  auto files = nlohmann::ordered_json::array();
  for (const RecordFile& f : record.files) {
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"crc32c", hex_of(f.block_crcs)}});
  }
  auto tensors = nlohmann::ordered_json::array();
  for (const RecordTensor& t : record.tensors) tensors.push_back(json_of(t));
  const nlohmann::ordered_json body = {{"format", kFormat},         {"version", kVersion},
                                       {"id", record.id},           {"step", record.step},
                                       {"rank", record.rank},       {"world", record.world},
                                       {"files", std::move(files)}, {"tensors", std::move(tensors)},
                                       {"aliases", record.aliases}, {"numbers", record.numbers}};
  std::string text;
  try {
    text = body.dump();
  } catch (const nlohmann::json::exception& e) {
    throw ArgumentError(fmt::format("checkpoint: a name is not UTF-8: {}", e.what()));
  }
  const std::string crc = hex_of({{crc32c(bytes_of(text))}});
  return fmt::format("{}{}{}{}{}", kBefore, crc, kBetween, text, kAfter);
}

Record parse_record(std::string_view text, const std::string& path) {
  constexpr size_t kFront = kBefore.size() + kCrcDigits + kBetween.size();
  std::vector<uint32_t> crc;
  if (text.size() < kFront + kAfter.size() || !text.starts_with(kBefore) ||
      !text.ends_with(kAfter) ||
      text.substr(kFront - kBetween.size(), kBetween.size()) != kBetween ||
      !read_hex(text.substr(kBefore.size(), kCrcDigits), crc)) {
    throw CheckpointError(
        fmt::format("{}: is not a commit record with a CRC, or is damaged", path));
  }
  const auto body = text.substr(kFront, text.size() - kFront - kAfter.size());
  if (const uint32_t found = crc32c(bytes_of(body)); found != crc[0]) {
    throw CheckpointError(fmt::format("{}: damaged: its CRC is {}, it says {}", path,
                                      hex_of({{found}}), hex_of(crc)));
  }
  const nlohmann::json json = parse_strict(body, path);
  return read_body(JsonValue(json, path), path);
}

}  // namespace dtensor::checkpoint

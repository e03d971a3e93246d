#include "dtensor/checkpoint/record.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
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

// Writes JSON as it goes: a record of many tensors is no tree in memory.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  void plain(std::string_view text) { out_ += text; }
  void number(int64_t v) { fmt::format_to(std::back_inserter(out_), "{}", v); }

  void text(std::string_view t) {
    const bool simple = std::ranges::all_of(
        t, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
    if (!simple) {
      out_ += nlohmann::json(t).dump();  // throws where it is not UTF-8
      return;
    }
    out_ += '"';
    out_ += t;
    out_ += '"';
  }

  void list(const Shape& shape) {
    out_ += '[';
    for (int d = 0; d < shape.ndim(); ++d) {
      if (d > 0) out_ += ',';
      number(shape[d]);
    }
    out_ += ']';
  }

  // f(item) for each, with commas between and brackets around.
  template <class Items, class F>
  void all(std::string_view brackets, const Items& items, const F& f) {
    out_ += brackets[0];
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) out_ += ',';
      f(item);
    }
    out_ += brackets[1];
  }

 private:
  std::string& out_;
};

void write_tensor(Writer& w, const RecordTensor& tensor) {
  w.plain(R"({"name":)");
  w.text(tensor.name);
  w.plain(R"(,"dtype":)");
  w.text(safetensors::format_name(tensor.dtype));
  w.plain(R"(,"shape":)");
  w.list(tensor.shape);
  w.plain(R"(,"chunks":)");
  w.all("[]", tensor.chunks, [&](const RecordChunk& c) {
    w.plain(R"({"file":)");
    w.number(c.file);
    w.plain(R"(,"key":)");
    w.text(c.key);
    w.plain(R"(,"offset":)");
    w.list(c.box.offset);
    w.plain(R"(,"size":)");
    w.list(c.box.size);
    w.plain("}");
  });
  if (tensor.same_on_all) {
    w.plain(R"(,"same_on_all":)");
    w.text(hex_of({{*tensor.same_on_all}}));
  }
  w.plain("}");
}

void write_body(Writer& w, const Record& record) {
  w.plain(R"({"format":)");
  w.text(kFormat);
  w.plain(R"(,"version":)");
  w.number(kVersion);
  w.plain(R"(,"id":)");
  w.text(record.id);
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, int64_t>>{
           {R"(,"step":)", record.step},
           {R"(,"rank":)", record.rank},
           {R"(,"world":)", record.world}}) {
    w.plain(name);
    w.number(value);
  }
  w.plain(R"(,"files":)");
  w.all("[]", record.files, [&](const RecordFile& f) {
    w.plain(R"({"name":)");
    w.text(f.name);
    w.plain(R"(,"bytes":)");
    w.number(f.bytes);
    w.plain(R"(,"crc32c":)");
    w.text(hex_of(f.block_crcs));
    w.plain("}");
  });
  w.plain(R"(,"tensors":)");
  w.all("[]", record.tensors, [&](const RecordTensor& t) { write_tensor(w, t); });
  const auto text_field = [&](const std::pair<const std::string, std::string>& field) {
    w.text(field.first);
    w.plain(":");
    w.text(field.second);
  };
  w.plain(R"(,"aliases":)");
  w.all("{}", record.aliases, text_field);
  w.plain(R"(,"numbers":)");
  w.all("{}", record.numbers, [&](const std::pair<const std::string, int64_t>& field) {
    w.text(field.first);
    w.plain(":");
    w.number(field.second);
  });
  if (!record.texts.empty()) {
    w.plain(R"(,"texts":)");
    w.all("{}", record.texts, text_field);
  }
  w.plain("}");
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
  if (json.has("texts")) {
    for (const auto& [name, text] : json["texts"].fields()) record.texts[name] = text.text();
  }
  return record;
}

}  // namespace

std::string data_file_name(int rank, int index) {
  const std::string further = index == 0 ? "" : fmt::format("-{}", index);
  return fmt::format("rank-{:05}{}.safetensors", rank, further);
}
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
  std::string text;
  try {
    Writer writer(text);
    write_body(writer, record);
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

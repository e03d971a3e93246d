#include "dtensor/checkpoint/safetensors_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/json_reader.h"

namespace dtensor::safetensors {
namespace {

using checkpoint::JsonFields;
using checkpoint::JsonReader;

constexpr size_t kMaxTensorDims = 64;  // as many as NumPy and PyTorch have
constexpr int64_t kHeaderOffsetBytes = 8;

std::optional<DType> dtype_of(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name == format_name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view article_of(JsonReader::Kind kind) {
  switch (kind) {
    case JsonReader::Kind::kObject:
      return "an object";
    case JsonReader::Kind::kArray:
      return "an array";
    case JsonReader::Kind::kText:
      return "a string";
    case JsonReader::Kind::kNumber:
      return "a number";
    case JsonReader::Kind::kNull:
      return "null";
    default:
      return "a boolean";
  }
}

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path)
      : json_(text, path + ": header", kHeaderOffsetBytes) {}

  Header run() {
    json_.enter_object("the header");
    bool has_metadata = false;
    std::string key;
    while (json_.next_key(key)) {
      if (key != "__metadata__") {
        out_.entries.push_back(read_entry(key));
      } else {
        if (std::exchange(has_metadata, true)) twice(key);
        read_metadata();
      }
    }
    json_.finish();
    check_names();
    return std::move(out_);
  }

 private:
  using Kind = JsonReader::Kind;

  [[noreturn]] void twice(const std::string& key) const {
    json_.fail(fmt::format("the key \"{}\" stands twice in one object", key));
  }

  void want(Kind kind, std::string_view key) {
    if (json_.kind() == kind) return;
    json_.fail(fmt::format("{} as a value of \"{}\"", article_of(json_.kind()), key));
  }

  void read_metadata() {
    // The reference takes "__metadata__": null for no metadata.
    if (json_.kind() == Kind::kNull) return json_.skip();
    want(Kind::kObject, "__metadata__");
    json_.enter_object("__metadata__");
    std::string key;
    while (json_.next_key(key)) {
      want(Kind::kText, key);
      if (!out_.metadata.emplace(key, json_.text(key)).second) twice(key);
    }
  }

  Entry read_entry(const std::string& name) {
    static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    want(Kind::kObject, name);
    Entry entry;
    entry.name = name;
    const std::string what = fmt::format("tensor \"{}\"", name);
    JsonFields fields(json_, what, kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) {
      if (f == 0) read_dtype(entry);
      if (f == 1) read_dims(entry);
      if (f == 2) read_offsets(entry);
    }
    fields.require(kFields.size());
    return entry;
  }

  void read_dtype(Entry& entry) {
    want(Kind::kText, "dtype");
    const std::string name = json_.text("dtype");
    const auto dtype = dtype_of(name);
    if (!dtype) {
      json_.fail(fmt::format(
          "tensor \"{}\" has dtype \"{}\"; known are F64, F32, F16, BF16, I64, I32, I8, "
          "U8 and BOOL",
          entry.name, name));
    }
    entry.dtype = *dtype;
  }

  int64_t read_size(std::string_view field) {
    want(Kind::kNumber, field);
    return json_.size(field);
  }

  void read_dims(Entry& entry) {
    want(Kind::kArray, "shape");
    json_.enter_array("shape");
    while (json_.next_item()) {
      if (entry.shape.size() == kMaxTensorDims) {
        json_.fail(fmt::format("tensor \"{}\" has more than {} dims", entry.name, kMaxTensorDims));
      }
      entry.shape.push_back(read_size("shape"));
    }
  }

  void read_offsets(Entry& entry) {
    want(Kind::kArray, "data_offsets");
    json_.enter_array("data_offsets");
    int count = 0;
    while (json_.next_item()) {
      if (count == 2) {
        json_.fail(fmt::format("tensor \"{}\" has more than two data_offsets", entry.name));
      }
      (count++ == 0 ? entry.begin_bytes : entry.end_bytes) = read_size("data_offsets");
    }
    if (count != 2) {
      json_.fail(fmt::format("tensor \"{}\" has {} data_offsets, not 2", entry.name, count));
    }
  }

  // No name twice: sorted, so that no header makes this slow.
  void check_names() const {
    std::vector<std::string_view> names;
    names.reserve(out_.entries.size());
    for (const Entry& e : out_.entries) names.push_back(e.name);
    std::ranges::sort(names);
    const auto it = std::ranges::adjacent_find(names);
    if (it != names.end()) twice(std::string(*it));
  }

  JsonReader json_;
  Header out_;
};

// The bytes that a dtype and shape take; nullopt where they are too many for 64 bits.
std::optional<uint64_t> bytes_of(const Entry& entry) {
  uint64_t bytes = 1;
  for (const int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return std::nullopt;
  }
  const auto element = static_cast<uint64_t>(size_of(entry.dtype));
  if (__builtin_mul_overflow(bytes, element, &bytes)) return std::nullopt;
  return bytes;
}

void check_tiles(std::span<const Entry> entries, int64_t data_bytes, const std::string& path) {
  int64_t end = 0;
  for (const Entry& e : entries) {
    if (e.begin_bytes != end || e.end_bytes < e.begin_bytes) {
      throw CheckpointError(
          fmt::format("{}: tensor \"{}\" has data_offsets [{}, {}], but the data before it ends at "
                      "{}: tensors must follow each other without hole or overlap",
                      path, e.name, e.begin_bytes, e.end_bytes, end));
    }
    const auto needed = bytes_of(e);
    if (needed != static_cast<uint64_t>(e.end_bytes - e.begin_bytes)) {
      throw CheckpointError(fmt::format(
          "{}: tensor \"{}\" has {} bytes at offset {}, but its shape and dtype take {}", path,
          e.name, e.end_bytes - e.begin_bytes, e.begin_bytes,
          needed ? std::to_string(*needed) : "more than 64 bits can count"));
    }
    end = e.end_bytes;
  }
  if (end != data_bytes) {
    throw CheckpointError(fmt::format(
        "{}: the tensors end at offset {} of the data, which has {} bytes", path, end, data_bytes));
  }
}

}  // namespace

std::string_view format_name(DType dtype) {
  constexpr std::array<std::string_view, kDTypes> kNames = {"F32", "F64", "F16", "BF16", "I8",
                                                            "U8",  "I32", "I64", "BOOL"};
  return kNames[static_cast<size_t>(dtype)];
}

Header parse_header(std::string_view text, int64_t data_bytes, const std::string& path) {
  // White space in front is refused, as the reference does, and a byte order mark.
  if (!text.starts_with('{')) {
    throw CheckpointError(fmt::format("{}: header: does not begin with {{ at byte 8", path));
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw CheckpointError(
        fmt::format("{}: header: NUL at byte {}", path, nul + kHeaderOffsetBytes));
  }
  Header header = HeaderParser(text, path).run();
  std::ranges::sort(header.entries, {}, [](const Entry& e) {
    return std::tuple(e.begin_bytes, e.end_bytes, std::string_view(e.name));
  });
  check_tiles(header.entries, data_bytes, path);
  return header;
}

}  // namespace dtensor::safetensors

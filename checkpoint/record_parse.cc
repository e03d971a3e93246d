// Reading commit records, which are not trusted. Declared in record.h.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "dtensor/base/checked.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/json_reader.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/record_text.h"
#include "dtensor/checkpoint/safetensors_header.h"

namespace dtensor::checkpoint {
namespace {

constexpr size_t kCrcDigits = 8;

class RecordParser {
 public:
  RecordParser(std::string_view body, const std::string& path, int64_t first_byte)
      : json_(body, path, first_byte) {}

  Record run() {
    static constexpr std::array<std::string_view, 11> kFields = {
        "format", "version", "id",      "step",    "rank", "world",
        "files",  "tensors", "aliases", "numbers", "texts"};
    JsonFields fields(json_, "the record", kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) read_field(f, kFields);
    fields.require(10);
    json_.finish();
    check();
    return std::move(record_);
  }

 private:
  void read_field(int field, std::span<const std::string_view> names) {
    const std::string_view name = names[static_cast<size_t>(field)];
    std::string key;
    switch (field) {
      case 0:
        if (json_.text(name) != record_text::kFormat) refuse_version();
        break;
      case 1:
        if (json_.number(name) != record_text::kVersion) refuse_version();
        break;
      case 2:
        record_.id = json_.text(name);
        break;
      case 3:
        record_.step = json_.size(name);
        break;
      case 4:
        record_.rank = read_int(name);
        break;
      case 5:
        record_.world = read_int(name);
        break;
      case 6:
        json_.enter_array(name);
        while (json_.next_item()) record_.files.push_back(read_file());
        break;
      case 7:
        json_.enter_array(name);
        while (json_.next_item()) record_.tensors.push_back(read_tensor());
        break;
      case 8:
        json_.enter_object(name);
        while (json_.next_key(key)) {
          if (!record_.aliases.emplace(key, json_.text(key)).second) twice(key);
        }
        break;
      case 10:
        json_.enter_object(name);
        while (json_.next_key(key)) {
          if (!record_.texts.emplace(key, json_.text(key)).second) twice(key);
        }
        break;
      default:
        json_.enter_object(name);
        while (json_.next_key(key)) {
          if (!record_.numbers.emplace(key, json_.number(key)).second) twice(key);
        }
    }
  }

  [[noreturn]] void refuse_version() const {
    json_.fail(fmt::format("is not of format \"{}\", version {}", record_text::kFormat,
                           record_text::kVersion));
  }
  [[noreturn]] void twice(const std::string& key) const {
    json_.fail(fmt::format("the key \"{}\" stands twice in one object", key));
  }

  int read_int(std::string_view what) {
    const int64_t v = json_.size(what);
    if (v > std::numeric_limits<int>::max()) json_.fail(fmt::format("{} is too large", what));
    return static_cast<int>(v);
  }

  Shape read_shape(std::string_view what) {
    Shape shape;
    int dims = 0;
    json_.enter_array(what);
    while (json_.next_item()) {
      const int64_t dim = json_.size(what);
      if (dims++ < kMaxDims) shape.push_back(dim);
    }
    if (dims > kMaxDims) json_.fail(fmt::format("{} has {} dims", what, dims));
    return shape;
  }

  RecordFile read_file() {
    static constexpr std::array<std::string_view, 3> kFields = {"name", "bytes", "crc32c"};
    RecordFile file;
    std::string digits;
    JsonFields fields(json_, "a file", kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) {
      if (f == 0) file.name = json_.file_name("a file's name");
      if (f == 1) file.bytes = json_.size("bytes");
      if (f == 2) digits = json_.text("crc32c");
    }
    fields.require(kFields.size());
    const int64_t blocks = file.bytes / kBlockBytes + (file.bytes % kBlockBytes != 0 ? 1 : 0);
    if (!read_hex(digits, file.block_crcs) ||
        static_cast<int64_t>(file.block_crcs.size()) != blocks) {
      json_.fail(fmt::format("\"{}\" has not one CRC for each of the {} blocks of {} bytes",
                             file.name, blocks, file.bytes));
    }
    return file;
  }

  RecordChunk read_chunk() {
    static constexpr std::array<std::string_view, 4> kFields = {"file", "key", "offset", "size"};
    RecordChunk chunk;
    JsonFields fields(json_, "a chunk", kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) {
      if (f == 0) chunk.file = read_int("file");
      if (f == 1) chunk.key = json_.text("key");
      if (f == 2) chunk.box.offset = read_shape("offset");
      if (f == 3) chunk.box.size = read_shape("size");
    }
    fields.require(kFields.size());
    return chunk;
  }

  RecordTensor read_tensor() {
    static constexpr std::array<std::string_view, 6> kFields = {"name",   "dtype",       "shape",
                                                                "chunks", "same_on_all", "replica"};
    RecordTensor tensor;
    JsonFields fields(json_, "a tensor", kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) {
      if (f == 0) tensor.name = json_.text("name");
      if (f == 1) tensor.dtype = read_dtype();
      if (f == 2) tensor.shape = read_shape("shape");
      if (f == 4) tensor.same_on_all = read_crc("same_on_all");
      if (f == 5) tensor.replica = read_replica();
      if (f != 3) continue;
      json_.enter_array("chunks");
      while (json_.next_item()) tensor.chunks.push_back(read_chunk());
    }
    fields.require(4);
    try {
      checked_mul(tensor.shape.numel(), size_of(tensor.dtype));
    } catch (const ArgumentError& e) {
      json_.fail(e.what());
    }
    return tensor;
  }

  DType read_dtype() {
    const std::string name = json_.text("dtype");
    for (int i = 0; i < kDTypes; ++i) {
      if (safetensors::format_name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
    }
    json_.fail(fmt::format("the dtype \"{}\" is not known", name));
  }

  RecordReplica read_replica() {
    static constexpr std::array<std::string_view, 3> kFields = {"offset", "size", "crc32c"};
    RecordReplica replica;
    JsonFields fields(json_, "a replica", kFields);
    for (int f = fields.next(); f >= 0; f = fields.next()) {
      if (f == 0) replica.box.offset = read_shape("offset");
      if (f == 1) replica.box.size = read_shape("size");
      if (f == 2) replica.crc32c = read_crc("crc32c");
    }
    fields.require(kFields.size());
    return replica;
  }

  uint32_t read_crc(std::string_view what) {
    std::vector<uint32_t> crcs;
    if (!read_hex(json_.text(what), crcs) || crcs.size() != 1) {
      json_.fail(fmt::format("{} is no CRC", what));
    }
    return crcs[0];
  }

  // What needs more than one field: they may stand in any order.
  void check() {
    if (record_.rank >= record_.world) {
      json_.fail(fmt::format("rank {} of a world of {}", record_.rank, record_.world));
    }
    std::vector<std::string_view> names;
    names.reserve(record_.tensors.size());
    for (const RecordTensor& t : record_.tensors) {
      names.push_back(t.name);
      for (const RecordChunk& c : t.chunks) check_chunk(t, c);
      if (t.replica) check_inside(t, t.replica->box, "the replica");
    }
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) json_.fail(fmt::format("\"{}\" is the second of its name", *twice));
  }

  void check_chunk(const RecordTensor& tensor, const RecordChunk& chunk) const {
    if (static_cast<size_t>(chunk.file) >= record_.files.size()) {
      json_.fail(fmt::format("file {} of a chunk of \"{}\" is not one of the files", chunk.file,
                             tensor.name));
    }
    check_inside(tensor, chunk.box, "a chunk");
  }

  void check_inside(const RecordTensor& tensor, const Box& box, std::string_view what) const {
    const Shape& shape = tensor.shape;
    bool inside = box.offset.ndim() == shape.ndim() && box.size.ndim() == shape.ndim();
    for (int d = 0; inside && d < shape.ndim(); ++d) {
      inside = box.size[d] <= shape[d] && box.offset[d] <= shape[d] - box.size[d];
    }
    if (inside) return;
    json_.fail(fmt::format("{} of \"{}\" lies outside the tensor's shape {}", what, tensor.name,
                           to_string(shape)));
  }

  JsonReader json_;
  Record record_;
};

}  // namespace

Record parse_record(std::string_view text, const std::string& path) {
  using record_text::kAfter;
  using record_text::kBefore;
  using record_text::kBetween;
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
  return RecordParser(body, path, kFront).run();
}

}  // namespace dtensor::checkpoint

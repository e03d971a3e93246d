#include "dtensor/checkpoint/safetensors_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::safetensors {
namespace {

constexpr size_t kMaxNesting = 64;
constexpr size_t kMaxTensorDims = 64;  // as many as NumPy and PyTorch have
constexpr int64_t kHeaderOffsetBytes = 8;

std::optional<DType> dtype_of(std::string_view name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (name == format_name(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// Receives the events of the JSON parser. A document tree is never made: it would take many times
// the memory of the text, and it would hide keys that are given twice.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const std::string& path, Header& out) : path_(path), out_(out) {}

  bool null() override {
    // The reference takes "__metadata__": null for no metadata.
    return at() == At::kTop && key_ == kMetadataKey ? true : other_value("null");
  }
  bool boolean(bool) override { return other_value("a boolean"); }
  // The parser calls this for negative numbers only.
  bool number_integer(number_integer_t v) override {
    return other_value(v < 0 ? "a negative number" : "-0");
  }
  bool number_float(number_float_t, const string_t& text) override { return other_value(text); }
  bool binary(binary_t&) override { return other_value("binary data"); }

  bool number_unsigned(number_unsigned_t v) override {
    if (at() != At::kShape && at() != At::kOffsets) return other_value("a number");
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(fmt::format("{} of tensor \"{}\" has {}, which is beyond int64", key_, entry_.name, v));
    }
    if (at() == At::kShape) {
      if (entry_.shape.size() == kMaxTensorDims) {
        fail(fmt::format("tensor \"{}\" has more than {} dims", entry_.name, kMaxTensorDims));
      }
      entry_.shape.push_back(static_cast<int64_t>(v));
    } else {
      if (offsets_ == 2)
        fail(fmt::format("tensor \"{}\" has more than two data_offsets", entry_.name));
      (offsets_++ == 0 ? entry_.begin_bytes : entry_.end_bytes) = static_cast<int64_t>(v);
    }
    return true;
  }

  bool string(string_t& v) override {
    if (at() == At::kMetadata) {
      out_.metadata[key_] = v;
      return true;
    }
    if (at() != At::kTensor || key_ != "dtype") return other_value("a string");
    const auto dtype = dtype_of(v);
    if (!dtype) {
      fail(fmt::format(
          "tensor \"{}\" has dtype \"{}\"; known are F64, F32, F16, BF16, I64, I32, I8, "
          "U8 and BOOL",
          entry_.name, v));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (at() == At::kStart) return enter(At::kTop);
    if (at() == At::kTop && key_ == kMetadataKey) return enter(At::kMetadata);
    if (at() == At::kTop) {
      entry_ = Entry{};
      entry_.name = key_;
      offsets_ = 0;
      return enter(At::kTensor);
    }
    other_value("an object");
    return enter(At::kSkipped);
  }

  bool key(string_t& v) override {
    if (!keys_.back().insert(v).second) {
      fail(fmt::format("the key \"{}\" stands twice in one object", v));
    }
    key_ = v;
    return true;
  }

  bool end_object() override {
    if (at() == At::kTensor) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (!keys_.back().contains(needed)) {
          fail(fmt::format("tensor \"{}\" has no {}", entry_.name, needed));
        }
      }
      out_.entries.push_back(std::move(entry_));
    }
    leave();
    return true;
  }

  bool start_array(size_t) override {
    if (at() == At::kTensor && key_ == "shape") return enter(At::kShape);
    if (at() == At::kTensor && key_ == "data_offsets") return enter(At::kOffsets);
    other_value("an array");
    return enter(At::kSkipped);
  }

  bool end_array() override {
    if (at() == At::kOffsets && offsets_ != 2) {
      fail(fmt::format("tensor \"{}\" has {} data_offsets, not 2", entry_.name, offsets_));
    }
    leave();
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& e) override {
    fail(fmt::format("at byte {} of the file: {}",
                     kHeaderOffsetBytes + static_cast<int64_t>(position), e.what()));
  }

 private:
  enum class At : uint8_t { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kSkipped };
  static constexpr std::string_view kMetadataKey = "__metadata__";

  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(fmt::format("{}: header: {}", path_, what));
  }

  At at() const { return stack_.empty() ? At::kStart : stack_.back(); }

  bool enter(At what) {
    if (stack_.size() == kMaxNesting) fail(fmt::format("nested deeper than {}", kMaxNesting));
    stack_.push_back(what);
    keys_.emplace_back();
    return true;
  }

  void leave() {
    stack_.pop_back();
    keys_.pop_back();
  }

  // A value where nothing but a further field of a tensor, which readers ignore, may have one.
  bool other_value(std::string_view what) const {
    const bool known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    if (at() == At::kSkipped || (at() == At::kTensor && !known)) return true;
    fail(at() == At::kStart ? fmt::format("{} instead of an object", what)
                            : fmt::format("{} as a value of \"{}\"", what, key_));
  }

  const std::string& path_;
  Header& out_;
  std::vector<At> stack_;
  std::vector<std::set<std::string>> keys_;  // of every open object
  std::string key_;                          // the last one
  Entry entry_;
  int offsets_ = 0;
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
  // Two things that the parser would let pass: a byte order mark, and whatever follows a NUL.
  if (!text.starts_with('{')) {
    throw CheckpointError(fmt::format("{}: header: does not begin with {{ at byte 8", path));
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw CheckpointError(
        fmt::format("{}: header: NUL at byte {}", path, nul + kHeaderOffsetBytes));
  }
  Header header;
  HeaderEvents events(path, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  std::ranges::sort(header.entries, {}, [](const Entry& e) {
    return std::tuple(e.begin_bytes, e.end_bytes, std::string_view(e.name));
  });
  check_tiles(header.entries, data_bytes, path);
  return header;
}

}  // namespace dtensor::safetensors

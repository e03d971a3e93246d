// JSON of a file that is not trusted, read field by field. Internal; for small documents.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::checkpoint {

// A value and where it stands ("FILE: tensors[3].shape"). Every access that does not fit is a
// CheckpointError that says so. The document must outlive it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, std::string where)
      : value_(value), where_(std::move(where)) {}

  bool has(const char* field) const { return value_.is_object() && value_.contains(field); }
  JsonValue operator[](const char* field) const;
  std::vector<JsonValue> list() const;
  std::vector<std::pair<std::string, JsonValue>> fields() const;
  std::string text() const;
  int64_t number() const;
  int64_t size() const;  // a number that is not negative
  [[noreturn]] void fail(std::string_view what) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
};

// Keys given twice, a NUL, and nesting deeper than 64 are refused as well as what is no JSON.
nlohmann::json parse_strict(std::string_view text, const std::string& path);

// A name that a file gives for another one beside it: not empty, "." or "..", and without a
// slash. CheckpointError naming `where`.
void check_plain_name(const std::string& name, const std::string& where);

}  // namespace dtensor::checkpoint

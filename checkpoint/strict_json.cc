#include "dtensor/checkpoint/strict_json.h"

#include <fmt/core.h>

#include <limits>
#include <set>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {

void JsonValue::fail(std::string_view what) const {
  throw CheckpointError(fmt::format("{}: {}", where_, what));
}

JsonValue JsonValue::operator[](const char* field) const {
  if (!value_.is_object()) fail("is not an object");
  const auto it = value_.find(field);
  if (it == value_.end()) fail(fmt::format("has no \"{}\"", field));
  return {*it, fmt::format("{}.{}", where_, field)};
}

std::vector<JsonValue> JsonValue::list() const {
  if (!value_.is_array()) fail("is not a list");
  std::vector<JsonValue> values;
  for (const auto& v : value_) values.emplace_back(v, fmt::format("{}[{}]", where_, values.size()));
  return values;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::fields() const {
  if (!value_.is_object()) fail("is not an object");
  std::vector<std::pair<std::string, JsonValue>> values;
  for (const auto& [name, v] : value_.items()) {
    values.emplace_back(name, JsonValue(v, fmt::format("{}.{}", where_, name)));
  }
  return values;
}

std::string JsonValue::text() const {
  if (!value_.is_string()) fail("is not a text");
  return value_.get<std::string>();
}

int64_t JsonValue::number() const {
  if (!value_.is_number_integer()) fail("is not a whole number");
  if (value_.is_number_unsigned() &&
      value_.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail("is beyond int64");
  }
  return value_.get<int64_t>();
}

int64_t JsonValue::size() const {
  const int64_t v = number();
  if (v < 0) fail(fmt::format("is {}, which is no size", v));
  return v;
}

nlohmann::json parse_strict(std::string_view text, const std::string& path) {
  using Event = nlohmann::json::parse_event_t;
  constexpr int kMaxNesting = 64;
  // The parser takes a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw CheckpointError(fmt::format("{}: NUL at byte {}", path, nul));
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > kMaxNesting) {
      throw CheckpointError(fmt::format("{}: nested deeper than {}", path, kMaxNesting));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      throw CheckpointError(fmt::format("{}: the key \"{}\" stands twice in one object", path,
                                        value.get<std::string>()));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& e) {
    throw CheckpointError(fmt::format("{}: {}", path, e.what()));
  }
}

void check_plain_name(const std::string& name, const std::string& where) {
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain) {
    throw CheckpointError(fmt::format(
        "{}: \"{}\" is not the plain name of a file in the same directory", where, name));
  }
}

}  // namespace dtensor::checkpoint

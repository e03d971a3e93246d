#include "dtensor/tools/options.h"

#include <algorithm>

#include "dtensor/base/text_cursor.h"

namespace dtensor::tools {

Options::Options(Arguments arguments, const Known& known) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help") throw HelpRequest();
    if (!argument.starts_with("--")) {
      if (positional_.size() == known.positional) {
        throw UsageError("\"" + argument + "\" is one argument too many");
      }
      positional_.push_back(argument);
      continue;
    }
    const size_t sign = argument.find('=');
    const std::string name = argument.substr(2, sign == std::string::npos ? sign : sign - 2);
    if (has(name)) throw UsageError("--" + name + " is given twice");
    if (std::ranges::find(known.values, name) != known.values.end()) {
      if (sign == std::string::npos && i + 1 == arguments.size()) {
        throw UsageError("--" + name + " lacks its value");
      }
      given_.push_back(
          {name, sign == std::string::npos ? arguments[++i] : argument.substr(sign + 1)});
    } else if (std::ranges::find(known.switches, name) != known.switches.end() &&
               sign == std::string::npos) {
      given_.push_back({name, {}});
    } else {
      throw UsageError("\"" + argument + "\" is not an option of this command");
    }
  }
}

std::optional<std::string> Options::find(std::string_view name) const {
  const auto found = std::ranges::find(given_, name, &Given::name);
  return found == given_.end() ? std::nullopt : std::optional(found->value);
}

std::string Options::required(std::string_view name) const {
  const auto value = find(name);
  if (!value) throw UsageError("--" + std::string(name) + " is missing");
  return *value;
}

std::string Options::value_or(std::string_view name, std::string_view fallback) const {
  return find(name).value_or(std::string(fallback));
}

Shape read_shape(const std::string& text) {
  try {
    Shape shape;
    TextCursor in(text, "shape");
    if (in.at_end()) return shape;
    do shape.push_back(in.number("a length"));
    while (in.eat(','));
    in.expect_end();
    check_shape(shape, "shape");
    return shape;
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
}

int read_rank(const std::string& text) {
  try {
    TextCursor in(text, "rank");
    const int64_t rank = in.number("a rank");
    in.expect_end();
    if (rank >= 0 && rank <= INT32_MAX) return static_cast<int>(rank);
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
  throw UsageError("rank " + text + ": ranks are 0 or more");
}

Layout read_layout(const std::string& text, const Shape& shape) {
  try {
    return parse_layout(text, shape);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace dtensor::tools

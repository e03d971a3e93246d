// Reading a command's options, and values that several commands take.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/shape.h"
#include "dtensor/placement/layout.h"
#include "dtensor/tools/command.h"

namespace dtensor::tools {

// "--name VALUE", "--name=VALUE" and "--switch", in any order, and arguments without a name.
// Names are written in full: a script must not break when an option is added.
class Options {
 public:
  struct Known {
    std::vector<std::string_view> values = {};    // options that take a value, without "--"
    std::vector<std::string_view> switches = {};  // options that take none
    size_t positional = 0;                        // how many arguments without a name, at most
  };
  // UsageError for an option that is not known, is given twice or lacks its value; HelpRequest for
  // --help, which every command takes.
  Options(Arguments arguments, const Known& known);

  bool has(std::string_view name) const { return find(name).has_value(); }
  // UsageError where it was not given.
  std::string required(std::string_view name) const;
  std::string value_or(std::string_view name, std::string_view fallback) const;
  const std::vector<std::string>& positional() const { return positional_; }

 private:
  struct Given {
    std::string name;
    std::string value;
  };
  std::optional<std::string> find(std::string_view name) const;

  std::vector<Given> given_;
  std::vector<std::string> positional_;
};

// "11,4"; "" is a scalar's. UsageError otherwise.
Shape read_shape(const std::string& text);

// "3". UsageError otherwise.
int read_rank(const std::string& text);

// parse_layout with UsageError for whatever is wrong with the text.
Layout read_layout(const std::string& text, const Shape& shape);

}  // namespace dtensor::tools

#include "dtensor/ops/rules_table.h"

#include <set>
#include <string_view>
#include <vector>

#include "dtensor/ops/registry.h"

namespace dtensor::ops {
namespace {

// "s, d"
std::string listed(std::string_view letters) {
  std::string text;
  for (const char letter : letters) text += (text.empty() ? "" : ", ") + std::string(1, letter);
  return text;
}

// "a; b" each alone, "a + b" jointly.
std::string linear_text(const Rule& rule) {
  std::string text;
  for (const Rule::InputSet& set : rule.linear) {
    std::string names;
    for (const int input : set) names += (names.empty() ? "" : " + ") + rule.name(input);
    text += (text.empty() ? "" : "; ") + names;
  }
  return text;
}

std::string communicating_text(const Rule& rule) {
  if (rule.communicating.empty()) return "";
  std::string text = listed(rule.communicating);
  if (!rule.ask.empty()) text += ", asked for by `" + std::string(rule.ask) + "`";
  return text;
}

std::string row(const std::string& name, const Rule& rule) {
  return "| `" + name + "` | `" + rule.letters + "` | " + listed(rule.uncut) + " | " +
         linear_text(rule) + " | " + communicating_text(rule) + " |\n";
}

}  // namespace

std::string rules_table() {
  std::string text =
      "| op | rule | may not be cut | linear in | may communicate |\n"
      "|---|---|---|---|---|\n";
  std::set<std::string> seen;
  for (const OpEntry& entry : all_ops()) {
    const std::vector<Rule> rules = rules_of(entry);
    const std::string line = rules.empty()
                                 ? "| `" + entry.name + "` | by shapes and levels | | | |\n"
                                 : row(entry.name, rules.front());
    if (seen.insert(line).second) text += line;
  }
  return text;
}

}  // namespace dtensor::ops

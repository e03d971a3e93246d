#include "dtensor/ops/rules_table.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
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

std::string row(const std::string& name, const Step& step) {
  if (!step.rule) return "| " + name + " | by shapes and levels | | | |\n";
  const Rule& rule = *step.rule;
  return "| " + name + " | `" + std::string(rule.letters.view()) + "` | " + listed(rule.uncut) +
         " | " + linear_text(rule) + " | " + communicating_text(rule) + " |\n";
}

// What sample calls have besides the op that they are of, so that their values tell.
constexpr std::pair<std::string_view, std::string_view> kOfSamples[] = {
    {"isnan", "log"},
    {"isfinite", "log"},
    {"cast_to_integer", "scale"},
    {"split", "add"},
    {"unbind", "sub"}};

// What an op runs, in order; the same thing twice running once.
std::vector<Step> own_steps_of(const OpEntry& entry) {
  std::vector<Step> own;
  for (Step& step : steps_of(entry)) {
    const std::pair<std::string_view, std::string_view> here{entry.name, step.op};
    if (std::ranges::find(kOfSamples, here) != std::end(kOfSamples)) continue;
    if (!own.empty() && row("", own.back()) == row("", step) && own.back().op == step.op) continue;
    own.push_back(std::move(step));
  }
  return own;
}

// "`mse_loss` 1: `sub`" for an op made of others, else "`sum`".
std::string lines_of(const OpEntry& entry) {
  const std::vector<Step> steps = own_steps_of(entry);
  const std::string name = "`" + entry.name + "`";
  if (steps.size() == 1) return row(name, steps.front());
  std::string text;
  for (size_t i = 0; i < steps.size(); ++i) {
    text += row(name + " " + std::to_string(i + 1) + ": `" + steps[i].op + "`", steps[i]);
  }
  return text;
}

}  // namespace

std::string rules_table() {
  std::string text =
      "| op | rule | may not be cut | linear in | may communicate |\n"
      "|---|---|---|---|---|\n";
  std::set<std::string> seen;
  for (const OpEntry& entry : all_ops()) {
    const std::string lines = lines_of(entry);
    if (seen.insert(lines).second) text += lines;
  }
  return text;
}

}  // namespace dtensor::ops

#include "dtensor/placement/apply_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dtensor {
namespace {

std::string shape_text(const Layout& layout, size_t input, const RuleOptions& options) {
  const DType dtype = input < options.dtypes.size() ? options.dtypes[input] : DType::kFloat32;
  return std::string(name_of(dtype)) + to_string(layout.shape());
}

// "redistribute(w, {Shard(0)})", or several joined.
std::string fix_code(const Rule& rule, std::span<const Layout> in, const Fix& fix) {
  std::vector<NamedLayout> named;
  for (size_t i = 0; i < in.size(); ++i) {
    if (fix.in[i] == in[i]) named.push_back({rule.name(static_cast<int>(i)), in[i]});
  }
  std::string code;
  for (size_t i = 0; i < in.size(); ++i) {
    if (fix.in[i] == in[i]) continue;
    if (!code.empty()) code += " and ";
    code += redistribute_code({rule.name(static_cast<int>(i)), in[i]}, fix.in[i], named);
  }
  return code;
}

std::string placements_text(const Layout& layout) {
  return layout.mesh().ndim() == 1 ? to_string(layout.placement(0)) : to_string(layout.spec());
}

}  // namespace

std::string no_row_text(const Rule& rule, std::span<const Layout> in, const RuleMismatch& mismatch,
                        std::span<const Fix> fixes, const RuleOptions& options) {
  const MeshLayout& mesh = in.front().mesh();
  const int m = mismatch.mesh_dim;
  std::string text = rule.op + ": ";
  for (size_t i = 0; i < in.size(); ++i) {
    text += fmt::format("{}{} {} is {}", i == 0 ? "" : ", ", rule.name(static_cast<int>(i)),
                        shape_text(in[i], i, options), to_string(in[i].placement(m)));
  }
  text += fmt::format(" on mesh dim \"{}\" ({} ranks); ", mesh.name(m), mesh.size(m));
  if (!rule.letters.empty()) text += fmt::format("no row of {} takes that: ", rule.letters.view());
  text += mismatch.why + ".";
  if (mesh.ndim() > 1) {
    for (size_t i = 0; i < in.size(); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? " In all: " : ", ", rule.name(static_cast<int>(i)),
                          to_string(in[i].spec()));
    }
    text += ".";
  }
  for (size_t f = 0; f < std::min<size_t>(fixes.size(), 2); ++f) {
    text += fmt::format("{}{}: {} per rank, gives {}", f == 0 ? "\n  Use " : "; or ",
                        fix_code(rule, in, fixes[f]), bytes_text(fixes[f].received_bytes),
                        placements_text(fixes[f].out.front()));
  }
  return fixes.empty() ? text : text + ".";
}

RuleResult apply_rule(const Rule& rule, std::span<const Layout> in, const RuleOptions& options) {
  RuleMatch match = match_rule(rule, in, options.allow_communicating);
  if (!match.mismatch) return std::move(match.result);
  throw PlacementError(no_row_text(rule, in, *match.mismatch, fixes(rule, in, options), options));
}

}  // namespace dtensor

// Applying a rule to the inputs of a call: the layouts, or an error that says what to write.

#pragma once

#include <span>

#include "dtensor/placement/rule.h"
#include "dtensor/placement/rule_fix.h"

namespace dtensor {

// Throws ArgumentError where sizes disagree, PlacementError where no row fits: it names the op,
// the mesh dim, the placements given, and the two cheapest fixes as code with the bytes received
// by the rank that receives most. Pure, so the same on every rank.
RuleResult apply_rule(const Rule& rule, std::span<const Layout> in,
                      const RuleOptions& options = {});

// The text of that error, for ops that find their placements otherwise.
std::string no_row_text(const Rule& rule, std::span<const Layout> in, const RuleMismatch& mismatch,
                        std::span<const Fix> fixes, const RuleOptions& options);

}  // namespace dtensor

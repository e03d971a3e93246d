// Rule: an op's placements in index letters, and the two things derived from it: its signature,
// and the layouts of a call. Pure: no tensor data.
//
// "mk,kn->mn" names the dims of every input and output. On one mesh dim one letter may be cut. A
// cut letter that is missing from an output makes that output Partial (of `reduce`). Letters in
// `uncut` may not be cut. A P(sum) input meets no cut letter; within one of the `linear` sets all
// inputs are P (an R joins by the silent move R -> P), the inputs outside it are R.
// A letter may be cut only where it is cut alike (dtensor/placement/layout.h) in every input that
// has it; an input that is R there is sliced silently where that needs no message.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/signature.h"

namespace dtensor {

struct Rule {
  std::string op;                             // "matmul"
  std::string letters;                        // "mk,kn->mn"
  std::string uncut = {};                     // letters that may not be cut
  std::vector<std::vector<int>> linear = {};  // sets of inputs that the op is jointly linear in
  PartialOp reduce = PartialOp::kSum;         // of a letter cut away
  std::string communicating = {};             // letters whose cut needs messages inside the op
};

// What a call of the op needs and gives.
struct RuleResult {
  std::vector<Layout> in;  // the layouts that the inputs must have: reached by silent moves
  std::vector<Layout> out;
  bool communicates = false;  // a communicating letter is cut
};

// The rows of one mesh dim that a rule allows, over R, S(d) and P(sum).
PlacementSignature signature_of(const Rule& rule);

// A way to make inputs fit that do not: the layouts to bring them to first, cheapest first by the
// bytes received by the rank that receives most. Every other input joins by a silent move.
struct Fix {
  std::vector<Layout> in;
  int64_t most_received = 0;  // elements
};
std::vector<Fix> fixes(const Rule& rule, std::span<const Layout> in);

// Applies a rule to inputs that lie on one mesh. `allow_communicating` says whether the call asks
// for communicating letters to be cut. Throws ArgumentError where sizes disagree, PlacementError
// where no row fits: it names the op, the mesh dim, the placements given, and the two cheapest
// fixes as code with the bytes received by the rank that receives most. `names` and `dtypes` of
// the inputs are for the message.
struct RuleOptions {
  bool allow_communicating = false;
  std::span<const std::string_view> names = {};
  std::span<const DType> dtypes = {};
};
RuleResult apply_rule(const Rule& rule, std::span<const Layout> in,
                      const RuleOptions& options = {});

}  // namespace dtensor

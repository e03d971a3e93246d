// PlacementSignature: the legal placements of an op on one mesh dim, in rows. Derived from the
// op's rule in index letters (dtensor/placement/rule.h), or stated for an irregular op.

#pragma once

#include <string>
#include <vector>

#include "dtensor/placement/placement.h"

namespace dtensor {

struct SignatureRow {
  std::vector<Placement> in;
  std::vector<Placement> out;
  bool communicates = false;  // taken only when the call or the policy asks
  friend bool operator==(const SignatureRow&, const SignatureRow&) = default;
};

struct PlacementSignature {
  std::string op;
  std::string rule;  // "mk,kn->mn"; empty for an irregular op
  std::vector<SignatureRow> rows;
};

}  // namespace dtensor

// Fixes: the ways to bring the inputs of a call to a row of the op's rule, cheapest first.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/rule.h"

namespace dtensor {

struct RuleOptions {
  bool allow_communicating = false;
  std::span<const DType> dtypes = {};  // of the inputs; f32 where missing
};

// Layouts to bring inputs to first; an input whose layout here is its own stays, or joins by a
// silent move.
struct Fix {
  std::vector<Layout> in;
  std::vector<Layout> out;         // what the op then gives
  std::vector<int64_t> each = {};  // per input, bytes received by the rank that receives most
  int64_t received_bytes = 0;      // their sum
  int64_t payload_elements = 0;    // sent, over all ranks
  int moved = 0;                   // inputs that move
  int new_cuts = 0;                // mesh dims that would cut what no input was cut by there
};

// By received_bytes, then by inputs moved. Mesh dims that fit already stay as they are. Where
// everything fits the first costs nothing.
std::vector<Fix> fixes(const Rule& rule, std::span<const Layout> in,
                       const RuleOptions& options = {});

// The call that moves a tensor: `redistribute(w, {Shard(0)})`. `others` are tensors whose layout
// may be named instead of spelled.
struct NamedLayout {
  std::string name;
  Layout layout;
};
std::string redistribute_code(const NamedLayout& from, const Layout& to,
                              std::span<const NamedLayout> others);

// "24 bytes", "12.0 MiB".
std::string bytes_text(int64_t bytes);

}  // namespace dtensor

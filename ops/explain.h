// explain: which row of its rule every op took, per mesh dim, or why none did and what would.
//   explain([&] { return matmul(x, w); })
//   explain("matmul", {x, w})
// The ops run, and send what they send; every rank of the mesh calls it and gets the same text.

#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// matmul mk,kn->mn: x f32[4,6], w f32[6,3]
//   dp: S(0), R -> S(0)
//   tp: S(1), S(0) -> P(sum)
// An input that was moved for the op is marked, "R => S(0)". Where no row takes an op, the text
// ends with its error; other errors pass.
std::string explain(const std::function<void()>& f);

// An op of the registry by name, of this many operands. ArgumentError where there is none: it names
// those that there are.
std::string explain(std::string_view op, std::span<const DTensor> inputs);
std::string explain(std::string_view op, std::initializer_list<DTensor> inputs);

}  // namespace dtensor::ops

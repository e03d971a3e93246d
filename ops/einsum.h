// Products of two tensors by the letters of their dims, which are the rule: linear in each, and a
// cut letter that is summed over gives P(sum).

#pragma once

#include <string>
#include <string_view>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// "bij,bjk->bik": letters a-z and A-Z, each once in an operand. A letter that the result lacks is
// summed over; one of the result stands in an operand. ArgumentError otherwise.
DTensor einsum(std::string_view letters, const DTensor& a, const DTensor& b,
               CallSite site = CallSite::here());

// [m], [n] -> [m,n]; [k], [k] -> a scalar.
DTensor outer(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor dot(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

namespace ops {

// What einsum comes down to, under the name of an op: every letter stands in two of the operands.
struct Contraction {
  std::string a;
  std::string b;
  std::string out;
};
DTensor contract(std::string_view op, const Contraction& letters, const DTensor& a,
                 const DTensor& b, CallSite site);

}  // namespace ops
}  // namespace dtensor

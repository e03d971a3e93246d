#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

// Of small integers, so that both answers occur.
std::vector<OpEntry> compare_samples() {
  std::vector<OpEntry> all;
  using Compare = DTensor (*)(const DTensor&, const DTensor&);
  const auto compare = [&all](const char* name, Compare f, int64_t below) {
    const auto call = [f](In x) { return f(x[0], x[1]); };
    all.push_back({name, "", {{{4, 3}, below}, {{4, 3}, below}}, call});
    all.push_back({name, "broadcast", {{{5, 4, 3}, below}, {{4, 1}, below}}, call});
  };
  const auto number = [&all](const char* name, DTensor (*f)(const DTensor&)) {
    all.push_back({name, "number", {{{5, 4}, 3}}, [f](In x) { return f(x[0]); }});
  };
  compare(
      "eq", [](const DTensor& a, const DTensor& b) { return eq(a, b); }, 3);
  number("eq", [](const DTensor& a) { return eq(a, 1.0); });
  compare(
      "ne", [](const DTensor& a, const DTensor& b) { return ne(a, b); }, 3);
  number("ne", [](const DTensor& a) { return ne(a, 1.0); });
  compare(
      "lt", [](const DTensor& a, const DTensor& b) { return lt(a, b); }, 3);
  number("lt", [](const DTensor& a) { return lt(a, 1.0); });
  compare(
      "le", [](const DTensor& a, const DTensor& b) { return le(a, b); }, 3);
  number("le", [](const DTensor& a) { return le(a, 1.0); });
  compare(
      "gt", [](const DTensor& a, const DTensor& b) { return gt(a, b); }, 3);
  number("gt", [](const DTensor& a) { return gt(a, 1.0); });
  compare(
      "ge", [](const DTensor& a, const DTensor& b) { return ge(a, b); }, 3);
  number("ge", [](const DTensor& a) { return ge(a, 1.0); });
  compare(
      "logical_and", [](const DTensor& a, const DTensor& b) { return logical_and(a, b); }, 2);
  compare(
      "logical_or", [](const DTensor& a, const DTensor& b) { return logical_or(a, b); }, 2);
  compare(
      "logical_xor", [](const DTensor& a, const DTensor& b) { return logical_xor(a, b); }, 2);
  return all;
}

}  // namespace dtensor::ops

#include <cmath>
#include <string>

#include "dtensor/ops/ops.h"
#include "dtensor/ops/samples/samples.h"

namespace dtensor::ops {

using In = SampleInputs;

namespace {

void add_plain(std::vector<OpEntry>& all) {
  using Reduce = DTensor (*)(const DTensor&, const Dims&, KeepDims);
  const auto reduction = [&all](const char* name, Reduce f) {
    all.push_back({name, "", {{{4, 3, 5}}}, [f](In x) { return f(x[0], {}, KeepDims::kNo); }});
    all.push_back({name, "dims", {{{4, 3, 5}}}, [f](In x) {
                     return f(x[0], {0, -1}, KeepDims::kNo);
                   }});
    all.push_back({name, "keep", {{{4, 3}}}, [f](In x) { return f(x[0], {1}, KeepDims::kYes); }});
  };
  reduction("sum", [](const DTensor& a, const Dims& d, KeepDims k) { return sum(a, d, k); });
  reduction("mean", [](const DTensor& a, const Dims& d, KeepDims k) { return mean(a, d, k); });
  reduction("amax", [](const DTensor& a, const Dims& d, KeepDims k) { return amax(a, d, k); });
  reduction("amin", [](const DTensor& a, const Dims& d, KeepDims k) { return amin(a, d, k); });
  reduction("prod", [](const DTensor& a, const Dims& d, KeepDims k) { return prod(a, d, k); });
}

// Over two flags each, so that both answers occur.
void add_flags(std::vector<OpEntry>& all) {
  const SampleOperand flags{.shape = {4, 5, 2}, .below = 2};
  all.push_back({"any", "", {flags}, [](In x) { return any(x[0], {-1}); }});
  all.push_back({"all", "", {flags}, [](In x) { return dtensor::all(x[0], {-1}); }});
  all.push_back({"count_nonzero", "", {flags}, [](In x) { return count_nonzero(x[0], {0, 2}); }});
  all.push_back({"argmax", "", {{{4, 5}}}, [](In x) { return argmax(x[0], 1); }});
  all.push_back({"argmax", "all", {{{4, 5}}}, [](In x) { return argmax(x[0]); }});
  all.push_back(
      {"argmin", "keep", {{{4, 5}}}, [](In x) { return argmin(x[0], 0, KeepDims::kYes); }});
}

void add_statistics(std::vector<OpEntry>& all) {
  for (const bool sharded : {false, true}) {
    const char* variant = sharded ? "sharded_dims" : "";
    const auto add = [&](const char* name, const std::function<DTensor(const DTensor&)>& f) {
      all.push_back({name, variant, {{{4, 3, 5}}}, [f](In x) { return f(x[0]); }});
    };
    add("var", [=](const DTensor& a) { return var(a, {0, 2}, {.sharded_dims = sharded}); });
    add("stddev", [=](const DTensor& a) {
      return stddev(a, {1}, {.keep = KeepDims::kYes, .correction = 0, .sharded_dims = sharded});
    });
    add("norm", [=](const DTensor& a) { return norm(a, {0, 2}, {.sharded_dims = sharded}); });
    add("logsumexp", [=](const DTensor& a) {
      return logsumexp(a, {0, 2}, {.keep = KeepDims::kYes, .sharded_dims = sharded});
    });
  }
  all.push_back({"norm", "1", {{{4, 3}}}, [](In x) { return norm(x[0], {0}, {.p = 1}); }});
  all.push_back(
      {"norm", "infinity", {{{4, 3}}}, [](In x) { return norm(x[0], {0}, {.p = INFINITY}); }});
}

}  // namespace

std::vector<OpEntry> reduction_samples() {
  std::vector<OpEntry> all;
  add_plain(all);
  add_flags(all);
  add_statistics(all);
  return all;
}

}  // namespace dtensor::ops

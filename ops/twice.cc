#include "dtensor/ops/twice.h"

#include <algorithm>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/ops/view.h"

namespace dtensor::ops {

DTensor spread_to(const Reduction& r, const DTensor& y, const DTensor& x) {
  Shape ones = x.shape();
  for (const int d : r.dims) ones[d] = 1;
  return expand(reshape(y, ones), x.shape());
}

void check_uncut(std::string_view op, const DTensor& x, const std::vector<int>& dims) {
  if (!x.mesh().defined()) return;
  for (const int d : dims) {
    if (x.spec().levels(d).empty()) continue;
    throw Error("backward with create_graph through " + std::string(op) + " over dim " +
                std::to_string(d) + ", which is cut, " + to_string(x.spec()) +
                ": its messages are not recorded; redistribute so that it is whole");
  }
}

DType computed_together(std::initializer_list<DType> dtypes) {
  const bool has_f64 = std::ranges::find(dtypes, DType::kFloat64) != dtypes.end();
  return has_f64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace dtensor::ops

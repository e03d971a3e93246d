#include "dtensor/ops/triangle.h"

#include <algorithm>
#include <string>

#include "dtensor/base/checked.h"
#include "dtensor/ops/one_input.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

enum class Side { kLower, kUpper };

DTensor keep(std::string_view op, Side side, const DTensor& a, int64_t diagonal, CallSite site) {
  ops::check_same_dtype(op, {a});
  if (a.ndim() < 2) {
    throw ArgumentError(std::string(op) + " takes [...,m,n], got " + to_string(a.shape()));
  }
  const int64_t most = checked_add(a.size(-2), a.size(-1));  // beyond it all are kept, or none
  diagonal = std::clamp(diagonal, -most, most);
  const std::string l = ops::letters_of(a.ndim() - 2);
  const Rule rule{.op = std::string(op), .letters = l + "mn->" + l + "mn", .linear = {{0}}};
  const auto kernel = [&](const ops::KernelInfo& info, const Tensor& x) {
    const Tensor y = Tensor::zeros(x.shape(), x.dtype());
    const int dim = x.ndim() - 2;
    const int64_t columns = x.size(-1);
    const int64_t first_row = info.range('m').begin;
    const int64_t first_column = info.range('n').begin;
    for (int64_t i = 0; i < x.size(dim); ++i) {
      // Column j of this piece is kept in row i where j <= last (lower), or j >= last (upper).
      const int64_t last = first_row + i + diagonal - first_column;
      const int64_t begin = side == Side::kLower ? 0 : std::clamp<int64_t>(last, 0, columns);
      const int64_t end =
          side == Side::kLower ? std::clamp<int64_t>(last + 1, 0, columns) : columns;
      const auto part = [&](const Tensor& t) {
        return t.narrow(dim, i, 1).narrow(-1, begin, end - begin);
      };
      kernels::copy(part(x), part(y));
    }
    return y;
  };
  const auto adjoint = [side, diagonal](const DTensor& g) {
    return side == Side::kLower ? tril(g, diagonal) : triu(g, diagonal);
  };
  return ops::run_one(rule, a, kernel, adjoint, site);
}

}  // namespace

DTensor tril(const DTensor& a, int64_t diagonal, CallSite site) {
  return keep("tril", Side::kLower, a, diagonal, site);
}

DTensor triu(const DTensor& a, int64_t diagonal, CallSite site) {
  return keep("triu", Side::kUpper, a, diagonal, site);
}

}  // namespace dtensor

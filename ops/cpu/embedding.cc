#include "dtensor/ops/cpu/embedding.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/ops/cpu/value_error.h"

namespace dtensor::cpu {
namespace {

std::string index_text(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return to_string(index);
}

void check_rows(const char* op, int64_t table_rows, Range rows) {
  if (rows.begin >= 0 && rows.size() == table_rows) return;
  throw ArgumentError(std::string(op) + ": a table of " + std::to_string(table_rows) +
                      " rows cannot hold [" + std::to_string(rows.begin) + ", " +
                      std::to_string(rows.end) + ") of the vocabulary");
}

// The places where each row of the table is used: (row, place), by row, then by place.
std::vector<std::pair<int64_t, int64_t>> uses_of(const Tensor& ids, Range rows,
                                                 std::optional<int64_t> skipped) {
  const Tensor flat = ids.contiguous();
  const int64_t* id = flat.data<int64_t>();
  std::vector<std::pair<int64_t, int64_t>> uses;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] < rows.begin || id[i] >= rows.end || id[i] == skipped) continue;
    uses.emplace_back(id[i] - rows.begin, i);
  }
  std::ranges::sort(uses);
  return uses;
}

}  // namespace

void check_ids(const Tensor& ids, int64_t count, std::optional<int64_t> ignore, const char* what) {
  const Tensor flat = ids.contiguous();
  const int64_t* id = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if ((id[i] >= 0 && id[i] < count) || (ignore && id[i] == *ignore)) continue;
    throw ValueError(std::string(what) + " has " + std::to_string(id[i]) + " at " +
                     index_text(i, ids.shape()) + "; they must be in [0, " + std::to_string(count) +
                     ")" + (ignore ? " or " + std::to_string(*ignore) + ", the ignored one" : ""));
  }
}

Tensor embedding(const Tensor& table, const Tensor& ids, Range rows) {
  if (table.ndim() != 2) {
    throw ArgumentError("embedding: wants a table [v,h], found " + describe(table));
  }
  check_rows("embedding", table.shape()[0], rows);
  const int64_t h = table.shape()[1];
  Shape shape = ids.shape();
  shape.push_back(h);
  Tensor out = Tensor::empty(shape, table.dtype());
  const Tensor flat = ids.contiguous();
  const int64_t* id = flat.data<int64_t>();
  visit_dtype(table.dtype(), [&](auto t) {
    using T = decltype(t);
    const Rows<T> from(table);
    T* to = out.data<T>();
    // A row that another rank holds is the identity of the sum that will join them.
    const Tensor none = Tensor::full({}, is_floating(table.dtype()) ? -0.0 : 0.0, table.dtype());
    const T absent = *none.data<T>();
    parallel_rows(flat.numel(), h, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (id[i] >= rows.begin && id[i] < rows.end) {
          std::copy_n(from[id[i] - rows.begin], h, to + i * h);
        } else {
          std::fill_n(to + i * h, h, absent);
        }
      }
    });
  });
  return out;
}

Tensor embedding_backward(const Tensor& g, const Tensor& ids, Range rows,
                          std::optional<int64_t> skipped) {
  bool fits = g.ndim() == ids.ndim() + 1;
  for (int d = 0; fits && d < ids.ndim(); ++d) fits = g.shape()[d] == ids.shape()[d];
  if (!fits) {
    throw ArgumentError("embedding_backward: wants ids [...] and g [...,h], found " +
                        describe(ids) + " and " + describe(g));
  }
  check_rows("embedding_backward", rows.size(), rows);
  const int64_t h = g.shape().back();
  const Tensor out = Tensor::zeros({rows.size(), h}, g.dtype());
  const auto uses = uses_of(ids, rows, skipped);
  visit_floating("embedding_backward", g.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> from(g);
    T* to = out.data<T>();
    // A thread takes the table rows whose first use is in its range, with all their uses.
    const auto count = static_cast<int64_t>(uses.size());
    parallel_rows(count, h, [&](int64_t begin, int64_t end) {
      std::vector<A> sum(static_cast<size_t>(h));
      const auto row_at = [&](int64_t i) { return uses[static_cast<size_t>(i)].first; };
      while (begin > 0 && begin < end && row_at(begin) == row_at(begin - 1)) ++begin;
      for (int64_t i = begin; i < end;) {
        const int64_t row = row_at(i);
        std::ranges::fill(sum, A{0});
        for (; i < count && row_at(i) == row; ++i) {
          const T* add = from[uses[static_cast<size_t>(i)].second];
          for (int64_t c = 0; c < h; ++c) sum[static_cast<size_t>(c)] += static_cast<A>(add[c]);
        }
        for (int64_t c = 0; c < h; ++c) to[row * h + c] = T(sum[static_cast<size_t>(c)]);
      }
    });
  });
  return out;
}

}  // namespace dtensor::cpu

// Embedding look-up on local Tensors, for a piece of the table that holds the rows [begin, end) of
// the vocabulary. ids [...] of i64, strided or empty. Results are new and contiguous.

#pragma once

#include <cstdint>
#include <optional>

#include "dtensor/base/cut.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// Throws ValueError (an ArgumentError) naming the first id that is not in [0, count) and not
// `ignore`, and its index. Ids must be checked before the kernels below see them.
void check_ids(const Tensor& ids, int64_t count, std::optional<int64_t> ignore, const char* what);

// table [rows.size(), h] of any dtype -> [...,h]: row id - rows.begin, zeros where id is not in
// `rows`.
Tensor embedding(const Tensor& table, const Tensor& ids, Range rows);

// g [...,h] -> [rows.size(), h]: row i is the sum of g over the ids equal to rows.begin + i, in
// their order (bf16 in f32, rounded once), but 0 for `skipped`. f32, f64, bf16.
Tensor embedding_backward(const Tensor& g, const Tensor& ids, Range rows,
                          std::optional<int64_t> skipped = {});

}  // namespace dtensor::cpu

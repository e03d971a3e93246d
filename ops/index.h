// Picking and adding by index. Indices are i64 tensors of global positions, in [0, length); others
// are an ArgumentError on the ranks that hold them. They have no gradient.
// The indexed dim may be cut: a rank picks what it holds and 0 elsewhere, so the result is P(sum);
// adding writes the rows that a rank holds. Over a cut dim of the indices adding gives P(sum).

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// a [..,v,..], index [..,w,..] of equal other dims -> [..,w,..]: a at the index along `dim`.
DTensor gather(const DTensor& a, int dim, const DTensor& index, CallSite site = CallSite::here());
// a + source added at the index along `dim`; index and source of one shape.
DTensor scatter_add(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                    CallSite site = CallSite::here());

// The same with one index [w] for all rows of the other dims.
DTensor index_select(const DTensor& a, int dim, const DTensor& index,
                     CallSite site = CallSite::here());
DTensor index_add(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                  CallSite site = CallSite::here());

// [...] -> [...,classes]: 1 at the index, else 0. No gradient.
DTensor one_hot(const DTensor& index, int64_t classes, DType dtype = DType::kFloat32,
                CallSite site = CallSite::here());

// `a` with source written at the index along `dim`; index and source of one shape. Where an index
// stands more than once, the sum is written. Floating dtypes.
DTensor scatter(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                CallSite site = CallSite::here());
// index [...] -> i64 [classes]: how often each stands there. A cut index gives P(sum). Memory of
// classes elements for each index.
DTensor bincount(const DTensor& index, int64_t classes, CallSite site = CallSite::here());

}  // namespace dtensor

// Reductions over chosen dims (none: all of them) that work on parts: over a cut dim the result is
// Partial, and nothing is sent.

#pragma once

#include "dtensor/ops/dims.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// P(sum) over a cut dim; linear. Integers wrap.
DTensor sum(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
            CallSite site = CallSite::here());
// Divides by the global count: over a cut dim the result is P(sum). NaN over no elements.
DTensor mean(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
             CallSite site = CallSite::here());
// P(max), P(min) over a cut dim; no backward there. Elsewhere the gradient goes to the extreme
// elements, in equal parts where there are several. Over no elements -inf and inf, or the ends of
// the integers. NaN goes through.
DTensor amax(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
             CallSite site = CallSite::here());
DTensor amin(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
             CallSite site = CallSite::here());
// P(prod) over a cut dim; no backward there.
DTensor prod(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
             CallSite site = CallSite::here());

// Of elements that are not 0, of any dtype. bool, P(max) and P(min) over a cut dim; and their
// number, i64 and P(sum). Over none: false, true, 0.
DTensor any(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
            CallSite site = CallSite::here());
DTensor all(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
            CallSite site = CallSite::here());
DTensor count_nonzero(const DTensor& a, const Dims& dims = {}, KeepDims keep = KeepDims::kNo,
                      CallSite site = CallSite::here());

}  // namespace dtensor

// Copies of a tensor with its elements in other places. Linear, so P(sum) passes; the dims along
// which elements move may not be cut.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// The tensor times[d] times along dim d; times may have more dims than `a`.
DTensor repeat(const DTensor& a, const Shape& times, CallSite site = CallSite::here());

// `before` and `after` elements of `value` around a dim, none negative. Where value is not 0 a
// P(sum) operand has no row: every part would add it.
struct PadOptions {
  int64_t before = 0;
  int64_t after = 0;
  double value = 0.0;
};
DTensor pad(const DTensor& a, int dim, const PadOptions& options, CallSite site = CallSite::here());

// Element i goes to (i + shift) mod size of the dim.
DTensor roll(const DTensor& a, int64_t shift, int dim, CallSite site = CallSite::here());
// The elements of a dim in the opposite order.
DTensor flip(const DTensor& a, int dim, CallSite site = CallSite::here());

// Elements [.., i, .., i + offset, ..] of two dims as a last dim: a view.
struct DiagonalOptions {
  int64_t offset = 0;
  int dim0 = -2;
  int dim1 = -1;
};
DTensor diagonal(const DTensor& a, const DiagonalOptions& options = {},
                 CallSite site = CallSite::here());

// Each element of a dim `times` times in a row: [0,0,1,1]. A cut goes on in units of `times`.
DTensor repeat_interleave(const DTensor& a, int64_t times, int dim,
                          CallSite site = CallSite::here());

}  // namespace dtensor

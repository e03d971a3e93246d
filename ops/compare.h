// Comparisons and logical ops of two operands of one dtype, any, with broadcasting from the right.
// Results are bool; nothing is linear, so a Partial operand has no row; no gradient.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// False where one of them is NaN, but ne. A number is rounded to the type computed in (f32 for f16
// and bf16); integers compare with whole numbers only.
DTensor eq(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor ne(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor lt(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor le(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor gt(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor ge(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor eq(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor ne(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor lt(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor le(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor gt(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor ge(const DTensor& a, double b, CallSite site = CallSite::here());

// Of whether elements are 0.
DTensor logical_and(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor logical_or(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor logical_xor(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

}  // namespace dtensor

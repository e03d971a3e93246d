// Elementwise ops, with broadcasting from the right: dims are equal, or one of them is 1 or absent.
// Both operands have one dtype.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Jointly linear: P + P -> P, and an R joins a P by counting once, at coordinate 0.
DTensor add(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor sub(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
// Linear in each: P * R -> P; P * P has no row.
DTensor mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

// With a number: as with a scalar that is R.
DTensor add(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor sub(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor mul(const DTensor& a, double b, CallSite site = CallSite::here());  // scale
DTensor neg(const DTensor& a, CallSite site = CallSite::here());

// Of floating types; a P(sum) operand has no row.
DTensor exp(const DTensor& a, CallSite site = CallSite::here());
DTensor relu(const DTensor& a, CallSite site = CallSite::here());
DTensor silu(const DTensor& a, CallSite site = CallSite::here());
// silu(a) b of one shape, in one pass. Linear in b.
DTensor silu_mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

// From a floating type to another it passes P(sum) on (each part is rounded).
DTensor cast(const DTensor& a, DType dtype, CallSite site = CallSite::here());

}  // namespace dtensor

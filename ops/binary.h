// Elementwise ops of two operands of one dtype, with broadcasting from the right: dims are equal,
// or one of them is 1 or absent. A number stands for a scalar that is R, rounded to the type
// computed in; integers take whole numbers of 64 bits only. One that the dtype does not hold wraps
// in add, sub and mul; in maximum, minimum and remainder it is compared as it is, and an
// ArgumentError where results would be such numbers.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Jointly linear: P + P -> P, and an R joins a P by counting once, at coordinate 0. Integers wrap.
DTensor add(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor add(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor sub(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor sub(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor sub(double a, const DTensor& b, CallSite site = CallSite::here());
// a + weight (b - a).
DTensor lerp(const DTensor& a, const DTensor& b, double weight, CallSite site = CallSite::here());

// Linear in each: P * R -> P; P * P has no row. Integers wrap.
DTensor mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
// "scale" in messages. Times inf, and divided by 0, P has no row: the parts would not add up.
DTensor mul(const DTensor& a, double b, CallSite site = CallSite::here());
// a + factor b c, jointly linear in a and the product.
DTensor addcmul(const DTensor& a, const DTensor& b, const DTensor& c, double factor = 1.0,
                CallSite site = CallSite::here());
// Linear in a. Floating dtypes.
DTensor div(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor div(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor div(double a, const DTensor& b, CallSite site = CallSite::here());

// Not linear. Floating dtypes; pow(a, b) as in C, with gradient 0 in b where a is 0.
DTensor pow(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor pow(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor pow(double a, const DTensor& b, CallSite site = CallSite::here());
DTensor atan2(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
// Integers too. NaN where one of them is; the gradient is shared in halves where a = b.
DTensor maximum(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor maximum(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor minimum(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor minimum(const DTensor& a, double b, CallSite site = CallSite::here());
// a - b floor(a / b): has b's sign. Integers too; ArgumentError where an integer b is 0.
DTensor remainder(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor remainder(const DTensor& a, double b, CallSite site = CallSite::here());

}  // namespace dtensor

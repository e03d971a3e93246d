// Products.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// [m,k] x [k,n] -> [m,n], or [...,m,k] x [...,k,n] with equal leading dims.
//   rule  mk,kn->mn: a cut k gives P(sum); linear in a and in b
DTensor matmul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

// x [...,k], w [n,k], bias [n] or undefined -> [...,n]: x wᵀ + bias. The bias is added as by add():
// to a P(sum) product it counts once.
//   rule  ...k,nk->...n
DTensor linear(const DTensor& x, const DTensor& w, const DTensor& bias = {},
               CallSite site = CallSite::here());

}  // namespace dtensor

// Products.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// [m,k] x [k,n] -> [m,n]. Leading dims are equal, or are broadcast as by add(): absent or 1 in one
// of them. Of one dim, a is a row and b a column, and the result lacks that dim.
//   rule  mk,kn->mn: a cut k gives P(sum); linear in a and in b
DTensor matmul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
// [b,m,k] x [b,k,n] -> [b,m,n], nothing else.
DTensor bmm(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());

// x [...,k], w [n,k], bias [n] or undefined -> [...,n]: x wᵀ + bias. The bias is added as by add():
// to a P(sum) product it counts once.
//   rule  ...k,nk->...n
DTensor linear(const DTensor& x, const DTensor& w, const DTensor& bias = {},
               CallSite site = CallSite::here());

// beta c + alpha a b, c broadcast to the product as by add(): of [m,k] and [k,n], or in batches of
// [b,m,k] and [b,k,n]. Linear in each of a and b; c counts once in a P(sum).
struct AddProductOptions {
  double alpha = 1.0;
  double beta = 1.0;
};
DTensor addmm(const DTensor& c, const DTensor& a, const DTensor& b,
              const AddProductOptions& options = {}, CallSite site = CallSite::here());
DTensor baddbmm(const DTensor& c, const DTensor& a, const DTensor& b,
                const AddProductOptions& options = {}, CallSite site = CallSite::here());

}  // namespace dtensor

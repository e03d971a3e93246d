// The operations. Shapes are global; a leading "..." stands for any dims. Every op throws
// ArgumentError where shapes or dtypes do not fit and PlacementError where no row of its rule
// takes the placements (dtensor/placement/rule.h). Floating ops take f32, f64 and bf16 (computed
// in f32, rounded once at the end).

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// ---- Products (ops/matmul.cc; oneDNN on the CPU)
// [m,k] x [k,n] -> [m,n], or [...,m,k] x [...,k,n] with equal leading dims.
DTensor matmul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
// x [...,k], w [n,k], bias [n] or undefined -> [...,n]: x wᵀ + bias.
DTensor linear(const DTensor& x, const DTensor& w, const DTensor& bias = {},
               CallSite site = CallSite::here());

// ---- Elementwise (ops/elementwise.cc), with broadcasting from the right; a number is a scalar.
DTensor add(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor sub(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
DTensor add(const DTensor& a, double b, CallSite site = CallSite::here());
DTensor mul(const DTensor& a, double b, CallSite site = CallSite::here());  // scale
DTensor neg(const DTensor& a, CallSite site = CallSite::here());
DTensor exp(const DTensor& a, CallSite site = CallSite::here());
DTensor relu(const DTensor& a, CallSite site = CallSite::here());
DTensor silu(const DTensor& a, CallSite site = CallSite::here());
DTensor silu_mul(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());  // fused
DTensor cast(const DTensor& a, DType dtype, CallSite site = CallSite::here());

// ---- Reductions (ops/reduce.cc). No dims: over all. A cut dim that is reduced gives Partial.
DTensor sum(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
// Divides by the global count: over a cut dim the result is P(sum).
DTensor mean(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
// P(max), P(min) over a cut dim; no backward there.
DTensor amax(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());
DTensor amin(const DTensor& a, std::span<const int> dims = {}, CallSite site = CallSite::here());

// ---- Views (ops/view.cc): share storage; carry units.
DTensor transpose(const DTensor& a, int d0 = -2, int d1 = -1, CallSite site = CallSite::here());
// One -1 is inferred. Legal where every dim of the result is a run of dims of `a` or a piece of
// one, and every boundary stays one; PlacementError otherwise, alike on all ranks.
DTensor reshape(const DTensor& a, const Shape& shape, CallSite site = CallSite::here());
DTensor narrow(const DTensor& a, int dim, int64_t begin, int64_t length,
               CallSite site = CallSite::here());  // of a dim that is not cut

// ---- Llama (one file each)
// table [v,h], ids [...] of int64 -> [...,h]. A cut v gives P(sum).
DTensor embedding(const DTensor& table, const DTensor& ids, CallSite site = CallSite::here());
// x [...,h], w [h]: x / sqrt(mean(x²) + eps) * w.
DTensor rms_norm(const DTensor& x, const DTensor& w, double eps, CallSite site = CallSite::here());
// x [b,t,...,d] with tables cos, sin [t,d], halves rotated as in Hugging Face's Llama.
DTensor rope(const DTensor& x, const DTensor& cos, const DTensor& sin,
             CallSite site = CallSite::here());
// q [b,t,g,r,d], k and v [b,s,g,d] -> [b,t,g,r,d]: softmax(q kᵀ / sqrt(d)) v per head group g of r
// query heads. Causal: query i (global) sees keys up to i + query_offset.
struct AttentionOptions {
  bool causal = true;
  int64_t query_offset = 0;
};
DTensor attention(const DTensor& q, const DTensor& k, const DTensor& v,
                  const AttentionOptions& options = {}, CallSite site = CallSite::here());
// logits [...,v], targets [...] of int64 -> scalar: sum of -log softmax(logits)[target] over the
// valid elements, divided by their global count. P(sum) on every cut dim.
struct CrossEntropyOptions {
  std::optional<int64_t> ignore_index = {};
  std::optional<int64_t> count = {};  // divisor; with ignore_index and without it, one all-reduce
  bool sharded_classes = false;       // asks for the row with v cut: two all-reduces
};
DTensor cross_entropy(const DTensor& logits, const DTensor& targets,
                      const CrossEntropyOptions& options = {}, CallSite site = CallSite::here());

}  // namespace dtensor

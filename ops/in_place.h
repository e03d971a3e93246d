// Ops that write into their first operand: its memory, so that views of it and tensors that it is a
// view of see the values. They are the ops of the same name without the underscore, by the same
// rules; the operand written is never moved, under no policy, and keeps dtype, shape and layout:
// PlacementError where only a move of it would fit.
//
// Under a recorded graph the tensor written is from then on what the op made of it. Saved tensors
// that were written are an Error in backward; so is the use of another view of the memory written,
// whose gradient would not be that of its values. ArgumentError: writing into a leaf that requires
// grad, or into a view of one, while a graph is recorded; what wants a gradient into a view of a
// tensor without graph; into a tensor that repeats elements (expand). PlacementError: into what a
// redistribute without messages made in the memory of a tensor that is placed otherwise.

#pragma once

#include <functional>
#include <string_view>

#include "dtensor/base/call_site.h"
#include "dtensor/ops/unary.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

void add_(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
void add_(const DTensor& a, double b, CallSite site = CallSite::here());
void sub_(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
void sub_(const DTensor& a, double b, CallSite site = CallSite::here());
void mul_(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
void mul_(const DTensor& a, double b, CallSite site = CallSite::here());
void div_(const DTensor& a, const DTensor& b, CallSite site = CallSite::here());
void div_(const DTensor& a, double b, CallSite site = CallSite::here());
void clamp_(const DTensor& a, const ClampOptions& range, CallSite site = CallSite::here());
void masked_fill_(const DTensor& a, const DTensor& mask, double number,
                  CallSite site = CallSite::here());
// A P(sum) tensor gets the value at coordinate 0.
void fill_(const DTensor& a, double value);
void zero_(const DTensor& a);
// From a tensor of the same shape.
void copy_(const DTensor& a, const DTensor& from, CallSite site = CallSite::here());

namespace ops {
// What makes an in-place op of another one: f(a) is computed and written into a. For ops without a
// function here: in_place("exp", a, [&] { return exp(a); }).
void in_place(std::string_view op, const DTensor& a, const std::function<DTensor()>& f);
}  // namespace ops

}  // namespace dtensor

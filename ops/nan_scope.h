// NanScope: while it lives, the first op that makes a NaN of operands without one is an Error. It
// names the op, where in the program it was called (in backward: what ran it), the rank, and the
// element's global index. Where only some ranks hold the element it ends the mesh's Comm with this
// message, so that the others get an Error as well. Results with a NaN from operands that have one
// pass: they are not the first. Every op's results are read, so it is for searching.
//   const ops::NanScope scope;
//   model(x).backward();

#pragma once

#include "dtensor/base/context.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor::ops {

class NanScope {
 public:
  NanScope();

 private:
  ScopedSlot<RuleTap> scope_;
};

}  // namespace dtensor::ops

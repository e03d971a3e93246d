// Two handles of one memory. Internal.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor::internal {

// Marks y as a view of x where it lies in x's memory, and as borrowed where x is: what is written
// into one changes the other, and gradients do not pass between them.
inline void mark_alias(const DTensor& x, const DTensor& y) {
  if (!x.has_local() || !y.has_local()) return;
  if (x.local_tensor().storage() != y.local_tensor().storage()) return;
  y.impl()->view = true;
  y.impl()->made_version = y.local_tensor().storage()->version();
  y.impl()->borrowed = y.impl()->borrowed || x.impl()->borrowed;
}

}  // namespace dtensor::internal

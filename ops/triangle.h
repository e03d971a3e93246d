// Triangles of matrices [...,m,n]. Rows and columns may be cut: indices are global. Linear.

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Keeps elements [..,i,j] with j - i <= diagonal (tril) or j - i >= diagonal (triu); 0 elsewhere.
DTensor tril(const DTensor& a, int64_t diagonal = 0, CallSite site = CallSite::here());
DTensor triu(const DTensor& a, int64_t diagonal = 0, CallSite site = CallSite::here());

}  // namespace dtensor

// Dropout (Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, "Dropout: a simple way to
// prevent neural networks from overfitting", JMLR 15, 2014), with what stays scaled up.

#pragma once

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// Every element is 0 with probability p, else a / (1 - p). Takes the next stream of the Context's
// Generator, on every rank alike: which elements stay depends on (seed, stream, global index)
// alone, so the same do on every mesh and by every placement. Linear: passes P(sum) on. The
// gradient has the same zeros. ArgumentError for p outside [0, 1].
DTensor dropout(const DTensor& a, double p, CallSite site = CallSite::here());

}  // namespace dtensor

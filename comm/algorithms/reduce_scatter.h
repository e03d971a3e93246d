// The reductions, over a Session. Every rank gets its segment from all others and reduces it in the
// order of ranks: the bits do not depend on who reduces, nor on the algorithm.

#pragma once

#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/call.h"

namespace dtensor::comm {

void reduce_scatter(Session& session, const Call& call);
void all_reduce(Session& session, const Call& call);
void reduce(Session& session, const Call& call);

}  // namespace dtensor::comm

// The traces of all ranks beside each other (dtensor/comm/trace.h): where each is on each Comm, and
// who waits for whom.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dtensor/comm/trace.h"

namespace dtensor::tools {

// One rank on one Comm. Ranks are of the world.
struct RankRow {
  int rank = 0;
  std::optional<comm::CallRecord> at;  // the first call that is not done, else the last; nullopt:
                                       // no call, or no trace
  bool traced = false;
  bool inside = false;         // in that call, or failed in it
  bool differs = false;        // others make another call at this place
  double seconds = 0;          // in the call, or since the last one ended
  std::vector<int> waits_for;  // who has not come to this call
  double late_seconds = 0;     // by how much it came later than the first rank, over all kept calls
};

struct CommTable {
  std::string run_id;
  int64_t generation = 0;
  std::string comm;
  std::string error;          // of the first trace that has one
  std::vector<RankRow> rows;  // one for each member, in the order of the Comm
};

// By run, generation, and comm. Of two traces of one rank the later counts.
std::vector<CommTable> merge(std::vector<comm::Trace> traces);

// Who is waited for, and waits for nobody on any Comm: there the search begins. Where all of them
// wait, one circle of ranks, each waiting for the next.
struct Origin {
  std::vector<int> ranks;
  bool circle = false;
};
Origin origin_of(const std::vector<CommTable>& tables);

}  // namespace dtensor::tools

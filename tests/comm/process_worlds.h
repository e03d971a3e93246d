// Contract suites whose ranks are processes. A suite's program runs in every process, so that all
// make the same worlds in the same order; in a world that is smaller than their number, those
// beyond its size have no part. A test starts the program.

#pragma once

#include <memory>
#include <string>

#include "dtensor/comm/store.h"

namespace dtensor::testing {

// In the program of a rank.
struct ProcessWorld {
  int rank = 0;
  int size = 1;
  std::string directory;  // of a store that is this world's alone

  bool has_part() const { return rank < size; }
  // Returns when all of its ranks have called it.
  void leave_together(comm::Store& store) const;
};
ProcessWorld next_process_world(int size);

// In the test: runs the program (its path among the runfiles) as so many ranks; its exit status. In
// the ranks DTENSOR_COMM is `comm`.
int run_suite_in_processes(const std::string& program, int ranks, const std::string& comm);

}  // namespace dtensor::testing

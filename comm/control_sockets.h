// The Control of ranks that are processes: one TCP connection per pair, and one thread per process
// that answers for its rank, so that a slow rank answers and a killed or stopped one does not.
//
// A closed connection is a proved loss at once; silence beyond `liveness` is a suspected one.
// Verdicts: a proposal goes to the lowest living member, but not to one that it accuses of silence;
// the first that arrives there stands, and is told to all members, who tell each other again. So
// all members get one verdict unless a second rank fails while the first one's verdict is on its
// way. Who accuses a rank that it cannot hear may be cut off itself: where there is a third rank,
// that one decides, and those that do hear the accused wait a moment before they believe it, and
// not at all if the accuser goes meanwhile.

#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "dtensor/comm/control.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {

struct ControlSocketsOptions {
  int rank = 0;
  std::chrono::milliseconds liveness{10'000};
};

// `peers` are the connections, by rank (dtensor/comm/control_mesh.h).
std::shared_ptr<Control> make_control_sockets(std::vector<internal::Fd> peers,
                                              const ControlSocketsOptions& options);

}  // namespace dtensor::comm

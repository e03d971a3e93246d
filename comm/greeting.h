// Greeting: the first message between each two ranks of a world, by its Transport: shows that the
// rank on the other end is who it should be, and that messages go both ways.

#pragma once

#include <string>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm::internal {

// Called by all ranks. `token` is equal on all; a stranger does not know it. Error naming a rank
// that did not greet by the deadline, or in whose place a stranger is. `backend` is for messages.
void greet_all(Transport& transport, const std::string& backend, const std::string& token,
               Deadline deadline);

// After it, where there is a secret: every rank gives every other a challenge, and answers theirs.
// Error naming a rank that does not know the secret.
void challenge_all(Transport& transport, const std::string& token, const Secret& secret,
                   Deadline deadline);

}  // namespace dtensor::comm::internal

// All backends that this build has. A target of its own (//comm:backends), so that who names one
// backend links only that one.

#pragma once

namespace dtensor::comm {

// Makes every backend known to comm::create and from_environment.
void register_all();

}  // namespace dtensor::comm

// Rendezvous: the ranks of a world find each other in a Store, compare what must be equal, and
// agree on the id of their run. A world that does not come together is an error on every rank that
// came, never a smaller world.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {

// The version of this library, as ranks compare it.
inline constexpr std::string_view kLibraryVersion = "0.1.0";

struct Participant {
  int rank = 0;
  int size = 1;
  int64_t generation = 0;
  std::string backend;          // "gloo"
  std::string backend_version;  // of the library beneath
  std::string library_version = std::string(kLibraryVersion);
  std::string host = this_host();  // which machine
  std::string address;             // numeric, where the others reach this rank

  // Names this machine, since its start.
  static std::string this_host();
};

struct Meeting {
  std::string run_id;      // "<UTC time>-<random>", equal on all ranks
  std::string key_prefix;  // of this world's keys in the store
  std::vector<Participant> participants;
};

// Called by every rank of the world. Throws CommError: Timeout naming the ranks that did not come
// by the deadline; Mismatch where sizes, versions or backends differ, where a rank came twice,
// where this generation is over, and where a loopback address is given to another machine.
Meeting meet(Store& store, const Participant& me, Deadline deadline);

}  // namespace dtensor::comm

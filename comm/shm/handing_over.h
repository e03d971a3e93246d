// Handing over: the processes of one host give each other descriptors of their memory.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm::shm {

// How one rank is asked for its memory. Every user of the host can see the name; the key is known
// to whom the rank tells it, and random.
struct Party {
  std::string name;
  std::string key;
};

// Listens under a name that no file system has. Gives to processes of this user that know its key,
// once to each, and takes from those that know theirs.
class HandOver {
 public:
  // Error where the system refuses.
  HandOver();
  const Party& me() const { return me_; }

  // Gives `mine` to each of `others`, and returns theirs in that order. All of them call it at one
  // time. Error when the deadline passes, when one of them is gone or cannot give or take, and when
  // given_up() says that one of them has thrown; it is asked again and again while this waits.
  std::vector<internal::Fd> swap(const internal::Fd& mine, const std::vector<Party>& others,
                                 Deadline deadline, const std::function<bool()>& given_up = {});

 private:
  class Swap;

  Party me_;
  internal::Fd listener_;
};

}  // namespace dtensor::comm::shm

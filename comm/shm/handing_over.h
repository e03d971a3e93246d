// Handing over: the processes of one host give each other descriptors of their memory.

#pragma once

#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm::shm {

// Listens under a name that no file system has, known to whom it is told.
class HandOver {
 public:
  // Error where the system refuses.
  HandOver();
  const std::string& name() const { return name_; }

  // Gives `mine` to each of `names`, and returns theirs in that order. All of them call it at one
  // time. Error when the deadline passes, or one of them is gone.
  std::vector<internal::Fd> swap(const internal::Fd& mine, const std::vector<std::string>& names,
                                 Deadline deadline);

 private:
  std::string name_;
  internal::Fd listener_;
};

}  // namespace dtensor::comm::shm

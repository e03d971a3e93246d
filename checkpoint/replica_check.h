// ReplicaCheck: do the ranks that hold the same part of a tensor have the same values there? Each
// rank's record says what it has; nobody is asked. Internal.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dtensor/base/shape.h"
#include "dtensor/checkpoint/record.h"

namespace dtensor::checkpoint {

struct DifferingReplicas {
  std::string tensor;
  std::string
      text;  // "tensor "w" [16,4]: ... had 2 different values on its holders: ranks 0-2; rank 3"
};

class ReplicaCheck {
 public:
  void add(const RecordTensor& tensor, int rank);
  // By name, one for each part of which there are several values.
  std::vector<DifferingReplicas> differing() const;

 private:
  struct Part {
    Box box;
    std::map<uint32_t, std::vector<int>> ranks;  // by the CRC of what they have
  };
  struct Parts {
    Shape shape;
    std::map<std::vector<int64_t>, Part> by_box;
  };
  std::map<std::string, Parts> tensors_;
};

// {0, 1, 2, 5} -> "0-2, 5"; ascending.
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace dtensor::checkpoint

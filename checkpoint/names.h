// Which stored tensor goes into which of the wanted ones; what is missing, unexpected or of another
// shape is listed all at once. Internal.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/shape.h"
#include "dtensor/checkpoint/state.h"

namespace dtensor::checkpoint {

// What there is: name -> dtype and shape; further names of a stored tensor.
struct StoredNames {
  struct Kind {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Kind> tensors;
  std::map<std::string, std::string> aliases;
};

struct MatchOptions {
  // May a tensor of one floating dtype be stored as another?
  bool converts = false;
  // Under which name is a wanted tensor stored? Where not given, under its own.
  std::function<std::string(const std::string&)> stored_as = {};
  // Stored names that nobody has to want.
  std::function<bool(const std::string&)> optional = {};
};

// The stored name for every wanted tensor, in order. CheckpointError beginning with `where`
// otherwise.
std::vector<std::string> match_names(const NamedState& wanted, const StoredNames& stored,
                                     const std::string& where, const MatchOptions& options = {});

}  // namespace dtensor::checkpoint

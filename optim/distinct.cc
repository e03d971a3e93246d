#include "dtensor/optim/distinct.h"

#include <unordered_set>

namespace dtensor::optim {

std::vector<nn::Parameter> distinct(const std::vector<nn::Parameter>& parameters) {
  std::vector<nn::Parameter> each;
  std::unordered_set<const void*> seen;
  each.reserve(parameters.size());
  for (const nn::Parameter& p : parameters) {
    if (!p.defined() || seen.insert(p.id()).second) each.push_back(p);
  }
  return each;
}

}  // namespace dtensor::optim

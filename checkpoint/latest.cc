#include "dtensor/checkpoint/latest.h"

#include "dtensor/checkpoint/contents.h"

namespace dtensor::checkpoint {

Latest latest(const std::string& run_dir) {
  const Found found = find_complete(run_dir);
  Latest out;
  if (found.complete) {
    out.step = found.complete->attempt.step;
    out.directory = found.complete->attempt.path;
  }
  for (const Examined& examined : found.passed_over) out.passed_over.push_back(examined.reason());
  return out;
}

}  // namespace dtensor::checkpoint

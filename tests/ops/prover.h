// The prover of the rules: every op of the registry under every combination of placements over
// {R, S(d), P(sum)}, forward and backward, against the same op on no mesh.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/ops/registry.h"

namespace dtensor::testing {

struct ProverOptions {
  // Of all combinations this many, chosen by a fixed seed; 0: all.
  int sample = 0;
  // Looks for refused combinations that would have been right (1-D meshes only).
  bool missing_rows = true;
};

struct ProverReport {
  int taken = 0;
  int refused = 0;
  std::vector<std::string> wrong;    // a row whose result or gradient differs
  std::vector<std::string> missing;  // a refused one whose pieces, computed alone, are a result
};

// Called by every rank of the mesh.
ProverReport prove(const ops::OpEntry& entry, const DeviceMesh& mesh, const ProverOptions& options);

}  // namespace dtensor::testing

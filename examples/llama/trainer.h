// Trainer: one rank's part of a training run. The same code on one process and on any mesh.

#pragma once

#include "dtensor/examples/llama/train_options.h"
#include "dtensor/mesh/device_mesh.h"

namespace dtensor::examples {

// Called on every rank. Throws dtensor::Error.
void train(const TrainOptions& options, const DeviceMesh& mesh);

}  // namespace dtensor::examples

// How a Llama lies on a mesh: all parallelism of this example stands in this file.

#pragma once

#include <optional>
#include <string>

#include "dtensor/base/dtype.h"
#include "dtensor/examples/llama/model.h"
#include "dtensor/mesh/device_mesh.h"

namespace dtensor::examples {

enum class DataParallel { kFullyShard, kReplicate };

struct ParallelOptions {
  DataParallel data_parallel = DataParallel::kFullyShard;
  std::optional<DType> param_dtype = {};  // computed in; the parameters stay float32
  bool overlaps = true;                   // false, for measuring: all communication is waited for
};

// ArgumentError for a dim that is named otherwise than dp or tp.
void check_mesh(const MeshLayout& mesh);

// Places the model on a mesh whose dims are named dp, tp, or both; on no mesh only the dtype
// matters. ArgumentError for another name.
void parallelize(Llama& model, const DeviceMesh& mesh, const ParallelOptions& options);

// A batch [B,T], the same on every rank, cut by rows over dp.
DTensor place_batch(const Tensor& batch, const DeviceMesh& mesh);

}  // namespace dtensor::examples

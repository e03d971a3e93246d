#include "dtensor/examples/llama/parallel.h"

#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tp/parallelize_module.h"

namespace dtensor::examples {
namespace {

bool has_dim(const DeviceMesh& mesh, const std::string& name) {
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (mesh.layout().name(d) == name) return true;
  }
  return false;
}

// Vocabulary and feed-forward cut over tp, attention by whole groups of heads; the logits stay cut
// by class up to the loss.
tp::Plan tensor_parallel_plan() {
  return {{"model.embed_tokens", tp::Rowwise{}},
          {"model.layers.*.self_attn.{q,k,v}_proj", tp::Colwise{}},
          {"model.layers.*.self_attn.o_proj", tp::Rowwise{}},
          {"model.layers.*.mlp.{gate,up}_proj", tp::Colwise{}},
          {"model.layers.*.mlp.down_proj", tp::Rowwise{}},
          {"lm_head", tp::Colwise{}}};
}

}  // namespace

void check_mesh(const MeshLayout& mesh) {
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (mesh.name(d) == "dp" || mesh.name(d) == "tp") continue;
    throw ArgumentError("--mesh: dim \"" + mesh.name(d) +
                        "\" is not known here; name dims dp and tp");
  }
}

void parallelize(Llama& model, const DeviceMesh& mesh, const ParallelOptions& options) {
  check_mesh(mesh.layout());
  if (mesh.defined()) nn::replicate(model, mesh);
  if (has_dim(mesh, "tp")) tp::parallelize_module(model, mesh["tp"], tensor_parallel_plan());
  if (has_dim(mesh, "dp") && options.data_parallel == DataParallel::kFullyShard) {
    const fsdp::Options shard{
        .param_dtype = options.param_dtype,
        .reduce_dtype = DType::kFloat32,
        .overlap = options.overlaps ? fsdp::Overlap::kYes : fsdp::Overlap::kNone};
    for (auto& layer : model.layers()) fsdp::fully_shard(*layer, mesh["dp"], shard);
    fsdp::fully_shard(model, mesh["dp"], shard);
  } else if (options.param_dtype) {
    nn::mixed_precision(model, *options.param_dtype);
  }
}

DTensor place_batch(const Tensor& batch, const DeviceMesh& mesh) {
  if (!mesh.defined()) return DTensor(batch);
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate());
  for (int d = 0; d < mesh.ndim(); ++d) {
    if (mesh.layout().name(d) == "dp") placements[static_cast<size_t>(d)] = Shard(0);
  }
  return distribute(batch, mesh, placements);
}

}  // namespace dtensor::examples

#include "dtensor/placement/step_cost.h"

#include <algorithm>
#include <vector>

namespace dtensor {
namespace {

int64_t ranks_at(const MeshLayout& mesh, const std::vector<PinnedDim>& only) {
  int64_t count = mesh.size();
  for (const PinnedDim& p : only) count /= mesh.size(p.mesh_dim);
  return count;
}

int64_t group_size(const ReshardStep& step) {
  if (step.is_between_meshes()) return static_cast<int64_t>(step.ranks->size());
  int64_t n = 1;
  for (const int m : step.mesh_dims) n *= step.from.mesh().size(m);
  return n;
}

int64_t messages_of(const ReshardStep& step) {
  const int64_t n = group_size(step);
  if (step.kind == StepKind::kAllReduce) return 2 * (n - 1);
  if (step.kind == StepKind::kBroadcast) {
    int64_t rounds = 0;
    while ((int64_t{1} << rounds) < n) ++rounds;
    return rounds;
  }
  if (!step.is_between_meshes()) return n - 1;
  const int64_t a = ranks_at(step.from.mesh(), step.from_only);
  const int64_t b = ranks_at(step.to.mesh(), step.to_only);
  return (std::max(a, b) + std::min(a, b) - 1) / std::min(a, b);
}

Link slowest(const ReshardStep& step, const Topology& topology) {
  if (step.is_between_meshes()) return topology.between_meshes;
  Link link{.bytes_per_second = 0, .latency_seconds = 0};
  for (const int m : step.mesh_dims) {
    const Link& one = topology.mesh_dims[static_cast<size_t>(m)];
    const bool first = m == step.mesh_dims.front();
    link.bytes_per_second =
        first ? one.bytes_per_second : std::min(link.bytes_per_second, one.bytes_per_second);
    link.latency_seconds = std::max(link.latency_seconds, one.latency_seconds);
  }
  return link;
}

}  // namespace

double seconds_of(const ReshardStep& step, const CostModel& model) {
  if (step.kind == StepKind::kLocal || step.payload == 0) return 0;
  const Link link = slowest(step, model.topology);
  const auto receivers = static_cast<double>(ranks_at(step.to.mesh(), step.to_only));
  const double bytes =
      static_cast<double>(step.payload) / receivers * static_cast<double>(model.element_bytes);
  return static_cast<double>(messages_of(step)) * link.latency_seconds +
         bytes / link.bytes_per_second;
}

}  // namespace dtensor

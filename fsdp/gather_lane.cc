#include "dtensor/fsdp/gather_lane.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/base/context.h"

namespace dtensor::fsdp {
namespace {

// A slot of the Context. A lane goes with the last group that uses it.
struct Lanes {
  std::vector<std::weak_ptr<const GatherLane>> live;
  std::map<std::string, int64_t> made;  // by the text of a mesh: no two have one name
};

}  // namespace

std::shared_ptr<const GatherLane> GatherLane::of(const DeviceMesh& mesh) {
  auto& lanes = Context::current().slot<Lanes>();
  std::erase_if(lanes.live, [](const auto& lane) { return lane.expired(); });
  for (const auto& entry : lanes.live) {
    if (auto lane = entry.lock(); lane != nullptr && lane->of_ == mesh) return lane;
  }
  const int64_t number = lanes.made[to_string(mesh.layout())]++;
  const std::shared_ptr<const GatherLane> lane(new GatherLane(mesh, number));
  lanes.live.push_back(lane);
  return lane;
}

GatherLane::GatherLane(const DeviceMesh& mesh, int64_t number) : of_(mesh), gathers_(mesh) {
  // Nothing is sent, or not from here.
  if (mesh.size() == 1 || !mesh.coordinate()) return;
  std::vector<int> all(static_cast<size_t>(mesh.root().size()));
  std::iota(all.begin(), all.end(), 0);
  root_ = mesh.root().group(
      all, "fsdp gathers " + std::to_string(number) + " of " + to_string(mesh.layout()));
  gathers_ = DeviceMesh(*root_, mesh.layout());
}

void GatherLane::agree(std::span<const int> dims, std::string_view what) const {
  if (root_ == nullptr) return;
  comm::Comm& group = gathers_.group(dims);
  if (group.size() > 1) group.barrier({.label = what}).wait();
}

}  // namespace dtensor::fsdp

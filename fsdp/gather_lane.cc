#include "dtensor/fsdp/gather_lane.h"

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/base/context.h"

namespace dtensor::fsdp {
namespace {

// How many lanes this rank has made on a root Comm, by the text of the mesh: a slot of the Context.
// Ranks that share a mesh count alike, so that no two lanes have one name and no message is needed;
// a rank that has joined a new world counts there as those who were in the old one.
struct LaneCount {
  std::map<std::weak_ptr<comm::Comm*>, std::map<std::string, int64_t>, std::owner_less<>> made;
};

}  // namespace

GatherLane::GatherLane(const DeviceMesh& mesh) : gathers_(mesh) {
  // Nothing is sent, or not from here.
  if (mesh.size() == 1 || !mesh.coordinate()) return;
  const std::string layout = to_string(mesh.layout());
  auto& made = Context::current().slot<LaneCount>().made;
  std::erase_if(made, [](const auto& entry) { return entry.first.expired(); });
  const int64_t number = made[mesh.root().handle()][layout]++;
  std::vector<int> all(static_cast<size_t>(mesh.root().size()));
  std::iota(all.begin(), all.end(), 0);
  root_ = mesh.root().group(all, "fsdp gathers " + std::to_string(number) + " of " + layout);
  gathers_ = DeviceMesh(*root_, mesh.layout());
}

void GatherLane::agree(std::span<const int> dims, std::string_view what) const {
  if (root_ == nullptr) return;
  comm::Comm& group = gathers_.group(dims);
  if (group.size() > 1) group.barrier({.label = what}).wait();
}

}  // namespace dtensor::fsdp

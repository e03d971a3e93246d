#include "dtensor/checkpoint/host_group.h"

#include <fmt/core.h>

#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/philox.h"
#include "dtensor/comm/rendezvous.h"

namespace dtensor::checkpoint {
namespace {

// The Context's slot: a group of the same ranks and name cannot be made twice.
struct GroupsMade {
  int64_t count = 0;
};

}  // namespace

std::unique_ptr<comm::Comm> host_group(const World& world, const std::string& host) {
  if (world.comm() == nullptr || world.size() == 1) return nullptr;
  auto& made = Context::current().slot<GroupsMade>();
  const std::string name = world.told_by_first(fmt::format("checkpoint.load.{}", made.count));
  ++made.count;
  int64_t mine =
      static_cast<int64_t>(stream_of(host.empty() ? comm::Participant::this_host() : host));
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  world.comm()
      ->all_gather_v(comm::ConstBuffer{&mine, 1, DType::kInt64},
                     comm::Buffer{all.data(), std::ssize(all), DType::kInt64},
                     comm::Segments(std::vector<int64_t>(all.size(), 1)), {.label = "checkpoint"})
      .wait();
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) {
    if (all[static_cast<size_t>(r)] == mine) ranks.push_back(r);
  }
  if (ranks.size() == 1) return nullptr;
  return world.comm()->group(ranks, name);
}

}  // namespace dtensor::checkpoint

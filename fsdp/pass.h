// Pass: one forward of a group and the backward that belongs to it. The graph keeps it alive.

#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/fsdp/gathered.h"

namespace dtensor::fsdp {

class Group;

struct Pass {
  Pass(std::shared_ptr<Group> group, std::shared_ptr<Group> root, std::vector<Member> members,
       const DeviceMesh& mesh, Gathered::Counted counted)
      : group(std::move(group)),
        root(std::move(root)),
        gathered(std::move(members), mesh, counted) {}

  std::shared_ptr<Group> group;
  std::shared_ptr<Group> root;
  Gathered gathered;
  std::optional<DType> reduce_dtype;  // of gradients on the wire; those of the members
  std::vector<size_t> trainable;      // members whose gradient is wanted; the others are frozen
  std::vector<size_t> frozen;
  int open_inputs = 0;    // inputs of the module whose gradient is not complete yet
  bool reshards = false;  // freed after forward, gathered again for backward
  bool done = false;      // its gradients are reduced
};

}  // namespace dtensor::fsdp

// Gathered: the gathered forms of a group's parameters for one forward and its backward. Their
// memory comes and goes (Storage::release and refill), so that tensors saved for backward stay
// valid. One Move, that is one Comm call, per gather.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/fsdp/gather_lane.h"
#include "dtensor/fsdp/stats.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"
#include "dtensor/tensor/move.h"

namespace dtensor::fsdp {

// How a parameter is gathered.
struct Member {
  nn::Parameter parameter;
  Layout gathered;             // its layout with R on the dims of fully_shard
  std::optional<Layout> kept;  // what stays between forward and backward; none: its shard
  DType dtype = DType::kFloat32;
};

class Gathered {
 public:
  enum class Counted { kNo, kYes };  // in Stats
  Gathered(std::vector<Member> members, std::shared_ptr<const GatherLane> lane, Counted counted);
  ~Gathered();
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  // Issues the gather of every member that has no memory now. The values are those of the first
  // gather: Error naming a parameter that was written since. Where it throws before anything was
  // sent it may be called again; after a gather that failed it throws Error.
  void start();
  void finish();  // waits for it
  // Frees what is not the parameter's own memory. Waits for a gather under way.
  void release(size_t index);
  void release_all();
  // Frees all but the pieces to keep, from which the next start() gathers.
  void shrink();
  bool is_empty() const;  // no member has memory
  // Is every member gathered, and no parameter written since?
  bool is_current() const;

  const std::vector<Member>& members() const { return members_; }
  // Valid from the first start() on, also while it has no memory. Undefined on a rank outside the
  // mesh.
  const Tensor& tensor(size_t index) const { return pieces_[index].tensor; }

  std::string name = {};  // in a trace
  bool stays = false;     // is not freed by a pass: until it is out of date, or told to go

 private:
  struct Piece {
    Tensor tensor;
    bool held = false;
    bool arriving = false;  // its gather is under way
    bool own = true;        // false: the parameter's own memory, where nothing is to be gathered
    Tensor kept;            // undefined: gathered from the parameter
    // Of the shard at the first gather.
    std::shared_ptr<Storage> shard;
    uint64_t version = 0;
  };
  void check_unchanged(size_t index, const Tensor& shard);
  void prepare(size_t index, std::vector<MoveItem>& items);
  void free_memory(Piece& piece);
  void free_all();
  void abandon_arriving();
  void count_if_empty();
  int64_t size_bytes() const;

  std::shared_ptr<const GatherLane> lane_;
  std::vector<Member> members_;
  std::vector<Piece> pieces_;
  std::optional<Move> move_;
  std::chrono::steady_clock::time_point issued_;
  std::shared_ptr<Stats> stats_;
  bool counted_ = false;
  bool counted_now_ = false;
  bool failed_ = false;  // a gather: what tensors saved of it is lost
};

}  // namespace dtensor::fsdp

// Move: runs ReshardPlans on local tensors, below autograd, on one mesh or between two. A list of
// tensors moves in one Comm call per step where their plans have the same kinds of steps on the
// same groups (three all-reduces or more in two calls, a reduce-scatter and an all-gather); dtypes
// may differ. Works on the tensors' memory where it can: nothing is packed where the pieces that a
// rank sends or receives lie one after the other.
//
// With a wire dtype what communicates is cast before the first collective of its plan, and the
// result cast back. So every element of the result was rounded to the wire dtype once, whether it
// crossed the wire or stayed: replicas are alike. In a reduction every rank's term is rounded, the
// terms are summed as the Comm does (16-bit types in float32, rounded once to the wire dtype). A
// plan that sends nothing, on any rank, rounds nothing.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {

struct MoveItem {
  Tensor local;  // this rank's piece of `from`; may be strided. Undefined outside its mesh
  Layout from;
  Layout to;
  // Contiguous memory for the result, where given. Its version stays: it is memory that had these
  // values before, or that nobody has read.
  Tensor into = {};
  std::string label = {};  // a parameter's name; the first is the label of the Comm call
  // What is sent, where another dtype than the tensor's. ArgumentError unless both are floating.
  std::optional<DType> wire_dtype = {};
  DType dtype = DType::kFloat32;  // where `local` is undefined
};

struct MoveOptions {
  std::string_view op = "redistribute";
  Cause cause = Cause::kExplicit;
  std::string_view of = {};
  CallSite site = {};
};

class Move {
 public:
  // Enters the ledger and issues what it can without waiting. Called by every rank of the mesh, and
  // between two meshes by those of both; on others it does nothing but check.
  //   mesh   that of the items' `from` or, where their `from` has no DeviceMesh, of `to`; what goes
  //          between meshes moves on its group_of_ranks()
  // PlacementError inside NoCommunication, where anything would be sent.
  static Move start(const DeviceMesh& mesh, std::vector<MoveItem> items,
                    const MoveOptions& options);
  // Does no rank send anything for an item?
  bool is_free(size_t item) const;
  // Waits and returns the new local tensors, contiguous but where one aliases its input: where
  // nothing had to move and no `into` was given; undefined outside the mesh of `to`. Plans of
  // several communicating steps go on here. Once; throws CommError.
  std::vector<Tensor> finish();
  // Without blocking: would finish() return at once, but for steps that are not issued yet?
  bool ready() const;

  // A Move that goes without finish() lets its messages run out; their memory is kept.
  Move(Move&&) noexcept;
  Move& operator=(Move&&) noexcept;
  ~Move();

 private:
  struct State;
  explicit Move(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// start and finish of one tensor.
Tensor move_local(const DeviceMesh& mesh, const MoveItem& item, const MoveOptions& options);

// What a move of one tensor would do, in elements.
struct MoveForecast {
  bool is_free = true;        // no rank sends anything
  bool shares_memory = true;  // without `into` this rank's result is its input
  int64_t payload = 0;
  int64_t most_received = 0;  // by the rank that receives most
};
MoveForecast forecast_move(const Layout& from, const Layout& to, const DeviceMesh& mesh);

}  // namespace dtensor

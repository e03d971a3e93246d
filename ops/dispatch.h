// Running an op: its rule gives the layouts, silent moves bring the inputs there, the kernel runs
// on this rank's pieces, and a node is recorded. Every rank of the mesh runs the same ops in the
// same order; what is decided here depends on layouts only, so an error is the same on all ranks.

#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/base/inline_vector.h"
#include "dtensor/base/small_function.h"
#include "dtensor/placement/rule.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// What a kernel sees besides its operands: where this rank's pieces lie in the global tensors.
class KernelInfo {
 public:
  KernelInfo(const Rule& rule, std::span<const DTensor> inputs, const Coordinate& at)
      : rule_(rule), inputs_(inputs), at_(at) {}
  // The range of a letter's global indices that this rank holds.
  Range range(char letter) const;
  // The global length of a letter.
  int64_t size(char letter) const;
  // The operand itself, for ops that have messages inside.
  const DTensor& input(int index) const { return inputs_[static_cast<size_t>(index)]; }

 private:
  const Rule& rule_;
  std::span<const DTensor> inputs_;
  const Coordinate& at_;
};

// This rank's pieces of the operands.
class Pieces {
 public:
  explicit Pieces(std::span<const DTensor> inputs) : inputs_(inputs) {}
  size_t size() const { return inputs_.size(); }
  const Tensor& operator[](size_t i) const { return inputs_[i].local_tensor(); }
  const Tensor& back() const { return inputs_.back().local_tensor(); }

 private:
  std::span<const DTensor> inputs_;
};

using Tensors = InlineVector<Tensor, 2>;
using DTensors = InlineVector<DTensor, 2>;
// The pieces may be strided or empty; results have the local shapes that the rule gives them.
using Kernel = SmallFunction<Tensors(const KernelInfo&, Pieces)>;
// Inputs after their silent moves, and outputs; gives the gradient function.
using MakeBackward =
    SmallFunction<BackwardFn(std::span<const DTensor> inputs, std::span<const DTensor> outputs)>;

struct OpCall {
  const Rule& rule;
  const Kernel& kernel;
  MakeBackward backward = {};  // none: outputs have no gradient
  bool allow_communicating = false;
  std::optional<DType> dtype = {};  // of the outputs; that of the first input where not given
  std::optional<DType> second_dtype = {};  // of the second output, where it is another (indices)
  CallSite site = {};
  bool twice = false;  // the backward function may be recorded (Node::Options)
  // The rule lives as long as the program (LastingRules): it is known by its address.
  bool lasting = false;
};

// Throws as apply_rule does. Operands on two meshes, or on none beside one on a mesh (scalars
// excepted, which count as R): PlacementError that shows replicate(x, mesh). Under
// RedistributePolicy::kAuto the cheapest fix is made instead. On a rank outside the mesh no kernel
// runs, and the results are handles.
//
// What a rule gives for the Specs of a call is kept in the Context; a call that finds it there
// takes no lock and, in steady state, nothing from the heap.
DTensors run(const OpCall& call, std::span<const DTensor> inputs);
DTensor run1(const OpCall& call, std::span<const DTensor> inputs);
DTensor run1(const OpCall& call, std::initializer_list<DTensor> inputs);

// An op that ran.
struct OpRun {
  std::string_view op;
  const Rule* rule = nullptr;       // nullptr: an irregular op
  std::span<const DTensor> given;   // as the call had them
  std::span<const DTensor> inputs;  // after their moves
  std::span<DTensor> outputs;       // without graph yet
  CallSite site = {};
};
// The Context's slot: sees what runs, and may change it. For the prover of the rules, and for tools
// that list, explain and search.
struct RuleTap {
  std::function<void(Rule&)> see = {};  // the rule of every op, before it is applied
  std::function<void(const OpRun&)> ran = {};
  // What a backward function gave, before it goes on.
  std::function<void(std::string_view op, std::span<DTensor> grads)> gradients = {};
};

// The Context's slot: the tensor that an in-place op writes. It is moved for no op, nor cut by a
// silent move, and results lie like it.
struct FixedOperand {
  DTensor tensor = {};
  std::string_view op = {};  // that writes it
};

// An irregular op of one input whose output layout is found otherwise (views).
struct PlacedCall {
  using Kernel = SmallFunction<Tensor(const Tensor& local, const Shape& local_shape)>;
  using Backward = SmallFunction<DTensor(const DTensor& grad), 96>;

  std::string_view op;
  const Layout& out;
  const Kernel& kernel;
  Backward backward = {};  // a Partial gradient passes
  CallSite site = {};
  bool twice = false;  // as in OpCall
};
DTensor run_placed(const PlacedCall& call, const DTensor& input);

// An operand that brings only a shape and its cuts, without Partial and without memory: for the
// gradients of ops that drop letters.
DTensor shape_operand(const DTensor& like);

// A move made for an op: silent or automatic. Enters the ledger as such, and for which op.
enum class MoveReason { kSilent, kAutomatic };
DTensor move_for_op(const DTensor& t, const Layout& to, MoveReason reason, std::string_view op,
                    CallSite site);

// For an error that only ranks which hold some element know: ends the root Comm of the mesh with
// `text`, so that the other ranks, which go on to their next collective, get a CommError (Aborted)
// that names this rank and says the same. Nothing where every rank holds all of `tensors`, and
// throws alike.
void tell_other_ranks(std::span<const DTensor> tensors, std::string_view text) noexcept;

// ArgumentError naming the op where an operand is undefined, or dtypes differ.
void check_same_dtype(std::string_view op,
                      std::initializer_list<std::reference_wrapper<const DTensor>> inputs);
void check_floating(std::string_view op, const DTensor& x);

// "abc" for three dims, from `first` on; up to kMaxDims.
std::string letters_of(int ndim, char first = 'a');

}  // namespace dtensor::ops

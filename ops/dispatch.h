// Running an op: its rule gives the layouts, silent moves bring the inputs there, the kernel runs
// on this rank's pieces, and a node is recorded.

#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/rule.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// What a kernel sees besides its operands: where this rank's pieces lie in the global tensors.
class KernelInfo {
 public:
  // The range of a letter's global indices that this rank holds.
  Range range(char letter) const;
  // The global length of a letter.
  int64_t size(char letter) const;

  const Rule* rule = nullptr;
  std::span<const Layout> in;
  std::span<const Layout> out;
  Coordinate at;
};

// Operands are this rank's pieces, possibly strided or empty; a result has the shape
// out[i].local_shape(at) and dtype as the op says.
using Kernel = std::function<std::vector<Tensor>(const KernelInfo&, std::span<const Tensor>)>;
// Inputs after their silent moves, and outputs; gives the gradient function.
using MakeBackward =
    std::function<BackwardFn(std::span<const DTensor> inputs, std::span<const DTensor> outputs)>;

struct OpCall {
  const Rule& rule;
  const Kernel& kernel;
  MakeBackward backward = {};  // none: outputs have no gradient
  bool allow_communicating = false;
  CallSite site = {};
};

// Throws as apply_rule does. Operands on two meshes, or on none beside one on a mesh (scalars
// excepted): PlacementError that shows replicate(x, mesh).
std::vector<DTensor> run(const OpCall& call, std::span<const DTensor> inputs);
DTensor run1(const OpCall& call, std::initializer_list<DTensor> inputs);

// A registered op: what the prover, `dtensor rules` and the docs go over.
struct OpEntry {
  std::string name;
  Rule rule;  // with the letters of its sample
  // Random inputs of a small size for the prover: whole tensors and the op applied to DTensors.
  std::vector<Shape> sample_shapes;
  std::vector<DType> sample_dtypes;
  std::function<std::vector<DTensor>(std::span<const DTensor>)> call;
};
// All ops of the library; no registration at static-initialisation time.
const std::vector<OpEntry>& all_ops();

}  // namespace dtensor::ops

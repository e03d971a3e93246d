#include "dtensor/tests/ops/prover.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "dtensor/base/philox.h"
#include "dtensor/ops/ops.h"
#include "dtensor/tensor/distribute.h"

namespace dtensor::testing {
namespace {

using ops::OpEntry;
using ops::SampleOperand;

// Of one operand: placements by mesh dim, and whether levels apply from right to left.
struct Placements : std::vector<Placement> {
  using std::vector<Placement>::vector;
  bool reversed = false;

  Layout layout(const MeshLayout& mesh, const Shape& shape) const {
    Layout result = Layout::replicated(mesh, shape);
    for (int k = 0; k < mesh.ndim(); ++k) {
      const int m = reversed ? mesh.ndim() - 1 - k : k;
      result = result.with(m, (*this)[static_cast<size_t>(m)]);
    }
    return result;
  }
};

// Row-major values of a whole tensor.
struct Whole {
  Shape shape;
  std::vector<double> values;
};

Whole whole_of(const Tensor& t) {
  return {t.shape(), t.to(DType::kFloat64).contiguous().to_vector<double>()};
}

bool close(const Whole& a, const Whole& b, double tolerance) {
  if (!(a.shape == b.shape)) return false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double difference = std::fabs(a.values[i] - b.values[i]);
    if (!(difference <= tolerance * (1.0 + std::fabs(b.values[i])))) return false;
  }
  return true;
}

// A Partial operand is the sum over a leading dim per Partial mesh dim of a leaf that is cut there:
// its parts are any numbers, of both signs, and its gradient reaches a leaf.
struct Operand {
  DTensor leaf;
  DTensor value;
};

std::vector<int> partial_dims(const Placements& placements) {
  std::vector<int> dims;
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_partial()) dims.push_back(static_cast<int>(m));
  }
  return dims;
}

// The parts of an operand, stacked: [mesh sizes of its Partial dims..., shape...]. Their sum is the
// sample.
Tensor parts_of(const SampleOperand& operand, const Tensor& sample, const MeshLayout& mesh,
                const std::vector<int>& dims, uint64_t seed) {
  Shape shape;
  for (const int m : dims) shape.push_back(mesh.size(m));
  const int64_t count = shape.numel();
  for (const int64_t n : operand.shape) shape.push_back(n);
  const int64_t n = operand.shape.numel();
  std::vector<double> parts(static_cast<size_t>(count * n));
  const std::vector<double> values = whole_of(sample).values;
  for (int64_t i = 0; i < n; ++i) {
    double rest = values[static_cast<size_t>(i)];
    for (int64_t p = count - 1; p >= 0; --p) {
      const double part = p == 0 ? rest : philox_normal(seed, 11, static_cast<uint64_t>(p * n + i));
      parts[static_cast<size_t>(p * n + i)] = operand.below > 0 && p > 0 ? std::round(part) : part;
      rest -= parts[static_cast<size_t>(p * n + i)];
    }
  }
  return Tensor::of(std::span<const double>(parts), shape);
}

Operand make_operand(const SampleOperand& operand, uint64_t seed, const DeviceMesh& mesh,
                     const Placements& placements) {
  const Tensor sample = ops::sample_tensor(operand, seed);
  const bool floating = operand.below == 0;
  const std::vector<int> dims = partial_dims(placements);
  Operand made;
  if (dims.empty()) {
    made.leaf = distribute(sample, mesh, placements.layout(mesh.layout(), sample.shape()));
    if (floating && operand.wants_grad) made.leaf.set_requires_grad(true);
    made.value = made.leaf;
    return made;
  }
  const Tensor parts = parts_of(operand, sample, mesh.layout(), dims, seed);
  Placements stacked = placements;
  for (Placement& p : stacked) {
    if (p.is_shard()) p = Shard(p.dim() + static_cast<int>(dims.size()));
  }
  std::vector<int> leading;
  for (size_t k = 0; k < dims.size(); ++k) {
    stacked[static_cast<size_t>(dims[k])] = Shard(static_cast<int>(k));
    leading.push_back(static_cast<int>(k));
  }
  made.leaf = distribute(floating ? parts : parts.to(DType::kInt64), mesh,
                         stacked.layout(mesh.layout(), parts.shape()));
  if (floating && operand.wants_grad) made.leaf.set_requires_grad(true);
  made.value = sum(made.leaf, leading);
  return made;
}

// The gradient of sum(y * weights) in every operand, and y.
struct Reference {
  Whole y;
  Tensor weights;
  std::vector<Whole> grads;  // empty shape and values where none is wanted
};

DTensor weighted(const DTensor& y, const Tensor& weights) {
  const DTensor w(weights);
  return sum(mul(y, y.mesh().defined() ? replicate(w, y.mesh()) : w));
}

Reference reference_of(const OpEntry& entry) {
  std::vector<DTensor> inputs;
  for (const SampleOperand& operand : entry.operands) {
    inputs.emplace_back(ops::sample_tensor(operand, inputs.size()));
    if (operand.below == 0 && operand.wants_grad) inputs.back().set_requires_grad(true);
  }
  const DTensor y = entry.call(inputs);
  Reference reference;
  reference.y = whole_of(y.local_tensor());
  reference.grads.resize(inputs.size());
  if (!y.requires_grad()) return reference;
  reference.weights = ops::sample_tensor({y.shape()}, 99).to(y.dtype());
  weighted(y, reference.weights).backward();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DTensor grad = inputs[i].grad();
    if (grad.defined()) reference.grads[i] = whole_of(grad.local_tensor());
  }
  return reference;
}

std::vector<Placements> placements_of(const SampleOperand& operand, int mesh_ndim) {
  std::vector<Placement> single = {Replicate(), Partial()};
  for (int d = 0; d < operand.shape.ndim(); ++d) single.push_back(Shard(d));
  std::vector<Placements> all = {{}};
  for (int m = 0; m < mesh_ndim; ++m) {
    std::vector<Placements> longer;
    for (const Placements& before : all) {
      for (const Placement p : single) {
        longer.push_back(before);
        longer.back().push_back(p);
      }
    }
    all = std::move(longer);
  }
  const size_t left_to_right = all.size();
  for (size_t i = 0; i < left_to_right; ++i) {
    if (mesh_ndim != 2 || !all[i][0].is_shard() || all[i][0] != all[i][1]) continue;
    all.push_back(all[i]);
    all.back().reversed = true;
  }
  return all;
}

using Combination = std::vector<Placements>;  // one per operand

std::vector<Combination> every_combination(const OpEntry& entry, int mesh_ndim) {
  std::vector<Combination> all = {{}};
  for (const SampleOperand& operand : entry.operands) {
    std::vector<Combination> longer;
    for (const Combination& before : all) {
      for (const Placements& choice : placements_of(operand, mesh_ndim)) {
        longer.push_back(before);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// A sample by a fixed seed: by turns any placements, and those of a row of the op's rule on each
// mesh dim, with an operand now and then left R, or cut from right to left.
class Sampler {
 public:
  Sampler(const OpEntry& entry, int mesh_ndim) : entry_(entry), mesh_ndim_(mesh_ndim) {
    const std::vector<Rule> rules = ops::rules_of(entry);
    if (!rules.empty()) rows_ = signature_of(rules.front()).rows;
    if (!rows_.empty() && rows_.front().in.size() != entry.operands.size()) rows_.clear();
  }

  Combination next() {
    Combination combination;
    if (rows_.empty() || draw(2) == 0) {
      for (const SampleOperand& operand : entry_.operands) {
        const std::vector<Placements> all = placements_of(operand, mesh_ndim_);
        combination.push_back(all[draw(all.size())]);
      }
      return combination;
    }
    combination.resize(entry_.operands.size());
    for (int m = 0; m < mesh_ndim_; ++m) {
      const SignatureRow& row = rows_[draw(rows_.size())];
      for (size_t i = 0; i < combination.size(); ++i) {
        combination[i].push_back(draw(8) == 0 ? Replicate() : row.in[i]);
      }
    }
    const bool reversed = draw(2) == 0;
    for (Placements& placements : combination) placements.reversed = reversed;
    return combination;
  }

 private:
  size_t draw(size_t below) { return philox_at(5, 3, counter_++)[0] % below; }

  const OpEntry& entry_;
  int mesh_ndim_;
  std::vector<SignatureRow> rows_;
  uint64_t counter_ = 0;
};

std::vector<Combination> combinations(const OpEntry& entry, int mesh_ndim, int sample) {
  if (sample == 0) return every_combination(entry, mesh_ndim);
  std::vector<Combination> all;
  Sampler sampler(entry, mesh_ndim);
  for (int i = 0; i < sample; ++i) all.push_back(sampler.next());
  return all;
}

std::string text_of(const OpEntry& entry, const Combination& combination) {
  std::string text = entry.name + (entry.variant.empty() ? "" : " (" + entry.variant + ")");
  for (const Placements& placements : combination) {
    text += " [";
    for (const Placement p : placements) text += to_string(p) + " ";
    text.back() = ']';
    if (placements.reversed) text += " right to left";
  }
  return text;
}

class Prover {
 public:
  Prover(const OpEntry& entry, const DeviceMesh& mesh, const ProverOptions& options)
      : entry_(entry), mesh_(mesh), options_(options), reference_(reference_of(entry)) {
    // Sums of a few dozen f64 products; an op through f32 rounds to 2^-24.
    tolerance_ = entry.name == "cast" ? 1e-6 : 1e-11;
  }

  ProverReport run() {
    for (const auto& combination : combinations(entry_, mesh_.ndim(), options_.sample)) {
      try_one(combination);
    }
    return std::move(report_);
  }

 private:
  void try_one(const Combination& combination) {
    std::vector<Operand> operands;
    std::vector<DTensor> values;
    for (size_t i = 0; i < combination.size(); ++i) {
      operands.push_back(make_operand(entry_.operands[i], i, mesh_, combination[i]));
      values.push_back(operands.back().value);
    }
    DTensor y;
    try {
      y = entry_.call(values);
    } catch (const PlacementError&) {
      ++report_.refused;
      if (options_.missing_rows && mesh_.ndim() == 1) look_for_missing(combination);
      return;
    }
    ++report_.taken;
    if (!close(whole_of(full(y)), reference_.y, tolerance_)) {
      report_.wrong.push_back(text_of(entry_, combination) + " -> " + to_string(y.spec()));
      return;
    }
    if (!reference_.weights.defined()) return;                                       // no gradient
    if (y.spec().has_partial() && y.spec().partial_op() != PartialOp::kSum) return;  // no backward
    weighted(y, reference_.weights).backward();
    for (size_t i = 0; i < operands.size(); ++i) check_gradient(combination, operands[i], i);
  }

  // The gradient of a stacked operand is that of the sum, repeated.
  void check_gradient(const Combination& combination, const Operand& operand, size_t i) {
    const Whole& want = reference_.grads[i];
    if (want.values.empty()) return;
    Whole got{{}, {}};
    if (operand.leaf.grad().defined()) got = whole_of(full(operand.leaf.grad()));
    bool right = !got.values.empty() && got.values.size() % want.values.size() == 0;
    for (size_t at = 0; right && at < got.values.size(); at += want.values.size()) {
      const auto begin = got.values.begin() + static_cast<std::ptrdiff_t>(at);
      const auto length = static_cast<std::ptrdiff_t>(want.values.size());
      right = close({want.shape, {begin, begin + length}}, want, tolerance_);
    }
    if (!right) {
      report_.wrong.push_back(text_of(entry_, combination) + ": gradient of operand " +
                              std::to_string(i));
    }
  }

  // Runs the op on every rank's pieces alone and asks whether the results are a tensor's pieces.
  // Pure: every rank can do it for all.
  void look_for_missing(const Combination& combination) {
    if (mesh_.rank() != mesh_.layout().ranks().front()) return;
    std::vector<Tensor> results;
    for (int r = 0; r < mesh_.size(); ++r) {
      const std::optional<Tensor> result = run_alone(combination, mesh_.layout().coordinate_at(r));
      if (!result) return;
      results.push_back(*result);
    }
    for (const Placements& out : placements_of({reference_.y.shape}, 1)) {
      if (!assembles(results, out)) continue;
      report_.missing.push_back(text_of(entry_, combination) + " -> " + to_string(out[0]));
      return;
    }
  }

  std::optional<Tensor> run_alone(const Combination& combination, const Coordinate& at) const {
    std::vector<DTensor> pieces;
    for (size_t i = 0; i < combination.size(); ++i) {
      const SampleOperand& operand = entry_.operands[i];
      const Placement p = combination[i][0];
      Tensor piece = ops::sample_tensor(operand, i);
      if (p.is_partial()) {
        const Tensor parts = parts_of(operand, piece, mesh_.layout(), {0}, i);
        piece = parts.narrow(0, at[0], 1).reshape(operand.shape);
        if (operand.below > 0) piece = piece.to(DType::kInt64);
      } else if (p.is_shard()) {
        const Range range = combination[i].layout(mesh_.layout(), operand.shape).range(p.dim(), at);
        piece = piece.narrow(p.dim(), range.begin, range.size());
      }
      pieces.emplace_back(piece);
    }
    try {
      return entry_.call(pieces).local_tensor();
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  bool assembles(const std::vector<Tensor>& results, const Placements& out) const {
    const Placement p = out[0];
    if (p.is_partial()) {
      Whole sum{reference_.y.shape, std::vector<double>(reference_.y.values.size())};
      for (const Tensor& result : results) {
        if (!(result.shape() == reference_.y.shape)) return false;
        const std::vector<double> part = whole_of(result).values;
        for (size_t i = 0; i < part.size(); ++i) sum.values[i] += part[i];
      }
      return close(sum, reference_.y, tolerance_);
    }
    const Tensor whole =
        Tensor::of(std::span<const double>(reference_.y.values), reference_.y.shape);
    const Layout layout = out.layout(mesh_.layout(), reference_.y.shape);
    for (size_t r = 0; r < results.size(); ++r) {
      Tensor want = whole;
      if (p.is_shard()) {
        const Range range =
            layout.range(p.dim(), mesh_.layout().coordinate_at(static_cast<int>(r)));
        want = whole.narrow(p.dim(), range.begin, range.size());
      }
      if (!close(whole_of(results[r]), whole_of(want), tolerance_)) return false;
    }
    return true;
  }

  const OpEntry& entry_;
  const DeviceMesh& mesh_;
  const ProverOptions& options_;
  Reference reference_;
  double tolerance_ = 0.0;
  ProverReport report_;
};

}  // namespace

ProverReport prove(const ops::OpEntry& entry, const DeviceMesh& mesh,
                   const ProverOptions& options) {
  return Prover(entry, mesh, options).run();
}

}  // namespace dtensor::testing

#include "dtensor/ops/embedding.h"

#include <string>

#include "dtensor/ops/compare.h"
#include "dtensor/ops/cpu/embedding.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/where.h"

namespace dtensor {
namespace {

// g [...,h] -> [v,h]; `like` brings the sizes and cuts of v and h.
DTensor table_gradient(const DTensor& g, const DTensor& ids, const DTensor& like,
                       const EmbeddingOptions& options) {
  const std::string l = ops::letters_of(ids.ndim());
  const Rule rule{.op = "embedding_backward",
                  .letters = l + "z," + l + ",vz->vz",
                  .linear = {{0}},
                  .names = {"g", "ids", "table"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const Tensor rows =
        cpu::embedding_backward(cpu::f16_as_f32(in[0]), in[1], info.range('v'), options.padding_id);
    return ops::Tensors{rows.to(in[0].dtype())};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [options, ids = Saved(in[1], "embedding")](std::span<const DTensor> up) {
      const DTensor at = ids.value();
      const DTensor rows = embedding(up[0], at);
      if (!options.padding_id) return Grads{rows, DTensor(), DTensor()};
      const DTensor padding =
          unsqueeze(eq(at, static_cast<double>(*options.padding_id)), at.ndim());
      return Grads{masked_fill(rows, padding, 0.0), DTensor(), DTensor()};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .twice = true},
                   {g, ids, like});
}

}  // namespace

DTensor embedding(const DTensor& table, const DTensor& ids, const EmbeddingOptions& options,
                  CallSite site) {
  ops::check_same_dtype("embedding", {table});
  ops::check_same_dtype("embedding", {ids});
  if (ids.dtype() != DType::kInt64) {
    throw ArgumentError("embedding: ids are " + std::string(name_of(ids.dtype())) +
                        "; use cast(ids, DType::kInt64)");
  }
  if (table.ndim() == 2 && options.padding_id &&
      (*options.padding_id < 0 || *options.padding_id >= table.size(0))) {
    throw ArgumentError("embedding: padding_id " + std::to_string(*options.padding_id) +
                        " is no row of the table " + to_string(table.shape()));
  }
  const std::string l = ops::letters_of(ids.ndim());
  const Rule rule{.op = "embedding",
                  .letters = "vz," + l + "->" + l + "z",
                  .linear = {{0}},
                  .names = {"table", "ids"}};
  const ops::Kernel kernel = [](const ops::KernelInfo& info, ops::Pieces in) {
    cpu::check_ids(in[1], info.size('v'), {}, "embedding");
    return ops::Tensors{cpu::embedding(in[0], in[1], info.range('v'))};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [options, ids = Saved(in[1], "embedding"),
            like = ops::shape_operand(in[0])](std::span<const DTensor> g) {
      return Grads{table_gradient(g[0], ids.value(), like, options), DTensor()};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true},
      {table, ids});
}

}  // namespace dtensor

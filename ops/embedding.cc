#include "dtensor/ops/embedding.h"

#include <string>

#include "dtensor/ops/cpu/embedding.h"
#include "dtensor/ops/dispatch.h"

namespace dtensor {
namespace {

// g [...,h] -> [v,h]; `like` brings the sizes and cuts of v and h.
DTensor table_gradient(const DTensor& g, const DTensor& ids, const DTensor& like) {
  const std::string l = ops::letters_of(ids.ndim());
  const Rule rule{.op = "embedding_backward",
                  .letters = l + "z," + l + ",vz->vz",
                  .linear = {{0}},
                  .names = {"g", "ids", "table"}};
  const ops::Kernel kernel = [](const ops::KernelInfo& info, std::span<const Tensor> in) {
    return std::vector<Tensor>{cpu::embedding_backward(in[0], in[1], info.range('v'))};
  };
  return ops::run1({.rule = rule, .kernel = kernel}, {g, ids, like});
}

}  // namespace

DTensor embedding(const DTensor& table, const DTensor& ids, CallSite site) {
  ops::check_same_dtype("embedding", {table});
  ops::check_same_dtype("embedding", {ids});
  if (ids.dtype() != DType::kInt64) {
    throw ArgumentError("embedding: ids are " + std::string(name_of(ids.dtype())) +
                        "; use cast(ids, DType::kInt64)");
  }
  const std::string l = ops::letters_of(ids.ndim());
  const Rule rule{.op = "embedding",
                  .letters = "vz," + l + "->" + l + "z",
                  .linear = {{0}},
                  .names = {"table", "ids"}};
  const ops::Kernel kernel = [](const ops::KernelInfo& info, std::span<const Tensor> in) {
    cpu::check_ids(in[1], info.size('v'), {}, "embedding");
    return std::vector<Tensor>{cpu::embedding(in[0], in[1], info.range('v'))};
  };
  const auto backward = [](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [ids = Saved(in[1], "embedding"),
            like = ops::shape_operand(in[0])](std::span<const DTensor> g) {
      return std::vector<DTensor>{table_gradient(g[0], ids.value(), like), DTensor()};
    };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site},
                   {table, ids});
}

}  // namespace dtensor

#include "dtensor/ops/index.h"

#include <numeric>
#include <string>
#include <vector>

#include "dtensor/ops/cpu/embedding.h"
#include "dtensor/ops/cpu/index.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/like.h"
#include "dtensor/ops/reduce.h"

namespace dtensor {
namespace {

// Which op: one index for all rows, or one for each element.
enum class Kind { kRows, kElements };
// Were the indices found to be in range before?
enum class Checked { kNo, kYes };

void check_index(std::string_view op, const DTensor& index) {
  ops::check_same_dtype(op, {index});
  if (index.dtype() == DType::kInt64) return;
  throw ArgumentError(std::string(op) + ": the index is " + std::string(name_of(index.dtype())) +
                      to_string(index.shape()) + "; use cast(index, DType::kInt64)");
}

[[noreturn]] void refuse(std::string_view op, const DTensor& a, const DTensor& index) {
  throw ArgumentError(std::string(op) + ": " + to_string(a.shape()) + " and an index " +
                      to_string(index.shape()) + " do not fit");
}

// Letters of the indexed tensor (v), of the index and of what is picked (w).
struct IndexLetters {
  std::string table;
  std::string index;
  std::string picked;
};

IndexLetters letters_of(std::string_view op, Kind kind, const Shape& table, int dim,
                        const DTensor& a, const DTensor& index) {
  std::string l = ops::letters_of(table.ndim());
  const auto at = static_cast<size_t>(dim);
  l[at] = 'v';
  IndexLetters letters{.table = l, .index = {}, .picked = {}};
  l[at] = 'w';
  letters.picked = l;
  letters.index = kind == Kind::kRows ? "w" : l;
  if (index.ndim() != static_cast<int>(letters.index.size())) refuse(op, a, index);
  return letters;
}

// g [..,w,..] added into zeros of `like`, which brings the length and cuts of v.
DTensor add_into(std::string_view op, Kind kind, const DTensor& g, int dim, const DTensor& index,
                 const DTensor& like, CallSite site, Checked checked);

DTensor pick(std::string_view op, Kind kind, const DTensor& a, int dim, const DTensor& index,
             CallSite site) {
  const IndexLetters l = letters_of(op, kind, a.shape(), dim, a, index);
  const Rule rule{.op = std::string(op),
                  .letters = l.table + "," + l.index + "->" + l.picked,
                  .linear = {{0}},
                  .names = {"a", "index"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    cpu::check_ids(in[1], info.size('v'), {}, std::string(rule.op).c_str());
    const Range rows = info.range('v');
    return ops::Tensors{kind == Kind::kRows ? cpu::index_select(in[0], dim, in[1], rows)
                                            : cpu::gather(in[0], dim, in[1], rows)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [kind, dim, name = rule.op + "_backward", index = Saved(in[1], op),
            like = ops::shape_operand(in[0])](std::span<const DTensor> g) {
      return Grads{add_into(name, kind, g[0], dim, index.value(), like, {}, Checked::kYes),
                   DTensor()};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true},
      {a, index});
}

DTensor add_into(std::string_view op, Kind kind, const DTensor& g, int dim, const DTensor& index,
                 const DTensor& like, CallSite site, Checked checked) {
  const IndexLetters l = letters_of(op, kind, like.shape(), dim, like, index);
  const Rule rule{.op = std::string(op),
                  .letters = l.picked + "," + l.index + "," + l.table + "->" + l.table,
                  .linear = {{0}},
                  .names = {"source", "index", "a"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    if (checked == Checked::kNo) {
      cpu::check_ids(in[1], info.size('v'), {}, std::string(rule.op).c_str());
    }
    const Range rows = info.range('v');
    return ops::Tensors{kind == Kind::kRows ? cpu::index_sum(in[0], dim, in[1], rows)
                                            : cpu::scatter_sum(in[0], dim, in[1], rows)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [kind, dim, name = rule.op + "_backward",
            index = Saved(in[1], op)](std::span<const DTensor> grads) {
      return Grads{pick(name, kind, grads[0], dim, index.value(), {}), DTensor(), DTensor()};
    };
  };
  return ops::run1(
      {.rule = rule, .kernel = kernel, .backward = backward, .site = site, .twice = true},
      {g, index, like});
}

}  // namespace

DTensor gather(const DTensor& a, int dim, const DTensor& index, CallSite site) {
  ops::check_same_dtype("gather", {a});
  check_index("gather", index);
  return pick("gather", Kind::kElements, a, normalize_dim(dim, a.ndim(), "gather"), index, site);
}

DTensor scatter_add(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                    CallSite site) {
  ops::check_same_dtype("scatter_add", {a, source});
  ops::check_floating("scatter_add", a);
  check_index("scatter_add", index);
  const int d = normalize_dim(dim, a.ndim(), "scatter_add");
  return add(a,
             add_into("scatter_add", Kind::kElements, source, d, index, ops::shape_operand(a), site,
                      Checked::kNo),
             site);
}

DTensor index_select(const DTensor& a, int dim, const DTensor& index, CallSite site) {
  ops::check_same_dtype("index_select", {a});
  check_index("index_select", index);
  const int d = normalize_dim(dim, a.ndim(), "index_select");
  return pick("index_select", Kind::kRows, a, d, index, site);
}

DTensor index_add(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                  CallSite site) {
  ops::check_same_dtype("index_add", {a, source});
  ops::check_floating("index_add", a);
  check_index("index_add", index);
  const int d = normalize_dim(dim, a.ndim(), "index_add");
  return add(a,
             add_into("index_add", Kind::kRows, source, d, index, ops::shape_operand(a), site,
                      Checked::kNo),
             site);
}

DTensor one_hot(const DTensor& index, int64_t classes, DType dtype, CallSite site) {
  check_index("one_hot", index);
  if (classes < 0) throw ArgumentError("one_hot: " + std::to_string(classes) + " classes");
  const std::string l = ops::letters_of(index.ndim());
  const Rule rule{
      .op = "one_hot", .letters = l + "->" + l + "z", .made = {{'z', classes}}, .names = {"index"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo&, ops::Pieces in) {
    cpu::check_ids(in[0], classes, {}, "one_hot");
    return ops::Tensors{cpu::one_hot(in[0], classes, dtype)};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = dtype, .site = site}, {index});
}

DTensor scatter(const DTensor& a, int dim, const DTensor& index, const DTensor& source,
                CallSite site) {
  ops::check_same_dtype("scatter", {a, source});
  ops::check_floating("scatter", a);
  check_index("scatter", index);
  const int d = normalize_dim(dim, a.ndim(), "scatter");
  const DTensor like = ops::shape_operand(a);
  const auto into = [&](const DTensor& values) {
    return add_into("scatter", Kind::kElements, values, d, index, like, site, Checked::kNo);
  };
  const DTensor written = into(ones_like(source));
  return where(written, into(source), a, site);
}

DTensor bincount(const DTensor& index, int64_t classes, CallSite site) {
  std::vector<int> dims(static_cast<size_t>(index.defined() ? index.ndim() : 0));
  std::iota(dims.begin(), dims.end(), 0);
  const DTensor hits = one_hot(index, classes, DType::kInt64, site);
  return dims.empty() ? hits : sum(hits, dims, KeepDims::kNo, site);
}

}  // namespace dtensor

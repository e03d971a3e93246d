#include "dtensor/ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "dtensor/ops/cpu/contract.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/reduce.h"

namespace dtensor {
namespace ops {
namespace {

DTensor product(std::string_view op, const Contraction& l, const DTensor& a, const DTensor& b,
                MakeBackward backward, CallSite site) {
  const Rule rule{.op = std::string(op),
                  .letters = l.a + "," + l.b + "->" + l.out,
                  .linear = {{0}, {1}},
                  .names = {"a", "b"}};
  const Kernel kernel = [&l](const KernelInfo&, ops::Pieces in) {
    return ops::Tensors{cpu::contract(in[0], in[1], {l.a, l.b, l.out})};
  };
  return run1({.rule = rule,
               .kernel = kernel,
               .backward = std::move(backward),
               .site = site,
               .twice = true},
              {a, b});
}

}  // namespace

DTensor contract(std::string_view op, const Contraction& letters, const DTensor& a,
                 const DTensor& b, CallSite site) {
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const bool wants_a = in[0].requires_grad();
    const bool wants_b = in[1].requires_grad();
    return [op = std::string(op), l = letters, wants_a, wants_b,
            a = wants_b ? Saved(in[0], op) : Saved(),
            b = wants_a ? Saved(in[1], op) : Saved()](std::span<const DTensor> g) {
      Grads grads(2);
      if (wants_a) grads[0] = contract(op + "_da", {l.out, l.b, l.a}, g[0], b.value(), {});
      if (wants_b) grads[1] = contract(op + "_db", {l.a, l.out, l.b}, a.value(), g[0], {});
      return grads;
    };
  };
  return product(op, letters, a, b, backward, site);
}

}  // namespace ops

namespace {

[[noreturn]] void refuse(std::string_view letters, const std::string& why) {
  throw ArgumentError("einsum \"" + std::string(letters) + "\": " + why +
                      "; write two operands and a result, as in \"mk,kn->mn\"");
}

ops::Contraction parse(std::string_view letters, const DTensor& a, const DTensor& b) {
  const size_t comma = letters.find(',');
  const size_t arrow = letters.find("->");
  if (comma == letters.npos || arrow == letters.npos || comma > arrow) {
    refuse(letters, "there is no ',' or no '->'");
  }
  ops::Contraction l{.a = std::string(letters.substr(0, comma)),
                     .b = std::string(letters.substr(comma + 1, arrow - comma - 1)),
                     .out = std::string(letters.substr(arrow + 2))};
  for (const std::string* operand : {&l.a, &l.b, &l.out}) {
    for (const char letter : *operand) {
      if (std::isalpha(static_cast<unsigned char>(letter)) == 0) {
        refuse(letters, std::string("'") + letter + "' is no letter");
      }
      if (std::ranges::count(*operand, letter) > 1) {
        refuse(letters, std::string("'") + letter + "' stands twice in an operand");
      }
    }
  }
  for (const char letter : l.out) {
    if (l.a.find(letter) == l.a.npos && l.b.find(letter) == l.b.npos) {
      refuse(letters, std::string("'") + letter + "' of the result is in no operand");
    }
  }
  if (static_cast<int>(l.a.size()) != a.ndim() || static_cast<int>(l.b.size()) != b.ndim()) {
    refuse(letters, "the operands are " + to_string(a.shape()) + " and " + to_string(b.shape()));
  }
  return l;
}

// Sums over the dims of an operand whose letters stand nowhere else, which go from its letters.
DTensor without_lone(const DTensor& x, std::string& mine, const std::string& other,
                     const std::string& out, CallSite site) {
  std::vector<int> dims;
  std::string kept;
  for (size_t d = 0; d < mine.size(); ++d) {
    if (other.find(mine[d]) == other.npos && out.find(mine[d]) == out.npos) {
      dims.push_back(static_cast<int>(d));
    } else {
      kept += mine[d];
    }
  }
  mine = kept;
  return dims.empty() ? x : sum(x, dims, KeepDims::kNo, site);
}

void check_vectors(const char* op, const DTensor& a, const DTensor& b) {
  ops::check_same_dtype(op, {a, b});
  ops::check_floating(op, a);
  if (a.ndim() == 1 && b.ndim() == 1) return;
  throw ArgumentError(std::string(op) + " takes two tensors of one dim, got " +
                      to_string(a.shape()) + " and " + to_string(b.shape()));
}

}  // namespace

DTensor einsum(std::string_view letters, const DTensor& a, const DTensor& b, CallSite site) {
  ops::check_same_dtype("einsum", {a, b});
  ops::check_floating("einsum", a);
  ops::Contraction l = parse(letters, a, b);
  const DTensor x = without_lone(a, l.a, l.b, l.out, site);
  const DTensor y = without_lone(b, l.b, l.a, l.out, site);
  return ops::contract("einsum", l, x, y, site);
}

DTensor outer(const DTensor& a, const DTensor& b, CallSite site) {
  check_vectors("outer", a, b);
  return ops::contract("outer", {"m", "n", "mn"}, a, b, site);
}

DTensor dot(const DTensor& a, const DTensor& b, CallSite site) {
  check_vectors("dot", a, b);
  return ops::contract("dot", {"k", "k", ""}, a, b, site);
}

}  // namespace dtensor

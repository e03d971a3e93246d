#include "dtensor/ops/matmul.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/gemm.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/einsum.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/lasting_rules.h"
#include "dtensor/ops/view.h"

namespace dtensor {
namespace {

// Products of two tensors: linear in each, not in both jointly.
enum Product : size_t { kMatmul, kMatmulDa, kMatmulDb, kLinear, kLinearDx, kLinearDw, kProducts };

struct ProductInfo {
  std::string_view op;
  std::string_view letters;  // "*" for the letters of the leading dims
  std::string_view a;
  std::string_view b;
};
constexpr ProductInfo kInfos[kProducts] = {
    {"matmul", "*mk,*kn->*mn", "a", "b"},    {"matmul_da", "*mn,*kn->*mk", "g", "b"},
    {"matmul_db", "*mk,*mn->*kn", "a", "g"}, {"linear", "*k,nk->*n", "x", "w"},
    {"linear_dx", "*n,nk->*k", "g", "w"},    {"linear_dw", "*k,*n->nk", "x", "g"},
};

const Rule& rule_of(Product product, int leading) {
  static ops::LastingRules<kProducts> rules(+[](size_t kind, int n) {
    const ProductInfo& info = kInfos[kind];
    Rule rule{.op = info.op, .letters = {}, .linear = {{0}, {1}}, .names = {info.a, info.b}};
    for (const char c : info.letters) {
      rule.letters += c == '*' ? ops::letters_of(n) : std::string(1, c);
    }
    return rule;
  });
  return rules.of(product, leading);
}

using ProductKernel = Tensor (*)(const Tensor&, const Tensor&);

ops::Kernel kernel_of(ProductKernel f) {
  return [f](const ops::KernelInfo&, ops::Pieces in) { return ops::Tensors{f(in[0], in[1])}; };
}

DTensor run(Product product, int leading, ProductKernel f, const DTensor& a, const DTensor& b) {
  const ops::Kernel kernel = kernel_of(f);
  return ops::run1({.rule = rule_of(product, leading), .kernel = kernel, .lasting = true}, {a, b});
}

Tensor times_transposed(const Tensor& a, const Tensor& b) {
  return cpu::matmul(a, b.transpose(-2, -1));
}
Tensor transposed_times(const Tensor& a, const Tensor& b) {
  return cpu::matmul(a.transpose(-2, -1), b);
}

// A product with its gradients: `da` of (g, b), `db` of (a, g), each where it is wanted.
struct Differentiable {
  Product product;
  ProductKernel kernel;
  DTensor (*da)(const DTensor& g, const DTensor& b);
  DTensor (*db)(const DTensor& a, const DTensor& g);
};

DTensor run(const Differentiable& f, int leading, const DTensor& a, const DTensor& b,
            CallSite site) {
  const ops::Kernel kernel = kernel_of(f.kernel);
  const auto backward = [&f](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    const std::string_view op = kInfos[f.product].op;
    const bool wants_a = in[0].requires_grad();
    const bool wants_b = in[1].requires_grad();
    return
        [da = f.da, db = f.db, a = wants_b ? Saved(in[0], op) : Saved(),
         b = wants_a ? Saved(in[1], op) : Saved(), wants_a, wants_b](std::span<const DTensor> g) {
          return Grads{wants_a ? da(g[0], b.value()) : DTensor(),
                       wants_b ? db(a.value(), g[0]) : DTensor()};
        };
  };
  return ops::run1({.rule = rule_of(f.product, leading),
                    .kernel = kernel,
                    .backward = backward,
                    .site = site,
                    .twice = true,
                    .lasting = true},
                   {a, b});
}

[[noreturn]] void refuse(const DTensor& a, const DTensor& b) {
  throw ArgumentError("matmul takes [...,m,k] and [...,k,n], got " + to_string(a.shape()) +
                      " and " + to_string(b.shape()));
}

// An operand of a broadcast product without the leading dims that are repeated; its letters.
struct Factor {
  DTensor value;
  std::string letters;
};

// `matrix` are the letters of the dims that are multiplied, `lead` and `sizes` those of the
// result's leading dims.
Factor factor_of(const DTensor& x, const std::string& matrix, const std::string& lead,
                 const Shape& sizes, CallSite site) {
  Factor f{x, {}};
  const int own = std::max(0, x.ndim() - 2);
  Shape kept;
  for (int d = 0; d < own; ++d) {
    const int at = sizes.ndim() - own + d;
    if (x.size(d) != sizes[at]) continue;  // 1, repeated
    f.letters += lead[static_cast<size_t>(at)];
    kept.push_back(x.size(d));
  }
  for (int d = own; d < x.ndim(); ++d) kept.push_back(x.size(d));
  f.letters += matrix;
  if (kept.ndim() < x.ndim()) f.value = reshape(x, kept, site);
  return f;
}

DTensor broadcast_matmul(const DTensor& a, const DTensor& b, CallSite site) {
  if (a.ndim() == 0 || b.ndim() == 0) refuse(a, b);
  const int lead_a = std::max(0, a.ndim() - 2);
  const int lead_b = std::max(0, b.ndim() - 2);
  Shape sizes = Shape::filled(std::max(lead_a, lead_b), 1);
  for (int d = 0; d < sizes.ndim(); ++d) {
    const int of_a = d - (sizes.ndim() - lead_a);
    const int of_b = d - (sizes.ndim() - lead_b);
    const int64_t x = of_a >= 0 ? a.size(of_a) : 1;
    const int64_t y = of_b >= 0 ? b.size(of_b) : 1;
    if (x != y && x != 1 && y != 1) refuse(a, b);
    sizes[d] = x == 1 ? y : x;
  }
  const std::string lead = ops::letters_of(sizes.ndim());
  const std::string m = a.ndim() > 1 ? "m" : "";
  const std::string n = b.ndim() > 1 ? "n" : "";
  const Factor x = factor_of(a, m + "k", lead, sizes, site);
  const Factor y = factor_of(b, "k" + n, lead, sizes, site);
  std::string shared;
  for (const char letter : lead) {
    const bool there =
        x.letters.find(letter) != std::string::npos || y.letters.find(letter) != std::string::npos;
    if (there) shared += letter;
  }
  return ops::contract("matmul", {x.letters, y.letters, shared + m + n}, x.value, y.value, site);
}

bool equal_leading(const DTensor& a, const DTensor& b) {
  if (a.ndim() < 2 || a.ndim() != b.ndim()) return false;
  for (int d = 0; d < a.ndim() - 2; ++d) {
    if (a.size(d) != b.size(d)) return false;
  }
  return true;
}

// The gradient of linear's weight by ops that have gradients themselves.
DTensor linear_dw_of_ops(const DTensor& x, const DTensor& g) {
  const DTensor rows_x = reshape(x, {-1, x.size(-1)});
  const DTensor rows_g = reshape(g, {-1, g.size(-1)});
  return matmul(transpose(rows_g), rows_x);
}

// What is recorded is made of ops that have gradients themselves.
DTensor matmul_da(const DTensor& g, const DTensor& b) {
  if (grad_enabled()) return matmul(g, transpose(b, -2, -1));
  return run(kMatmulDa, g.ndim() - 2, times_transposed, g, b);
}
DTensor matmul_db(const DTensor& a, const DTensor& g) {
  if (grad_enabled()) return matmul(transpose(a, -2, -1), g);
  return run(kMatmulDb, g.ndim() - 2, transposed_times, a, g);
}
DTensor linear_dx(const DTensor& g, const DTensor& w) {
  if (grad_enabled()) return linear(g, transpose(w));
  return run(kLinearDx, g.ndim() - 1, cpu::linear_dx, g, w);
}
DTensor linear_dw(const DTensor& x, const DTensor& g) {
  if (grad_enabled()) return linear_dw_of_ops(x, g);
  constexpr auto kDw = +[](const Tensor& x, const Tensor& g) { return cpu::linear_dw(g, x); };
  return run(kLinearDw, g.ndim() - 1, kDw, x, g);
}

DTensor add_product(const DTensor& c, const DTensor& product, const AddProductOptions& options,
                    CallSite site) {
  const DTensor addend = options.beta == 1.0 ? c : mul(c, options.beta, site);
  const DTensor scaled = options.alpha == 1.0 ? product : mul(product, options.alpha, site);
  return add(addend, scaled, site);
}

constexpr Differentiable kMatmulWithGradients{kMatmul, cpu::matmul, matmul_da, matmul_db};
constexpr Differentiable kLinearWithGradients{kLinear, cpu::linear, linear_dx, linear_dw};

}  // namespace

DTensor matmul(const DTensor& a, const DTensor& b, CallSite site) {
  ops::check_same_dtype("matmul", {a, b});
  ops::check_floating("matmul", a);
  if (!equal_leading(a, b)) return broadcast_matmul(a, b, site);
  return run(kMatmulWithGradients, a.ndim() - 2, a, b, site);
}

DTensor bmm(const DTensor& a, const DTensor& b, CallSite site) {
  ops::check_same_dtype("bmm", {a, b});
  if (a.ndim() != 3 || b.ndim() != 3 || a.size(0) != b.size(0)) {
    throw ArgumentError("bmm takes [b,m,k] and [b,k,n], got " + to_string(a.shape()) + " and " +
                        to_string(b.shape()));
  }
  return matmul(a, b, site);
}

DTensor linear(const DTensor& x, const DTensor& w, const DTensor& bias, CallSite site) {
  ops::check_same_dtype("linear", {x, w});
  ops::check_floating("linear", x);
  if (x.ndim() < 1 || w.ndim() != 2) {
    throw ArgumentError("linear takes x [...,k] and w [n,k], got " + to_string(x.shape()) +
                        " and " + to_string(w.shape()));
  }
  const DTensor y = run(kLinearWithGradients, x.ndim() - 1, x, w, site);
  return bias.defined() ? add(y, bias, site) : y;
}

DTensor addmm(const DTensor& c, const DTensor& a, const DTensor& b,
              const AddProductOptions& options, CallSite site) {
  ops::check_same_dtype("addmm", {c, a, b});
  if (a.ndim() != 2 || b.ndim() != 2) {
    throw ArgumentError("addmm takes [m,k] and [k,n], got " + to_string(a.shape()) + " and " +
                        to_string(b.shape()));
  }
  return add_product(c, matmul(a, b, site), options, site);
}

DTensor baddbmm(const DTensor& c, const DTensor& a, const DTensor& b,
                const AddProductOptions& options, CallSite site) {
  ops::check_same_dtype("baddbmm", {c, a, b});
  return add_product(c, bmm(a, b, site), options, site);
}

}  // namespace dtensor

#include "dtensor/tensor/recompute.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/policy.h"

namespace dtensor {
namespace {

// What is kept of a region.
struct Kept {
  Region f;
  Generator generator;
  CurrentPolicy policy;
  RegionScopes scopes;
  InlineVector<Saved, 3> inputs;
  InlineVector<bool, 8> wanted;
  CallSite site;
};

// The scopes of forward, open again.
class Reopened {
 public:
  explicit Reopened(const RegionScopes& scopes) : slot_(scopes), open_(scopes.open) {
    for (const auto& scope : open_) scope->enter();
  }
  ~Reopened() {
    for (auto it = open_.rbegin(); it != open_.rend(); ++it) (*it)->leave();
  }
  Reopened(const Reopened&) = delete;
  Reopened& operator=(const Reopened&) = delete;

 private:
  ScopedSlot<RegionScopes> slot_;
  const std::vector<std::shared_ptr<RegionScope>>& open_;
};

Grads run_backward(const Kept& kept, const DTensor& grad) {
  std::vector<DTensor> inputs;
  InlineVector<const void*, 8> partial;
  for (size_t i = 0; i < kept.inputs.size(); ++i) {
    inputs.push_back(kept.inputs[i].value().detach());
    // Also where the input is Partial, which no other leaf may be.
    inputs.back().impl()->requires_grad = kept.wanted[i];
    partial.push_back(inputs.back().impl().get());
  }
  BackwardPass pass({.defer = Context::current().slot<BackwardMode>().defer, .site = kept.site});
  pass.stop_at_older_nodes();
  DTensor y;
  {
    const Reopened scopes(kept.scopes);
    const ScopedSlot<GradMode> recording(GradMode{true});
    const ScopedSlot<Generator> generator(kept.generator);
    const ScopedSlot<CurrentPolicy> policy(kept.policy);
    y = kept.f(inputs);
  }
  if (y.shape() != grad.shape() || y.dtype() != grad.dtype()) {
    throw Error("recomputed: the region gave " + internal::describe(y) +
                " in backward, and not the same in forward: it must compute the same both times");
  }
  if (y.requires_grad()) {
    pass.keep_partial({partial.data(), partial.size()});
    pass.run(y, grad);
  }
  Grads grads;
  for (const DTensor& x : inputs) grads.push_back(x.grad());
  return grads;
}

}  // namespace

DTensor recomputed(const Region& f, std::span<const DTensor> inputs, CallSite site) {
  const bool wanted = std::ranges::any_of(
      inputs, [](const DTensor& x) { return x.defined() && x.requires_grad(); });
  if (!grad_enabled() || !wanted) return f(inputs);
  Context& context = Context::current();
  Kept kept{f,
            context.slot<Generator>(),
            context.slot<CurrentPolicy>(),
            context.slot<RegionScopes>(),
            {},
            {},
            site};
  for (const DTensor& x : inputs) {
    internal_check(x.defined(), "recomputed: an input is an empty handle");
    kept.inputs.emplace_back(x, "recomputed");
    kept.wanted.push_back(x.requires_grad());
  }
  DTensor y;
  {
    const NoGrad no_grad;
    y = f(inputs).detach();
  }
  record("recomputed", inputs, {&y, 1},
         [kept = std::move(kept)](std::span<const DTensor> g) { return run_backward(kept, g[0]); },
         {.passes_partial = true, .site = site});
  return y;
}

DTensor recomputed(const Region& f, std::initializer_list<DTensor> inputs, CallSite site) {
  return recomputed(f, std::span<const DTensor>(inputs.begin(), inputs.size()), site);
}

}  // namespace dtensor

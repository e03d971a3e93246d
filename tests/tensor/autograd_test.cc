// Autograd on no mesh. With placements: tests/tensor/backward_test.cc.

#include "dtensor/tensor/autograd.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tests/tensor/test_ops.h"

namespace dtensor {
namespace {

using testing::exponential;
using testing::plus;
using testing::scale;
using testing::total;
using Floats = std::vector<float>;

DTensor leaf(const Floats& values) {
  DTensor t(Tensor::of(std::span<const float>(values), {static_cast<int64_t>(values.size())}));
  return t.set_requires_grad(true);
}

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

// An op that writes its name down when its backward runs.
DTensor traced(const DTensor& x, const std::string& name, std::vector<std::string>& trace) {
  return testing::recorded(name, {x}, x.detach(), [name, &trace](std::span<const DTensor> g) {
    trace.push_back(name);
    return std::vector<DTensor>{g[0]};
  });
}

TEST(Autograd, AddsTheGradientsOfAllUses) {
  const DTensor x = leaf({1, 2});
  DTensor loss = total(plus(scale(x, 2), scale(x, 3)));
  loss.backward();
  EXPECT_EQ(values(x.grad()), (Floats{5, 5}));
  loss = total(scale(x, 4));
  loss.backward();
  EXPECT_EQ(values(x.grad()), (Floats{9, 9})) << "a leaf accumulates";
  DTensor same = x;
  same.set_grad({});
  EXPECT_FALSE(x.grad().defined()) << "handles share the gradient";
}

TEST(Autograd, RunsTheLatestNodeFirstAndEachOnce) {
  std::vector<std::string> trace;
  const DTensor x = leaf({1});
  const DTensor a = traced(x, "a", trace);
  const DTensor b = traced(a, "b", trace);
  const DTensor c = traced(a, "c", trace);
  const DTensor d = traced(plus(b, c), "d", trace);
  total(plus(d, traced(a, "e", trace))).backward();
  EXPECT_EQ(trace, (std::vector<std::string>{"e", "d", "c", "b", "a"}));
  EXPECT_EQ(values(x.grad()), Floats{3});
}

TEST(Autograd, RecordsNothingWithoutAWish) {
  const DTensor plain(Tensor::zeros({2}));
  EXPECT_FALSE(scale(plain, 2).requires_grad());
  const DTensor x = leaf({1, 2});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(scale(x, 2).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  const DTensor y = scale(x, 2);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_EQ(y.detach().local_tensor().storage(), y.local_tensor().storage());
  EXPECT_THROW(total(plain).backward(), ArgumentError);
  EXPECT_THROW(scale(x, 2).backward(), ArgumentError) << "two elements";
}

TEST(Autograd, RunsASecondTimeOnlyWhereTheGraphWasKept) {
  const DTensor x = leaf({1, 2});
  DTensor loss = total(exponential(scale(x, 0)));
  loss.backward({.retain_graph = true});
  loss.backward();
  EXPECT_EQ(values(x.grad()), (Floats{0, 0}));
  try {
    loss.backward();
    FAIL() << "ran a third time";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("total"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("retain_graph"), std::string::npos) << e.what();
  }
}

TEST(Autograd, LossThatIsALeafGetsOne) {
  DTensor x = leaf({3});
  x.backward();
  EXPECT_EQ(values(x.grad()), Floats{1});
}

TEST(Autograd, GivesLeavesGradientsOfTheirOwnMemory) {
  const DTensor x = leaf({1, 2});
  const DTensor y = leaf({3, 4});
  total(plus(x, y)).backward();  // plus hands one gradient to both
  EXPECT_NE(x.grad().local_tensor().storage(), y.grad().local_tensor().storage());
  kernels::fill(x.grad().local_tensor(), 7);
  EXPECT_EQ(values(y.grad()), (Floats{1, 1}));
}

TEST(Autograd, HooksSeeTheCompleteGradientAndReplaceIt) {
  const DTensor x = leaf({1});
  const DTensor y = scale(x, 2);
  std::vector<float> seen;
  add_grad_hook(y, [&](const DTensor& g) {
    seen.push_back(values(g)[0]);
    return scale(g, 10);
  });
  add_grad_hook(y, [&](const DTensor& g) {
    seen.push_back(values(g)[0]);
    return g;
  });
  add_grad_hook(x, [&](const DTensor& g) {
    seen.push_back(values(g)[0]);
    return g;
  });
  total(plus(scale(y, 3), y)).backward();
  EXPECT_EQ(seen, (Floats{4, 40, 80}));
  EXPECT_EQ(values(x.grad()), Floats{80});
  EXPECT_THROW(add_grad_hook(DTensor(Tensor::zeros({1})), [](const DTensor& g) { return g; }),
               ArgumentError);
}

TEST(Autograd, AHookCanStopAGradient) {
  const DTensor x = leaf({1});
  const DTensor y = scale(x, 2);
  add_grad_hook(y, [](const DTensor&) { return DTensor(); });
  total(plus(y, scale(x, 5))).backward();
  EXPECT_EQ(values(x.grad()), Floats{5});
}

TEST(Autograd, BackwardHookRunsBeforeTheNodesUnderIt) {
  std::vector<std::string> trace;
  const DTensor x = leaf({1});
  const DTensor inside = traced(x, "inside", trace);
  const DTensor out = with_backward_hook(inside, [&] { trace.emplace_back("hook"); });
  total(traced(out, "outside", trace)).backward();
  EXPECT_EQ(trace, (std::vector<std::string>{"outside", "hook", "inside"}));
  EXPECT_EQ(out.local_tensor().storage(), inside.local_tensor().storage());
  const NoGrad no_grad;
  EXPECT_EQ(with_backward_hook(x, [] {}).impl(), x.impl());
}

TEST(Autograd, TellsABackwardFunctionHowItWasCalled) {
  const DTensor x = leaf({1});
  std::vector<BackwardMode> modes;
  bool recording = true;
  const auto look = [&](std::span<const DTensor> g) {
    modes.push_back(Context::current().slot<BackwardMode>());
    recording = grad_enabled();
    return std::vector<DTensor>{g[0]};
  };
  testing::recorded("look", {x}, x.detach(), look).backward({.defer = true});
  testing::recorded("look", {x}, x.detach(), look).backward();
  ASSERT_EQ(modes.size(), 2U);
  EXPECT_TRUE(modes[0].running && modes[0].defer);
  EXPECT_TRUE(modes[1].running && !modes[1].defer);
  EXPECT_FALSE(recording);
  EXPECT_FALSE(Context::current().slot<BackwardMode>().running);
}

TEST(Autograd, SeveralOutputsGetOneEntryEach) {
  const DTensor x = leaf({1, 2});
  std::vector<bool> defined;
  std::vector<DTensor> outs{x.detach(), x.detach(), DTensor(Tensor::zeros({2}, DType::kInt64))};
  record("split", {&x, 1}, outs, [&](std::span<const DTensor> g) {
    for (const DTensor& t : g) defined.push_back(t.defined());
    return std::vector<DTensor>{g[1]};
  });
  EXPECT_FALSE(outs[2].requires_grad()) << "indices have no gradient";
  total(scale(outs[1], 3)).backward();
  EXPECT_EQ(defined, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(values(x.grad()), (Floats{3, 3}));
}

TEST(Autograd, ANodeWithoutGradientIsSkippedUnlessItAsks) {
  const DTensor x = leaf({1});
  int skipped = 0;
  int always = 0;
  const auto count = [](int& n) {
    return [&n](std::span<const DTensor>) {
      ++n;
      return std::vector<DTensor>(1);
    };
  };
  const DTensor a = testing::recorded("a", {x}, x.detach(), count(skipped));
  const DTensor b = testing::recorded("b", {x}, x.detach(), count(always), {.always = true});
  const auto none = [](std::span<const DTensor>) { return std::vector<DTensor>(2); };
  testing::recorded("none", {a, b}, x.detach(), none).backward();
  EXPECT_EQ(skipped, 0);
  EXPECT_EQ(always, 1);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Autograd, EndOfBackwardIsAnnouncedOnceAlsoAfterAnError) {
  const DTensor x = leaf({1});
  std::vector<std::string> trace;
  const auto make = [&](bool fails) {
    return testing::recorded("f", {x}, x.detach(), [&trace, fails](std::span<const DTensor> g) {
      on_backward_end([&trace] { trace.emplace_back("end"); });
      trace.emplace_back("f");
      if (fails) throw std::runtime_error("from f");
      return std::vector<DTensor>{g[0]};
    });
  };
  make(false).backward();
  EXPECT_THROW(make(true).backward(), std::runtime_error);
  EXPECT_EQ(trace, (std::vector<std::string>{"f", "end", "f", "end"}));
  EXPECT_THROW(on_backward_end([] {}), InternalError);
  EXPECT_FALSE(Context::current().slot<BackwardMode>().running);
  EXPECT_TRUE(grad_enabled());
}

TEST(Autograd, EndOfBackwardIsAnnouncedToAllWhereOneOfThemThrows) {
  const DTensor x = leaf({1});
  std::vector<std::string> trace;
  DTensor y = testing::recorded("f", {x}, x.detach(), [&trace](std::span<const DTensor> g) {
    for (const std::string name : {"a", "b", "c"}) {
      on_backward_end([&trace, name] {
        trace.push_back(name);
        if (name != "c") throw std::runtime_error("from " + name);
      });
    }
    return std::vector<DTensor>{g[0]};
  });
  try {
    y.backward();
    FAIL() << "swallowed";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "from a");
  }
  EXPECT_EQ(trace, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_FALSE(Context::current().slot<BackwardMode>().running);
}

// The gradient stays where it was: x has none, and a second backward says why there is none.
TEST(Autograd, AHookThatThrowsOrGivesAnotherShapeEndsThePass) {
  const DTensor x = leaf({1, 2});
  const DTensor z = leaf({3, 4});
  add_grad_hook(z, [](const DTensor&) -> DTensor { throw std::runtime_error("from hook"); });
  EXPECT_THROW(total(plus(x, z)).backward(), std::runtime_error);
  EXPECT_FALSE(z.grad().defined());
  EXPECT_FALSE(Context::current().slot<BackwardMode>().running);
  EXPECT_TRUE(grad_enabled());
  const DTensor y = scale(x, 2);
  add_grad_hook(y, [](const DTensor&) { return DTensor(Tensor::of<float>({1}, {1})); });
  try {
    total(y).backward();
    FAIL() << "took a gradient of another shape";
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("f32[2]"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("f32[1]"), std::string::npos) << e.what();
  }
}

TEST(Autograd, NamesTheOpWhoseSavedTensorWasWritten) {
  const DTensor x = leaf({1, 2});
  const DTensor y = exponential(x);
  DTensor loss = total(y);
  kernels::fill(y.local_tensor(), 0);
  try {
    loss.backward();
    FAIL() << "computed with the new values";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("exp"), std::string::npos) << e.what();
  }
}

TEST(Autograd, SavedTensorSeesARefilledStorage) {
  const DTensor t(Tensor::of<float>({1, 2}, {2}));
  const Saved saved(t, "op");
  const auto& storage = t.local_tensor().storage();
  storage->release();
  storage->refill();
  std::copy_n(Floats{1, 2}.begin(), 2, t.local_tensor().data<float>());
  EXPECT_EQ(values(saved.value()), (Floats{1, 2}));
}

TEST(Autograd, AGraphGoesWithItsLastTensor) {
  Context context;
  const ContextScope scope(context);
  const auto live = [] {
    return Context::current().slot<CurrentAllocator>().allocator->stats().live_bytes;
  };
  const DTensor x = leaf({1, 2});
  const int64_t before = live();
  {
    const DTensor y = exponential(exponential(x));
    EXPECT_GT(live(), before);
  }
  EXPECT_EQ(live(), before) << "a node holds its output";
  DTensor loss = total(exponential(exponential(x)));
  loss.backward();
  EXPECT_EQ(live(), before + 2 * 8 - 8 + 4) << "the gradient and the loss are left";
}

TEST(Autograd, EdgesDoNotKeepInputsAlive) {
  Context context;
  const ContextScope scope(context);
  const DTensor x = leaf(Floats(1000, 1.0F));
  const DTensor y = scale(scale(scale(x, 1), 1), 1);
  EXPECT_EQ(Context::current().slot<CurrentAllocator>().allocator->stats().live_bytes, 8000)
      << "x and y: what no op saved is gone";
}

TEST(Autograd, LongChainsNeedNoDeepStack) {
  const DTensor x = leaf({1});
  const auto chain = [&x] {
    DTensor y = x;
    for (int i = 0; i < 200'000; ++i) {
      DTensor out = y.detach();
      record("pass", {&y, 1}, {&out, 1},
             [](std::span<const DTensor> g) { return std::vector<DTensor>{g[0]}; });
      y = out;
    }
    return y;
  };
  chain();  // dropped without backward
  chain().backward();
  EXPECT_EQ(values(x.grad()), Floats{1});
}

// What a node saved leads to the nodes of its inputs as well, here each twice.
TEST(Autograd, LongChainsOfSavedTensorsNeedNoDeepStack) {
  const DTensor x = leaf({1});
  DTensor y = x;
  for (int i = 0; i < 200'000; ++i) {
    DTensor out = y.detach();
    const std::array<DTensor, 2> in = {y, y};
    record("square", in, {&out, 1}, [saved = Saved(y, "square")](std::span<const DTensor> g) {
      static_cast<void>(saved.value());
      return Grads{g[0], g[0]};
    });
    y = out;
  }
  y = DTensor();  // dropped without backward
  EXPECT_TRUE(x.is_leaf());
}

TEST(Autograd, RefusesAGradientThatIsNotOfItsInput) {
  const DTensor x = leaf({1, 2});
  const auto wrong = [](std::span<const DTensor>) {
    return std::vector<DTensor>{DTensor(Tensor::zeros({3}))};
  };
  EXPECT_THROW(testing::recorded("wrong", {x}, total(x).detach(), wrong).backward(), InternalError);
  const auto missing = [](std::span<const DTensor>) { return std::vector<DTensor>(); };
  EXPECT_THROW(testing::recorded("missing", {x}, total(x).detach(), missing).backward(),
               InternalError);
}

TEST(DTensorOnNoMesh, IsAnOrdinaryTensor) {
  DTensor t(Tensor::of<float>({1, 2, 3, 4}, {2, 2}));
  EXPECT_FALSE(t.mesh().defined());
  EXPECT_TRUE(t.has_local());
  EXPECT_TRUE(t.spec().is_replicated());
  EXPECT_EQ(t.size(-1), 2);
  EXPECT_EQ(to_string(t), "f32[2,2] {1, 2, 3, 4}");
  EXPECT_EQ(DTensor(Tensor::full({}, 2.5)).item(), 2.5);
  EXPECT_EQ(DTensor(Tensor::full({1, 1}, 7, DType::kInt64)).item(), 7);
  EXPECT_THROW(static_cast<void>(t.item()), ArgumentError);
  EXPECT_EQ(to_string(DTensor()), "undefined");
  EXPECT_THROW(static_cast<void>(DTensor().shape()), InternalError);
}

TEST(DTensorOnNoMesh, ChecksWhatAGradientIsWantedFor) {
  DTensor ints(Tensor::zeros({2}, DType::kInt32));
  EXPECT_THROW(ints.set_requires_grad(true), ArgumentError);
  DTensor x = leaf({1, 2});
  EXPECT_THROW(scale(x, 2).set_requires_grad(false), ArgumentError);
  EXPECT_THROW(x.set_grad(DTensor(Tensor::zeros({3}))), ArgumentError);
  EXPECT_THROW(x.set_grad(DTensor(Tensor::zeros({2}, DType::kFloat64))), ArgumentError);
  x.set_grad(DTensor(Tensor::zeros({2})));
  EXPECT_TRUE(x.grad().defined());
  x.set_requires_grad(false);
  EXPECT_FALSE(scale(x, 2).requires_grad());
}

TEST(DTensorOnNoMesh, ReplaceIsSeenByEveryHandleAndKeepsTheWish) {
  DTensor x = leaf({1, 2});
  const DTensor other = x;
  x.set_grad(DTensor(Tensor::zeros({2})));
  x.replace(DTensor(Tensor::of<float>({5, 6, 7}, {3})));
  EXPECT_EQ(values(other), (Floats{5, 6, 7}));
  EXPECT_TRUE(other.requires_grad());
  EXPECT_FALSE(other.grad().defined());
}

}  // namespace
}  // namespace dtensor

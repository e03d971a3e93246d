#include "dtensor/ops/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tensor/autograd.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// pytorch#139735: through a view the base is written.
TEST(InPlace, WritesThroughAView) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor ones = distribute(Tensor::full({8, 8}, 1.0), mesh, {Shard(1)});
    fill_(narrow(ones, 0, 0, 2), 0.0);
    EXPECT_EQ(sum(ones).item(), 48.0);
    add_(transpose(ones), 1.0);
    EXPECT_EQ(sum(ones).item(), 48.0 + 64.0);
    EXPECT_EQ(ones.spec().placement(0), Shard(1));
  });
}

// pytorch#139735: where the view was moved, the write would be lost: it is refused and named.
TEST(InPlace, RefusesAViewOfACopyThatAMoveMade) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor ones = distribute(Tensor::full({8, 8}, 1.0), mesh, {Shard(0)});
    const PolicyScope policy(RedistributePolicy::kAuto);
    const DTensor rows = narrow(ones, 0, 3, 3);  // of both ranks, and not as a cut has them
    EXPECT_THAT(placement_error([&] { zero_(rows); }), HasSubstr("a move for narrow made"));
    EXPECT_EQ(sum(ones).item(), 64.0);
    zero_(narrow(ones, 0, 0, 2));  // those of one rank are where they are
    EXPECT_EQ(sum(ones).item(), 48.0);
  });
}

// pytorch#173572, pytorch#164729: what is written is never moved; the other operand is, under auto.
TEST(InPlace, NeverMovesWhatItWrites) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor w = distribute(counted({4, 4}), mesh, {Shard(0)});
    const DTensor u = distribute(counted({4, 4}), mesh, {Shard(1)});
    const DTensor r = distribute(counted({4, 4}), mesh, {Replicate()});
    EXPECT_THAT(placement_error([&] { add_(w, u); }),
                AllOf(HasSubstr("Use redistribute(b, "), Not(HasSubstr("redistribute(a"))));
    add_(w, r);  // silently sliced
    // R += S would cut what is written.
    EXPECT_THAT(placement_error([&] { add_(r, u); }),
                HasSubstr("add_ does not move what it writes"));
    EXPECT_EQ(moved_bytes(), 0);
    const PolicyScope policy(RedistributePolicy::kAuto);
    add_(w, u);
    EXPECT_EQ(w.spec().placement(0), Shard(0));
    EXPECT_EQ(whole(w), whole(mul(r, 3.0)));
    add_(r, u);
    EXPECT_TRUE(r.spec().is_replicated());
    EXPECT_EQ(whole(r), whole(mul(u, 2.0)));
  });
}

// pytorch#159856, pytorch#165962: an op that is not linear has no row for a Partial operand, and
// the operand stays as it was.
TEST(InPlace, RefusesToResolveAPartialOperand) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor x = partial({{70}, {74}}, {1}, mesh);
    for (const auto policy : {RedistributePolicy::kError, RedistributePolicy::kAuto}) {
      const PolicyScope scope(policy);
      EXPECT_NE(placement_error([&] { ops::in_place("relu_", x, [&] { return relu(x); }); }), "");
      EXPECT_NE(placement_error([&] { mul_(x, x); }), "");
    }
    EXPECT_TRUE(x.spec().has_partial());
    EXPECT_THAT(piece(x), ElementsAre(comm.rank() == 0 ? 70 : 74));
    EXPECT_EQ(moved_bytes(), 0);
  });
}

// pytorch#163193: a number counts once.
TEST(InPlace, AddsANumberToAPartialOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor s = sum(distribute(counted({10, 1}), mesh, {Shard(0)}));
    add_(s, 10.0);
    EXPECT_EQ(s.local_tensor().to_vector<float>()[0], comm.rank() == 0 ? 20.0F : 35.0F);
    EXPECT_EQ(s.item(), 55.0);
    sub_(s, 5.0);
    mul_(s, 2.0);
    EXPECT_EQ(s.item(), 100.0);
    fill_(s, 7.0);
    EXPECT_TRUE(s.spec().has_partial());
    EXPECT_EQ(s.item(), 7.0);
    zero_(s);
    EXPECT_EQ(s.item(), 0.0);
  });
}

TEST(InPlace, HasTheValuesOfTheOpWithoutTheUnderscore) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor x = distribute(floats({-4, 2, 6, 8}, {4}), mesh, {Shard(0)});
    div_(x, 2.0);
    EXPECT_THAT(piece(x), comm.rank() == 0 ? ElementsAre(-2, 1) : ElementsAre(3, 4));
    clamp_(x, {.min = 0, .max = 3});
    EXPECT_THAT(piece(x), comm.rank() == 0 ? ElementsAre(0, 1) : ElementsAre(3, 3));
    const DTensor mask =
        distribute(Tensor::of<int64_t>({1, 0, 0, 1}, {4}).to(DType::kBool), mesh, {Replicate()});
    masked_fill_(x, mask, 7.0);
    EXPECT_THAT(piece(x), comm.rank() == 0 ? ElementsAre(7, 1) : ElementsAre(3, 7));
    div_(x, x);
    EXPECT_THAT(piece(x), ElementsAre(1, 1));
  });
}

TEST(InPlace, CopiesFromWhatLiesElsewhereSilentlyOnlyWithoutMessages) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor to = zeros({3, 2}, mesh, {Shard(0)});
    copy_(to, distribute(counted({3, 2}), mesh, {Replicate()}));
    EXPECT_EQ(whole(to), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_NE(placement_error([&] { copy_(to, zeros({3, 2}, mesh, {Shard(1)})); }), "");
    EXPECT_THROW(copy_(to, zeros({2, 3}, mesh, {Shard(0)})), ArgumentError);
    EXPECT_THROW(copy_(to, zeros({3, 2}, mesh, {Shard(0)}, {.dtype = DType::kFloat64})),
                 ArgumentError);
  });
}

TEST(InPlace, RefusesALeafAViewOfItAndRepeatedElements) {
  DTensor w(counted({2, 3}));
  w.set_requires_grad(true);
  EXPECT_THAT(error_of<ArgumentError>([&] { add_(w, 1.0); }), HasSubstr("is a leaf"));
  EXPECT_THAT(error_of<ArgumentError>([&] { zero_(reshape(narrow(w, 0, 0, 1), {3})); }),
              HasSubstr("is a view of a leaf"));
  {
    const NoGrad no_grad;
    add_(w, 1.0);
    zero_(narrow(w, 0, 0, 1));
  }
  EXPECT_EQ(w.local_tensor().to_vector<float>(), (std::vector<float>{0, 0, 0, 4, 5, 6}));
  const DTensor repeated(Tensor::full({1}, 1.0).expand({4}));
  EXPECT_THAT(error_of<ArgumentError>([&] { add_(repeated, 1.0); }), HasSubstr("repeats"));
}

// y = 3 x, y += x y_old ... : the gradient is that of what was written.
TEST(InPlace, GivesTheGradientOfWhatWasWritten) {
  DTensor x(Tensor::of<double>({2, 5}, {2}));
  x.set_requires_grad(true);
  const DTensor y = mul(x, 3.0);
  const DTensor other = mul(x, 1.0);
  add_(y, other);                  // 4 x
  mul_(y, 2.0);                    // 8 x
  mul_(narrow(y, 0, 1, 1), 10.0);  // a view: y itself may not be used any more
  EXPECT_THAT(error_of<Error>([&] { sum(y); }), HasSubstr("was written in place through another"));
  const DTensor z = mul(x, 3.0);
  add_(z, other);
  mul_(z, 2.0);
  sum(z).backward();
  EXPECT_THAT(x.grad().local_tensor().to_vector<double>(), ElementsAre(8, 8));
  const DTensor constant = mul(x, 3.0);
  fill_(constant, 1.0);
  EXPECT_FALSE(constant.requires_grad());
}

TEST(InPlace, OfASavedTensorIsAnErrorInBackward) {
  DTensor x(Tensor::of<double>({2, 5}, {2}));
  x.set_requires_grad(true);
  const DTensor y = mul(x, 3.0);
  DTensor loss = sum(mul(y, y));
  add_(y, 1.0);
  EXPECT_THAT(error_of<Error>([&] { loss.backward(); }),
              AllOf(HasSubstr("backward of mul"), HasSubstr("written in place")));
}

// Rank 1 has no element of y, and says the same.
TEST(InPlace, OfASavedTensorIsAnErrorOnEveryRank) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor w = leaf(floats({2}, {1}), mesh, {Replicate()});
    const DTensor x = distribute(floats({3}, {1}), mesh, {Shard(0)});
    const DTensor y = mul(x, w);
    DTensor loss = sum(mul(y, y));
    add_(y, 1.0);
    EXPECT_THAT(error_of<Error>([&] { loss.backward(); }), HasSubstr("written in place"));
  });
}

TEST(InPlace, CopiesBetweenViewsOfOneMemory) {
  const DTensor x(counted({4}));
  copy_(narrow(x, 0, 0, 2), narrow(x, 0, 2, 2));
  EXPECT_THAT(piece(x), ElementsAre(2, 3, 2, 3));
  const DTensor shifted(counted({4}));
  copy_(narrow(shifted, 0, 1, 3), narrow(shifted, 0, 0, 3));
  EXPECT_THAT(piece(shifted), ElementsAre(0, 0, 1, 2));
  const DTensor square(counted({2, 2}));
  copy_(square, transpose(square));
  EXPECT_THAT(piece(square), ElementsAre(0, 2, 1, 3));
}

TEST(InPlace, CopyPassesItsGradientToTheSource) {
  DTensor x(Tensor::of<double>({2, 5}, {2}));
  x.set_requires_grad(true);
  const DTensor y(Tensor::of<double>({0, 0}, {2}));
  copy_(y, x);
  sum(mul(y, 4.0)).backward();
  EXPECT_THAT(x.grad().local_tensor().to_vector<double>(), ElementsAre(4, 4));
}

// What moved without a message from R to P is the memory of the whole at one coordinate: a write
// would reach one replica of three.
TEST(InPlace, RefusesTheMemoryOfATensorThatIsPlacedOtherwise) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 3}});
    const DTensor x = distribute(counted({2, 3}), mesh, {Replicate()});
    const std::vector<float> before = piece(x);
    const DTensor part = redistribute(x, {Partial()});
    EXPECT_THAT(placement_error([&] { add_(part, 1.0); }), HasSubstr("placed otherwise"));
    EXPECT_THAT(placement_error([&] { zero_(transpose(part)); }), HasSubstr("placed otherwise"));
    EXPECT_THAT(placement_error([&] { mul_(part.detach(), 2.0); }), HasSubstr("placed otherwise"));
    EXPECT_EQ(piece(x), before);
    const DTensor own = mul(part, 1.0);
    mul_(own, 2.0);
    EXPECT_EQ(piece(x), before);
  });
}

// One row on three ranks: one of them has all of it, before and after.
TEST(InPlace, OfASliceOrOfWhatWasGatheredLeavesTheOther) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 3}});
    const DTensor whole = distribute(counted({1, 4}), mesh, {Replicate()});
    const DTensor cut = redistribute(whole, {Shard(0)});
    const std::vector<float> before = piece(cut);
    add_(cut, 1.0);
    EXPECT_THAT(piece(whole), ElementsAre(0, 1, 2, 3));
    const DTensor gathered = redistribute(cut, {Replicate()});
    zero_(gathered);
    EXPECT_THAT(piece(gathered), ElementsAre(0, 0, 0, 0));
    sub_(cut, 1.0);
    EXPECT_EQ(piece(cut), before);
  });
}

// A view made before its base was written: it has the values, and its gradient would not be theirs.
TEST(InPlace, OfABaseMakesItsViewsUnusableWhereTheyWouldLoseTheGradient) {
  DTensor w(Tensor::of<double>({2, 5}, {2}));
  w.set_requires_grad(true);
  const DTensor base(Tensor::of<double>({1, 1}, {2}));
  const DTensor view = narrow(base, 0, 0, 1);
  DTensor wanting = reshape(base, {1, 2});
  wanting.set_requires_grad(true);
  mul_(base, w);
  const auto text = HasSubstr("a value that wants a gradient was written since");
  EXPECT_THAT(error_of<Error>([&] { sum(view); }), text);
  EXPECT_THAT(error_of<Error>([&] { mul(view, w); }), text);
  EXPECT_THAT(error_of<Error>([&] { transpose(reshape(view, {1, 1})); }), text);
  EXPECT_THAT(error_of<Error>([&] { sum(wanting); }), text);
  EXPECT_EQ(sum(view.detach()).item(), 2.0);  // a constant, as asked
  {
    const NoGrad no_grad;
    EXPECT_EQ(sum(view).item(), 2.0);
    mul_(view, 1.0);
  }
  EXPECT_THAT(error_of<Error>([&] { sum(view); }), text);
  const DTensor again = mul(base.detach(), 1.0);
  copy_(again, w);
  sum(mul(narrow(again, 0, 1, 1), 3.0)).backward();  // a view made after the write
  EXPECT_THAT(w.grad().local_tensor().to_vector<double>(), ElementsAre(0, 3));
}

// local and from_local are views, too.
TEST(InPlace, OfWhatIsLocalOfATensorLosesNoGradient) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    DTensor w(counted({2}));
    w.set_requires_grad(true);
    const DTensor x = distribute(counted({2}), mesh, {Replicate()});
    const auto graph = HasSubstr("is a view of a tensor without graph");
    EXPECT_THAT(error_of<ArgumentError>([&] { mul_(local(x), w); }), graph);
    const DTensor own(counted({2}));
    const DTensor whole = from_local(own, mesh, Layout::replicated(mesh.layout(), {2}));
    EXPECT_THAT(error_of<ArgumentError>([&] { mul_(whole, replicate(w, mesh)); }), graph);
    const DTensor seen = local(x);
    mul_(x, replicate(w, mesh));
    EXPECT_THAT(error_of<Error>([&] { sum(mul(seen, w)); }),
                HasSubstr("a value that wants a gradient was written since"));
    const DTensor part = redistribute(distribute(counted({2}), mesh, {Replicate()}), {Partial()});
    EXPECT_THAT(placement_error([&] { zero_(local(part)); }), HasSubstr("placed otherwise"));
    zero_(local(distribute(counted({2}), mesh, {Replicate()})));
  });
}

// Backward from a view, or through one that was saved.
TEST(InPlace, OfABaseIsSeenByBackwardFromItsViews) {
  DTensor x(Tensor::of<double>({2}, {1}));
  x.set_requires_grad(true);
  const DTensor y = mul(x, 3.0);
  DTensor view = reshape(y, Shape{});
  mul_(y, 2.0);
  EXPECT_THAT(error_of<Error>([&] { view.backward(); }),
              HasSubstr("was written in place through another"));
  const DTensor z = mul(x, 3.0);
  const DTensor saved = reshape(z, {1, 1});
  DTensor loss = sum(mul(saved, saved));
  mul_(z, 2.0);
  EXPECT_THAT(error_of<Error>([&] { loss.backward(); }), HasSubstr("written in place"));
  EXPECT_FALSE(x.grad().defined());
}

TEST(InPlace, RefusesAGradientThatAViewWouldLose) {
  DTensor w(counted({2}));
  w.set_requires_grad(true);
  const DTensor base(counted({4}));
  const auto copy = [&] { copy_(narrow(base, 0, 0, 2), w); };
  EXPECT_THAT(error_of<ArgumentError>(copy), HasSubstr("is a view of a tensor without graph"));
  EXPECT_THAT(piece(base), ElementsAre(0, 1, 2, 3));
  const NoGrad no_grad;
  copy();
  EXPECT_THAT(piece(base), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace dtensor

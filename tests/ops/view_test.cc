#include "dtensor/ops/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The sizes of a dim by rank, on a mesh of one dim.
std::vector<int64_t> sizes(const DTensor& t, int dim) {
  std::vector<int64_t> all;
  for (int r = 0; r < t.mesh().size(); ++r) {
    all.push_back(t.layout().range(dim, t.mesh().layout().coordinate_at(r)).size());
  }
  return all;
}

void expect_counted(const DTensor& t) {
  EXPECT_EQ(whole(t), counted(t.shape()).to_vector<float>());
}

// pytorch#179502: a view never returns the numbers of other rows.
TEST(Reshape, RefusesACutThatWouldScatter) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 4}});
    const DTensor x = distribute(counted({12, 8}), mesh, {Shard(1)});
    EXPECT_THAT(placement_error([&] {
                  reshape(x, {16, 6});
                }),
                AllOf(HasSubstr("reshape to [16,6]: a f32[12,8] is S(1) on mesh dim \"tp\""),
                      HasSubstr("Use redistribute(a, {Shard(0)}): 72 bytes per rank, gives S(0)"),
                      HasSubstr("redistribute(a, {Replicate()}): 288 bytes per rank, gives R")));
    const DTensor rows = reshape(redistribute(x, {Shard(0)}), {16, 6});
    EXPECT_EQ(rows.spec().placement(0), Shard(0));
    EXPECT_THAT(sizes(rows, 0), ElementsAre(4, 4, 4, 4));
    expect_counted(rows);
    const PolicyScope policy(RedistributePolicy::kAuto);
    expect_counted(reshape(x, {16, 6}));
  });
}

TEST(Reshape, OfACubeTakesTheFirstDimOfARunOnly) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const auto cube = [&](int d) { return distribute(counted({4, 4, 4}), mesh, {Shard(d)}); };
    EXPECT_NE(placement_error([&] { reshape(cube(1), {8, 8}); }), "");
    const DTensor a = reshape(cube(0), {8, 8});
    EXPECT_EQ(a.spec().placement(0), Shard(0));
    const DTensor b = reshape(cube(2), {16, 4});
    EXPECT_EQ(b.spec().placement(0), Shard(1));
    EXPECT_EQ(moved_bytes(), 0);
    expect_counted(a);
    expect_counted(b);
  });
}

// pytorch#143372: a view of uneven rows carries its unit, or fails alike on all ranks.
TEST(Reshape, CarriesTheUnitOfUnevenRows) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 4}});
    const DTensor flat = reshape(distribute(counted({6, 256}), mesh, {Shard(0)}), {-1});
    EXPECT_THAT(sizes(flat, 0), ElementsAre(512, 256, 512, 256));
    EXPECT_EQ(flat.spec().level(0)->unit, 256);
    const DTensor half = reshape(flat, {12, 128});
    EXPECT_THAT(sizes(half, 0), ElementsAre(4, 2, 4, 2));
    EXPECT_EQ(half.spec().level(0)->unit, 2);
    const DTensor back = reshape(flat, {6, 256});
    EXPECT_THAT(sizes(back, 0), ElementsAre(2, 1, 2, 1));
    EXPECT_THAT(placement_error([&] {
                  reshape(flat, {3, 512});
                }),
                HasSubstr("boundary 768 is no multiple of 512"));
    const DTensor plain = distribute(counted({1536}), mesh, {Shard(0)});
    EXPECT_THAT(placement_error([&] { add(flat, plain); }),
                AllOf(HasSubstr("(512,256,512,256)"), HasSubstr("(384,384,384,384)")));
    const DTensor even = reshape(distribute(counted({8, 256}), mesh, {Shard(0)}), {-1});
    const DTensor sum = add(even, distribute(counted({2048}), mesh, {Shard(0)}));
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_EQ(whole(sum)[2047], 2 * 2047.0F);
    expect_counted(half);
    expect_counted(back);

    const PolicyScope policy(RedistributePolicy::kAuto);
    expect_counted(reshape(flat, {3, 512}));
    EXPECT_EQ(whole(add(flat, plain))[1535], 2 * 1535.0F);
  });
}

// vllm#11797, flash-attention#461, mlx-lm#1863, marin#7247: five heads over two ranks.
TEST(Reshape, FlattensUnevenHeadsForAWeightOfTheSameUnit) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor heads = distribute(counted({1, 5, 12}), mesh, {Shard(1)});
    const DTensor flat = reshape(heads, {1, 60});
    EXPECT_THAT(sizes(flat, 1), ElementsAre(36, 24));
    const Tensor ones = Tensor::full({1, 60}, 1.0);
    const DTensor plain = distribute(ones, mesh, {Shard(1)});
    EXPECT_THAT(placement_error([&] { linear(flat, plain); }),
                AllOf(HasSubstr("(36,24)"), HasSubstr("(30,30)"), HasSubstr(", 12)): 24 bytes")));
    const DTensor w =
        distribute(ones, mesh, Layout::replicated(mesh.layout(), {1, 60}).with(0, Shard(1), 12));
    const DTensor y = linear(flat, w);
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_EQ(piece(y)[0], comm.rank() == 0 ? 630 : 1140);
    EXPECT_THAT(whole(y), ElementsAre(1770));
    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(whole(linear(flat, plain)), ElementsAre(1770));
  });
}

TEST(Reshape, SplitsWholeHeadsOnly) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x(replicate(DTensor(Tensor::full({1, 8}, 1.0)), mesh));
    const Layout r = Layout::replicated(mesh.layout(), {60, 8});
    const DTensor plain = distribute(counted({60, 8}), mesh, r.with(0, Shard(0)));
    const std::string e = placement_error([&] { reshape(linear(x, plain), {1, 5, 12}); });
    EXPECT_THAT(e, HasSubstr("boundary 30 is no multiple of 12"));
    EXPECT_THAT(e, HasSubstr("redistribute(a, a.layout().with(0, Shard(1), 12)): 24 bytes"));
    const DTensor units = distribute(counted({60, 8}), mesh, r.with(0, Shard(0), 12));
    const DTensor heads = reshape(linear(x, units), {1, 5, 12});
    EXPECT_THAT(sizes(heads, 1), ElementsAre(3, 2));
    EXPECT_EQ(moved_bytes(), 0);
  });
}

TEST(Reshape, KeepsCutsOfDimsThatItDoesNotTouchAndOfSizeOne) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const DTensor x = distribute(counted({3, 4, 12}), mesh, {Shard(0), Shard(2)});
    const DTensor y = reshape(x, {3, 1, 4, 6, 2});
    EXPECT_EQ(y.spec().placement(0), Shard(0));
    EXPECT_EQ(y.spec().placement(1), Shard(3));
    expect_counted(y);
    expect_counted(reshape(y, {3, 4, 12}));
    expect_counted(reshape(distribute(counted({1, 6}), mesh, {Shard(0), Shard(1)}), {1, 1, 6}));
    expect_counted(reshape(distribute(counted({1, 6}), mesh, {Replicate(), Shard(1)}), {6}));
    expect_counted(reshape(distribute(counted({1, 6}), mesh, {Shard(0), Replicate()}), {6}));
  });
}

TEST(Reshape, HasNoLayoutForAnotherNumberOfElements) {
  const DTensor x(counted({2, 3}));
  EXPECT_THROW(reshape(x, {4}), ArgumentError);
  EXPECT_THROW(reshape(x, {-1, 4}), ArgumentError);
  EXPECT_THROW(reshape(x, {-1, -1}), ArgumentError);
  EXPECT_EQ(reshape(x, {3, -1}).shape(), (Shape{3, 2}));
  EXPECT_EQ(reshape(DTensor(counted({0, 3})), {3, 0, 2}).shape(), (Shape{3, 0, 2}));
}

TEST(Views, ShareStorage) {
  const DTensor x(counted({2, 3}));
  EXPECT_EQ(transpose(x).local_tensor().storage(), x.local_tensor().storage());
  EXPECT_EQ(reshape(x, {6}).local_tensor().storage(), x.local_tensor().storage());
}

TEST(Views, OfDimsAreThoseOfALoop) {
  const DTensor x(counted({2, 3, 4}));
  const std::vector<float> got = piece(permute(x, {2, 0, -2}));
  std::vector<float> want;
  for (int c = 0; c < 4; ++c) {
    for (int a = 0; a < 2; ++a) {
      for (int b = 0; b < 3; ++b) want.push_back(static_cast<float>((a * 3 + b) * 4 + c));
    }
  }
  EXPECT_EQ(got, want);
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(x).shape(), (Shape{24}));
  EXPECT_EQ(unflatten(x, -1, Shape{2, -1}).shape(), (Shape{2, 3, 2, 2}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(squeeze(unsqueeze(x, 1), 1).shape(), x.shape());
  EXPECT_THROW(squeeze(x, 1), ArgumentError);
  EXPECT_THROW(permute(x, {0, 1, 1}), ArgumentError);
  EXPECT_THROW(permute(x, {0, 1}), ArgumentError);
  EXPECT_THROW(flatten(x, 2, 1), ArgumentError);
  EXPECT_EQ(flatten(DTensor(Tensor::full({}, 3.0))).shape(), (Shape{1}));
  // A transposed piece has no strides of one dim.
  EXPECT_THROW(view(transpose(x), Shape{24}), ArgumentError);
  EXPECT_EQ(view(x, Shape{6, -1}).shape(), (Shape{6, 4}));
}

// Columns of [4,3] over two ranks are pieces of 2 and 1. A piece of one column has strides for any
// shape: it must not become a view where the other is refused, or copied.
TEST(View, OfStridesIsTheSameOnRanksOfOneRow) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor t = transpose(distribute(counted({4, 3}), mesh, {Shard(1)}));
    EXPECT_THROW(view(t, Shape{12}), ArgumentError);
    const DTensor y = reshape(t, Shape{12});
    EXPECT_NE(y.local_tensor().storage(), t.local_tensor().storage());
    EXPECT_THAT(whole(y), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
    const DTensor rows = distribute(counted({3, 4}), mesh, {Shard(0)});
    EXPECT_EQ(view(rows, Shape{12}).local_tensor().storage(), rows.local_tensor().storage());
  });
}

TEST(Expand, RepeatsWhatIsNotCutAndSumsItsGradient) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = leaf(counted({3, 1}), mesh, {Shard(0)});
    const DTensor y = expand(x, Shape{2, -1, 4});
    EXPECT_EQ(y.spec().placement(0), Shard(1));
    EXPECT_EQ(y.local_tensor().storage(), x.local_tensor().storage());
    sum(y).backward();
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_THAT(whole(sum(y, {0, 2})), ElementsAre(0, 8, 16));
    EXPECT_THAT(whole(x.grad()), ElementsAre(8, 8, 8));
    EXPECT_THAT(placement_error([&] { expand(distribute(counted({1}), mesh, {Shard(0)}), {3}); }),
                HasSubstr("expand: a f32[1] is S(0)"));
    EXPECT_THROW(expand(x, Shape{3, 2, 1}), ArgumentError);
    EXPECT_THROW(expand(x, Shape{-1, 3, 1}), ArgumentError);
  });
}

// A move to P(sum) would leave coordinate 0's piece where it lay, with its strides, beside new
// ones.
TEST(View, OfAPartialMadeOfStridesIsTheSameOnEveryRank) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"tp", ranks}});
      const DTensor t = transpose(distribute(counted({4, 3}), mesh, {Replicate()}));
      const DTensor p = redistribute(t, {Partial()});
      const DTensor y = view(p, Shape{12});
      EXPECT_EQ(y.local_tensor().storage(), p.local_tensor().storage());
      EXPECT_THAT(whole(y), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
      EXPECT_EQ(reshape(p, Shape{12}).local_tensor().storage(), p.local_tensor().storage());
    });
  }
}

}  // namespace
}  // namespace dtensor

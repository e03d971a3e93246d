// KvCache: what was appended comes back, in order, on no mesh and cut over ranks.

#include "dtensor/nn/kv_cache.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::nn {
namespace {

// [2,t,3,2], a number per (batch, position, group, feature).
Tensor piece(int64_t first, int64_t t) {
  Tensor out = Tensor::empty({2, t, 3, 2});
  auto* at = out.data<float>();
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < t; ++i) {
      for (int64_t k = 0; k < 6; ++k) *at++ = static_cast<float>(1000 * b + 10 * (first + i) + k);
    }
  }
  return out;
}

TEST(KvCache, KeepsPositionsInOrderAsItGrows) {
  KvCache cache;
  for (const int64_t t : {int64_t{5}, int64_t{1}, int64_t{70}, int64_t{1}}) {
    cache.append(DTensor(piece(cache.length(), t)), DTensor(piece(cache.length() + 500, t)));
  }
  EXPECT_EQ(cache.length(), 77);
  EXPECT_EQ(cache.keys().local_tensor().to_vector<float>(), piece(0, 77).to_vector<float>());
  EXPECT_EQ(cache.values().local_tensor().to_vector<float>(), piece(500, 77).to_vector<float>());
}

TEST(KvCache, KeepsTheCutOfGroupsAlsoWhereARankHasNone) {
  testing::run_ranks(4, [](comm::Comm& world) {
    const DeviceMesh mesh(world, {{"tp", 4}});
    KvCache cache;
    for (int i = 0; i < 3; ++i) {
      const DTensor k = distribute(piece(cache.length(), 2), mesh, {Shard(2)});
      cache.append(k, k);
    }
    EXPECT_EQ(cache.keys().layout(), Layout(mesh.layout(), Shape{2, 6, 3, 2}, {Shard(2)}));
    EXPECT_EQ(full(cache.keys()).to_vector<float>(), piece(0, 6).to_vector<float>());
  });
}

// Two beams go on from one prompt.
TEST(KvCache, AClonedOneGoesOnAlone) {
  KvCache cache;
  EXPECT_EQ(cache.clone().length(), 0);
  cache.append(DTensor(piece(0, 5)), DTensor(piece(500, 5)));
  KvCache other = cache.clone();
  cache.append(DTensor(piece(5, 1)), DTensor(piece(505, 1)));
  for (int i = 0; i < 2; ++i) other.append(DTensor(piece(90, 1)), DTensor(piece(590, 1)));
  EXPECT_EQ(cache.keys().local_tensor().to_vector<float>(), piece(0, 6).to_vector<float>());
  EXPECT_EQ(cache.values().local_tensor().to_vector<float>(), piece(500, 6).to_vector<float>());
  EXPECT_EQ(other.length(), 7);
  EXPECT_EQ(other.keys().local_tensor().narrow(1, 0, 5).to_vector<float>(),
            piece(0, 5).to_vector<float>());
  EXPECT_EQ(other.keys().local_tensor().narrow(1, 6, 1).to_vector<float>(),
            piece(90, 1).to_vector<float>());
  static_assert(!std::is_copy_constructible_v<KvCache>);
}

TEST(KvCache, RefusesWhatDoesNotFit) {
  KvCache cache;
  EXPECT_THROW(static_cast<void>(cache.keys()), ArgumentError);
  EXPECT_THROW(cache.append(DTensor(Tensor::zeros({2, 3})), DTensor(Tensor::zeros({2, 3}))),
               ArgumentError);
  cache.append(DTensor(piece(0, 1)), DTensor(piece(0, 1)));
  const DTensor wider(Tensor::zeros({2, 1, 3, 4}));
  EXPECT_THROW(cache.append(wider, wider), ArgumentError);
  DTensor wanted(piece(0, 1));
  wanted.set_requires_grad(true);
  EXPECT_THROW(cache.append(wanted, wanted), ArgumentError);
  EXPECT_EQ(cache.length(), 1);
}

}  // namespace
}  // namespace dtensor::nn

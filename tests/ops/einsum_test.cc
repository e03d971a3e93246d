#include "dtensor/ops/einsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "dtensor/ops/matmul.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Small whole numbers: every sum is exact.
Tensor numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 11) - 5.0F;
  return floats(values, shape);
}

TEST(Einsum, IsALoopOverAllLetters) {
  const Tensor a = numbers({2, 3, 4});
  const Tensor b = numbers({3, 2, 5});
  const std::vector<float> x = a.to_vector<float>();
  const std::vector<float> y = b.to_vector<float>();
  const auto at_a = [&](int64_t i, int64_t j, int64_t k) {
    return x[static_cast<size_t>((i * 3 + j) * 4 + k)];
  };
  const auto at_b = [&](int64_t j, int64_t i, int64_t n) {
    return y[static_cast<size_t>((j * 2 + i) * 5 + n)];
  };
  std::vector<float> batch(std::size_t{5 * 2 * 4}, 0.0F);  // nik
  std::vector<float> both(20, 0.0F);                       // kn
  std::vector<float> outer_sum(4, 0.0F);                   // k
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t k = 0; k < 4; ++k) {
        for (int64_t n = 0; n < 5; ++n) {
          const float term = at_a(i, j, k) * at_b(j, i, n);
          batch[static_cast<size_t>((n * 2 + i) * 4 + k)] += term;
          both[static_cast<size_t>(k * 5 + n)] += term;
          outer_sum[static_cast<size_t>(k)] += term;
        }
      }
    }
  }
  const DTensor da(a);
  const DTensor db(b);
  EXPECT_EQ(piece(einsum("ijk,jin->nik", da, db)), batch);
  EXPECT_EQ(piece(einsum("ijk,jin->kn", da, db)), both);
  EXPECT_EQ(piece(einsum("ijk,jin->k", da, db)), outer_sum);
  // Strided and empty operands.
  EXPECT_EQ(piece(einsum("jik,jin->kn", DTensor(a.transpose(0, 1)), db)), both);
  // Eight dims, seven of them in the batch.
  const Tensor deep = numbers({1, 2, 1, 2, 1, 1, 1, 3});
  std::vector<float> squares;
  for (const float v : deep.to_vector<float>()) squares.push_back(v * v);
  EXPECT_EQ(piece(einsum("abcdefgh,abcdefgh->abcdefgh", DTensor(deep), DTensor(deep))), squares);
  EXPECT_EQ(piece(einsum("abcdefgh,abcdefgh->abcdefg", DTensor(deep), DTensor(deep))),
            piece(sum(DTensor(floats(squares, deep.shape())), {-1})));
  const DTensor none(Tensor::zeros({3, 0}));
  EXPECT_EQ(piece(einsum("ik,kj->ij", none, DTensor(Tensor::zeros({0, 2})))),
            std::vector<float>(6, 0.0F));
}

TEST(Einsum, LettersAreTheRule) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor a = distribute(numbers({4, 3}), mesh, {Shard(1)});
    const DTensor b = distribute(numbers({3, 5}), mesh, {Shard(0)});
    EXPECT_EQ(einsum("mk,kn->nm", a, b).spec().placement(0), Partial());
    EXPECT_EQ(einsum("ab,bc->ca", distribute(numbers({4, 3}), mesh, {Shard(0)}),
                     distribute(numbers({3, 5}), mesh, {}))
                  .spec()
                  .placement(0),
              Shard(1));
    EXPECT_THAT(placement_error([&] {
                  einsum("mk,kn->nm", a, distribute(numbers({3, 5}), mesh, {Shard(1)}));
                }),
                HasSubstr("no row of mk,kn->nm"));
  });
}

TEST(Einsum, SaysWhatIsWrongWithItsLetters) {
  const DTensor a(numbers({2, 3}));
  for (const char* letters : {"ab", "ab,bc", "ab,bc->ad", "aab,bc->ac", "a1,bc->a", "abc,bc->a"}) {
    EXPECT_THROW(einsum(letters, a, a), ArgumentError) << letters;
  }
  EXPECT_THROW(einsum("ab,bc->ac", a, a), ArgumentError);  // b is 3 and 2
  EXPECT_THROW(outer(a, a), ArgumentError);
}

TEST(Matmul, BroadcastsLeadingDimsAndTakesVectors) {
  const Tensor a = numbers({3, 1, 2, 4});
  const Tensor b = numbers({5, 4, 2});
  const std::vector<float> x = a.to_vector<float>();
  const std::vector<float> y = b.to_vector<float>();
  std::vector<float> want;
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      for (size_t m = 0; m < 2; ++m) {
        for (size_t n = 0; n < 2; ++n) {
          float sum = 0.0F;
          for (size_t k = 0; k < 4; ++k) sum += x[(i * 2 + m) * 4 + k] * y[(j * 4 + k) * 2 + n];
          want.push_back(sum);
        }
      }
    }
  }
  const DTensor got = matmul(DTensor(a), DTensor(b));
  EXPECT_EQ(got.shape(), (Shape{3, 5, 2, 2}));
  EXPECT_EQ(piece(got), want);
  const DTensor v(floats({1, 2}, {2}));
  EXPECT_THAT(piece(matmul(v, DTensor(counted({2, 3})))), ElementsAre(6, 9, 12));
  EXPECT_THAT(piece(matmul(DTensor(counted({3, 2})), v)), ElementsAre(2, 8, 14));
  EXPECT_EQ(matmul(v, v).item(), 5.0);
  EXPECT_EQ(dot(v, v).item(), 5.0);
  EXPECT_THAT(piece(outer(v, v)), ElementsAre(1, 2, 2, 4));
  EXPECT_THROW(matmul(DTensor(numbers({3, 2, 4})), DTensor(b)), ArgumentError);
  EXPECT_THROW(matmul(v, DTensor(Tensor::full({}, 1.0))), ArgumentError);
  EXPECT_THROW(bmm(DTensor(a), DTensor(b)), ArgumentError);
}

}  // namespace
}  // namespace dtensor

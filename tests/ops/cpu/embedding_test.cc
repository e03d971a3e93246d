#include "dtensor/ops/cpu/embedding.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

Tensor random_ids(const Shape& shape, int64_t count, uint64_t seed) {
  std::vector<int64_t> ids(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(philox_at(seed, 1, i)[0] % static_cast<uint64_t>(count));
  }
  return Tensor::of(std::span<const int64_t>(ids), shape);
}

class Embedding : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Embedding, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Embedding, PiecesOfTheTableGiveTheirRowsAndZerosElsewhere) {
  const Tensor table = random({11, 5}, GetParam(), 1);
  const Tensor ids = random_ids({3, 7}, 11, 2);
  for (const Range rows : {Range{0, 11}, Range{0, 4}, Range{4, 9}, Range{9, 11}, Range{5, 5}}) {
    Values want;
    for (const int64_t id : ids.to_vector<int64_t>()) {
      for (int64_t c = 0; c < 5; ++c) {
        const bool here = id >= rows.begin && id < rows.end;
        want.push_back(here ? values(table)[static_cast<size_t>(id * 5 + c)] : 0.0);
      }
    }
    const Tensor piece = table.narrow(0, rows.begin, rows.size());
    const Tensor got = cpu::embedding(piece, ids, rows);
    EXPECT_EQ(got.shape(), (Shape{3, 7, 5}));
    EXPECT_EQ(values(got), want);
    EXPECT_EQ(values(cpu::embedding(strided(piece), strided(ids), rows)), want);
  }
  const Tensor none = cpu::embedding(table, ids.narrow(0, 0, 0), {0, 11});
  EXPECT_EQ(none.shape(), (Shape{0, 7, 5}));
}

TEST_P(Embedding, BackwardAddsTheRowsOfEqualIds) {
  const Tensor ids = random_ids({40}, 11, 3);
  const Tensor g = random({40, 5}, GetParam(), 4);
  for (const Range rows : {Range{0, 11}, Range{3, 8}, Range{8, 8}}) {
    Values want(static_cast<size_t>(rows.size() * 5), 0.0);
    const auto list = ids.to_vector<int64_t>();
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] < rows.begin || list[i] >= rows.end) continue;
      for (size_t c = 0; c < 5; ++c) {
        want[static_cast<size_t>(list[i] - rows.begin) * 5 + c] += values(g)[i * 5 + c];
      }
    }
    const double tolerance = GetParam() == DType::kBFloat16 ? epsilon(GetParam()) : 0;
    const Tensor got = cpu::embedding_backward(strided(g), ids, rows);
    expect_close(got, want, tolerance, 30 * epsilon(DType::kFloat32));
    EXPECT_EQ(got.shape(), (Shape{rows.size(), 5}));
  }
}

// The sum of a row must not depend on which thread adds first.
TEST_P(Embedding, ThreadsDoNotChangeBits) {
  const Tensor ids = random_ids({5000}, 37, 5);  // rows cross the threads' ranges
  const Tensor g = random({5000, 48}, GetParam(), 6);
  const Tensor table = random({37, 48}, GetParam(), 7);
  const auto run = [&] {
    return std::vector{bits(cpu::embedding_backward(g, ids, {0, 37})),
                       bits(cpu::embedding(table, ids, {0, 37}))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(EmbeddingErrors, IdsOutsideTheVocabularyAreNamed) {
  const Tensor ids = Tensor::of<int64_t>({0, 3, -100, 7}, {2, 2});
  EXPECT_NO_THROW(cpu::check_ids(ids, 8, -100, "targets"));
  try {
    cpu::check_ids(ids, 7, -100, "targets");
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("targets has 7 at [1,1]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(cpu::check_ids(ids, 8, std::nullopt, "ids"), ArgumentError);
  EXPECT_NO_THROW(cpu::check_ids(Tensor::zeros({0}, DType::kInt64), 0, std::nullopt, "ids"));
  EXPECT_THROW(cpu::check_ids(Tensor::zeros({1}), 8, std::nullopt, "ids"), ArgumentError);
  EXPECT_THROW(cpu::embedding(Tensor::zeros({4, 2}), ids, {0, 5}), ArgumentError);
  EXPECT_THROW(cpu::embedding_backward(Tensor::zeros({3, 2}), ids, {0, 5}), ArgumentError);
}

}  // namespace
}  // namespace dtensor

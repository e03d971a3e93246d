#include "dtensor/ops/cpu/index.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/cpu/scan.h"
#include "dtensor/ops/cpu/sort.h"
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

Tensor indices(const Shape& shape, int64_t below) {
  std::vector<int64_t> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int64_t>(i * i * 7 + i) % below;
  return Tensor::of(std::span<const int64_t>(v), shape);
}

class Index : public ::testing::TestWithParam<DType> {};

// The pieces of a table, [0,4) and [4,7), pick what they hold; their sum is what the whole picks.
TEST_P(Index, PiecesPickWhatTheyHold) {
  const Tensor a = random({3, 7, 5}, GetParam(), 1);
  const Tensor rows = indices({9}, 7);
  const Tensor places = indices({3, 9, 5}, 7);
  const Values v = values(a);
  const std::vector<int64_t> at = places.to_vector<int64_t>();
  const std::vector<int64_t> row = rows.to_vector<int64_t>();
  for (const Range held : {Range{0, 7}, Range{0, 4}, Range{4, 7}, Range{7, 7}}) {
    const Tensor piece = a.narrow(1, held.begin, held.size());
    Values selected;
    Values gathered;
    for (size_t o = 0; o < 3; ++o) {
      for (size_t w = 0; w < 9; ++w) {
        for (size_t i = 0; i < 5; ++i) {
          const auto pick = [&](int64_t index) {
            const bool there = index >= held.begin && index < held.end;
            return there ? v[(o * 7 + static_cast<size_t>(index)) * 5 + i] : 0.0;
          };
          selected.push_back(pick(row[w]));
          gathered.push_back(pick(at[(o * 9 + w) * 5 + i]));
        }
      }
    }
    EXPECT_EQ(values(cpu::index_select(piece, 1, rows, held)), selected);
    EXPECT_EQ(values(cpu::index_select(strided(piece), 1, strided(rows), held)), selected);
    EXPECT_EQ(values(cpu::gather(piece, 1, places, held)), gathered);
    EXPECT_EQ(values(cpu::gather(strided(piece), 1, strided(places), held)), gathered);
  }
}

TEST_P(Index, SumsAreThoseOfALoopRoundedOnce) {
  const Tensor g = random({3, 9, 5}, GetParam(), 1);
  const Tensor rows = indices({9}, 4);
  const Tensor places = indices({3, 9, 5}, 4);
  const Values v = values(g);
  const std::vector<int64_t> at = places.to_vector<int64_t>();
  const std::vector<int64_t> row = rows.to_vector<int64_t>();
  Values by_row(60, 0.0);
  Values by_place(60, 0.0);
  for (size_t o = 0; o < 3; ++o) {
    for (size_t w = 0; w < 9; ++w) {
      for (size_t i = 0; i < 5; ++i) {
        const size_t from = (o * 9 + w) * 5 + i;
        by_row[(o * 4 + static_cast<size_t>(row[w])) * 5 + i] += v[from];
        by_place[(o * 4 + static_cast<size_t>(at[from])) * 5 + i] += v[from];
      }
    }
  }
  // At most nine additions, then one rounding.
  const double relative = GetParam() == DType::kFloat16 ? 1.0 / 2048 : epsilon(GetParam());
  expect_close(cpu::index_sum(g, 1, rows, {0, 4}), by_row, relative, 1e-6);
  expect_close(cpu::scatter_sum(strided(g), 1, places, {0, 4}), by_place, relative, 1e-6);
}

TEST_P(Index, ThreadsDoNotChangeBits) {
  const Tensor a = random({40, 70, 30}, GetParam(), 1);
  const Tensor rows = indices({70}, 70);
  const Tensor places = indices({40, 70, 30}, 70);
  const auto run = [&] {
    return std::vector{bits(cpu::index_select(a, 1, rows, {0, 70})),
                       bits(cpu::index_sum(a, 1, rows, {0, 70})),
                       bits(cpu::gather(a, 1, places, {0, 70})),
                       bits(cpu::scatter_sum(a, 1, places, {0, 70})),
                       bits(cpu::cumsum(a, 1, cpu::ScanFrom::kFirst)),
                       bits(cpu::cumsum(a, 1, cpu::ScanFrom::kLast)),
                       bits(cpu::sort(a, 1, cpu::Order::kDescending, 9).values),
                       bits(cpu::sort(a, 1, cpu::Order::kAscending, 70).indices)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Index,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace dtensor

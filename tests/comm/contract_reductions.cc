// What reduces: values, dtypes, rounding, order.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::ConstBuffer;
using comm::ReduceOp;
using comm::Segments;

constexpr int64_t kSizes[] = {0, 1, 5, 96, 97, 4099, 100'003};

// op over ranks 0, 1, ... of value_at, in double: exact for these values, but for products of
// many, which the caller leaves out.
double reduced(ReduceOp op, int size, int64_t i) {
  double x = value_at(0, i);
  for (int r = 1; r < size; ++r) {
    const double y = value_at(r, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        x += y;
        break;
      case ReduceOp::kMin:
        x = std::min(x, y);
        break;
      case ReduceOp::kMax:
        x = std::max(x, y);
        break;
      case ReduceOp::kProd:
        x *= y;
        break;
    }
  }
  return x;
}

template <class T>
std::vector<T> want_of(ReduceOp op, int size, int64_t begin, int64_t count) {
  std::vector<T> want;
  for (int64_t i = begin; i < begin + count; ++i) {
    const double x = reduced(op, size, i);
    if constexpr (std::is_same_v<T, double>) {
      want.push_back(op == ReduceOp::kAvg ? x / size : x);
    } else {
      const auto f = static_cast<float>(x);
      want.push_back(T(op == ReduceOp::kAvg ? f / static_cast<float>(size) : f));
    }
  }
  return want;
}

TEST_P(CommContract, AllReduceEqualsALoopAtEverySize) {
  run([](Comm& comm) {
    for (const int64_t n : kSizes) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax}) {
        const auto want = want_of<float>(op, comm.size(), 0, n);
        auto in = values_of<float>(comm.rank(), n);
        std::vector<float> got(in.size(), -99);
        comm.all_reduce(view(std::as_const(in)), view(got), op).wait();
        EXPECT_EQ(got, want) << n;
        comm.all_reduce(view(std::as_const(in)), view(in), op).wait();  // in place
        EXPECT_EQ(in, want) << n;
      }
    }
  });
}

template <class T>
void check_dtype(Comm& comm, const std::vector<ReduceOp>& ops) {
  for (const int64_t n : {3, 9000}) {
    for (const ReduceOp op : ops) {
      const auto in = values_of<T>(comm.rank(), n);
      std::vector<T> got(in.size());
      comm.all_reduce(view(in), view(got), op).wait();
      EXPECT_EQ(got, want_of<T>(op, comm.size(), 0, n)) << comm::name_of(op);
    }
  }
}

TEST_P(CommContract, AllReduceTakesEveryDtype) {
  run([](Comm& comm) {
    std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
    if (comm.size() <= 3)
      ops.push_back(ReduceOp::kProd);  // 6 * 6 * 6 is exact in 8 bits of mantissa
    check_dtype<double>(comm, ops);
    check_dtype<Float16>(comm, ops);
    check_dtype<BFloat16>(comm, ops);
    check_dtype<int32_t>(comm, ops);
    check_dtype<int64_t>(comm, ops);
    ops.resize(3);
    check_dtype<int8_t>(comm, ops);
    check_dtype<double>(comm, {ReduceOp::kAvg});
    check_dtype<BFloat16>(comm, {ReduceOp::kAvg});
  });
}

TEST_P(CommContract, BooleansHaveMinMaxAndProd) {
  run([](Comm& comm) {
    const bool in[3] = {true, comm.rank() == 0, false};
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
      bool got[3] = {};
      comm.all_reduce(ConstBuffer(in, 3, DType::kBool), Buffer{got, 3, DType::kBool}, op).wait();
      EXPECT_TRUE(got[0]);
      EXPECT_EQ(got[1], op == ReduceOp::kMax || comm.size() == 1);
      EXPECT_FALSE(got[2]);
    }
  });
}

TEST_P(CommContract, ReduceGivesTheRootAlone) {
  run([](Comm& comm) {
    for (const int64_t n : kSizes) {
      for (int root = 0; root < comm.size(); ++root) {
        const auto in = values_of<float>(comm.rank(), n);
        std::vector<float> got(comm.rank() == root ? in.size() : 0, -99);
        comm.reduce(view(in), view(got), root, ReduceOp::kSum).wait();
        if (comm.rank() == root) {
          EXPECT_EQ(got, want_of<float>(ReduceOp::kSum, comm.size(), 0, n));
        }
      }
    }
  });
}

TEST_P(CommContract, ReduceScatterLeavesTheOwnSegment) {
  run([](Comm& comm) {
    for (const int64_t scale : {0, 1, 5003}) {
      auto counts = ragged_counts(comm.size());
      for (int64_t& c : counts) c *= scale;
      const Segments segments(counts);
      const int64_t begin = segments.offset(comm.rank());
      const int64_t count = segments.count(comm.rank());
      auto in = values_of<float>(comm.rank(), segments.total());
      const auto want = want_of<float>(ReduceOp::kSum, comm.size(), begin, count);
      std::vector<float> got(static_cast<size_t>(count), -99);
      comm.reduce_scatter_v(view(std::as_const(in)), view(got), segments, ReduceOp::kSum).wait();
      EXPECT_EQ(got, want);
      const auto before = in;
      comm.reduce_scatter_v(view(std::as_const(in)),
                            Buffer{in.data() + begin, count, DType::kFloat32}, segments,
                            ReduceOp::kSum)
          .wait();  // in place
      std::vector<float> want_in = before;
      std::copy(want.begin(), want.end(), want_in.begin() + begin);
      EXPECT_EQ(in, want_in);
    }
  });
}

TEST_P(CommContract, ReduceScatterOfAListReducesEveryItem) {
  run([](Comm& comm) {
    std::vector<std::vector<float>> ins;
    std::vector<std::vector<float>> outs;
    std::vector<Segments> segments;
    for (int item = 0; item < 9; ++item) {
      auto counts = ragged_counts(comm.size());
      std::rotate(counts.begin(), counts.begin() + item % comm.size(), counts.end());
      if (item == 4) {
        for (int64_t& c : counts) c *= 7001;
      }
      segments.emplace_back(counts);
      ins.push_back(values_of<float>(comm.rank() + item, segments.back().total()));
      outs.emplace_back(static_cast<size_t>(segments.back().count(comm.rank())), -99.0F);
    }
    std::vector<ConstBuffer> in;
    std::vector<Buffer> out;
    for (size_t i = 0; i < ins.size(); ++i) {
      in.push_back(view(std::as_const(ins[i])));
      out.push_back(view(outs[i]));
    }
    comm.reduce_scatter_v(in, out, segments, ReduceOp::kSum).wait();
    for (size_t i = 0; i < ins.size(); ++i) {
      std::vector<float> want;
      for (int64_t k = 0; k < segments[i].count(comm.rank()); ++k) {
        float sum = 0;
        for (int r = 0; r < comm.size(); ++r) {
          sum += static_cast<float>(
              value_at(r + static_cast<int>(i), segments[i].offset(comm.rank()) + k));
        }
        want.push_back(sum);
      }
      EXPECT_EQ(outs[i], want) << "item " << i;
    }
  });
}

// pytorch#106395, gloo#454: 1, 256 and -256 in any order sum to 1 in float32 and to 0 or 1 in
// bf16; 256 and six times 1 sum to 262, which bf16 has, where additions in bf16 stay at 256.
TEST_P(CommContract, SixteenBitSumsAccumulateInFloat32) {
  run([](Comm& comm) {
    if (comm.size() == 3) {
      const float orders[6][3] = {{1, 256, -256}, {1, -256, 256}, {256, 1, -256},
                                  {256, -256, 1}, {-256, 1, 256}, {-256, 256, 1}};
      for (const size_t repeat : {size_t{1}, size_t{5000}}) {
        std::vector<BFloat16> in;
        for (size_t i = 0; i < 6 * repeat; ++i) in.emplace_back(orders[i % 6][comm.rank()]);
        std::vector<BFloat16> got(in.size());
        comm.all_reduce(view(std::as_const(in)), view(got), ReduceOp::kSum).wait();
        EXPECT_EQ(got, std::vector<BFloat16>(in.size(), BFloat16(1.0F)));
      }
    }
    for (const size_t n : {size_t{2}, size_t{9001}}) {
      const std::vector<BFloat16> in(n, BFloat16(comm.rank() == 0 ? 256.0F : 1.0F));
      std::vector<BFloat16> got(n);
      comm.all_reduce(view(in), view(got), ReduceOp::kSum).wait();
      const auto want = BFloat16(256.0F + static_cast<float>(comm.size() - 1));
      EXPECT_EQ(got, std::vector<BFloat16>(n, want));
    }
  });
}

// Values whose sum depends on the order: every rank must have the bits of the sum from rank 0 up,
// in every algorithm.
TEST_P(CommContract, TheOrderOfSummationIsThatOfRanks) {
  run([](Comm& comm) {
    const auto at = [](int r, int64_t i) {
      return std::ldexp(1.0F + static_cast<float>((i * 31 + r * 17) % 97) / 97,
                        (r * 5 + static_cast<int>(i)) % 13);
    };
    for (const int64_t n : {7, 3001, 70'001}) {
      std::vector<float> in;
      std::vector<float> want;
      for (int64_t i = 0; i < n; ++i) {
        in.push_back(at(comm.rank(), i));
        float sum = at(0, i);
        for (int r = 1; r < comm.size(); ++r) sum += at(r, i);
        want.push_back(sum);
      }
      std::vector<float> got(in.size());
      comm.all_reduce(view(std::as_const(in)), view(got), ReduceOp::kSum).wait();
      EXPECT_EQ(got, want);
      const Segments segments = Segments::even(n, comm.size());
      std::vector<float> part(static_cast<size_t>(segments.count(comm.rank())));
      comm.reduce_scatter_v(view(std::as_const(in)), view(part), segments, ReduceOp::kSum).wait();
      const auto begin = want.begin() + segments.offset(comm.rank());
      EXPECT_EQ(part, std::vector<float>(begin, begin + segments.count(comm.rank())));
    }
  });
}

// numpy#21218: the sum of -0.0 over all ranks is -0.0; a sum that starts from +0.0 loses it.
template <class T>
bool all_have_bits_of(const T& want, const std::vector<T>& got) {
  return std::all_of(got.begin(), got.end(),
                     [&](const T& x) { return std::memcmp(&x, &want, sizeof(T)) == 0; });
}

template <class T>
void check_negative_zero(Comm& comm) {
  for (const size_t n : {size_t{3}, size_t{20'001}}) {
    const std::vector<T> in(n, T(-0.0F));
    std::vector<T> got(n, T(1.0F));
    comm.all_reduce(view(in), view(got), ReduceOp::kSum).wait();
    EXPECT_TRUE(all_have_bits_of(T(-0.0F), got));
    const Segments segments = Segments::even(static_cast<int64_t>(n), comm.size());
    const auto count = static_cast<size_t>(segments.count(comm.rank()));
    std::vector<T> part(count, T(1.0F));
    comm.reduce_scatter_v(view(in), view(part), segments, ReduceOp::kSum).wait();
    EXPECT_TRUE(all_have_bits_of(T(-0.0F), part));
    std::vector<T> root(comm.rank() == 0 ? n : 0, T(1.0F));
    comm.reduce(view(in), view(root), 0, ReduceOp::kSum).wait();
    EXPECT_TRUE(all_have_bits_of(T(-0.0F), root));
  }
}

TEST_P(CommContract, NegativeZeroSurvivesASum) {
  run([](Comm& comm) {
    check_negative_zero<float>(comm);
    check_negative_zero<double>(comm);
    check_negative_zero<Float16>(comm);
    check_negative_zero<BFloat16>(comm);
  });
}

TEST_P(CommContract, MinAndMaxGiveNaNWhereARankHasIt) {
  run([](Comm& comm) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> in = {comm.rank() == comm.size() - 1 ? nan : 1.0F,
                                   comm.rank() == 0 ? nan : 1.0F};
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> got(2, 0);
      comm.all_reduce(view(in), view(got), op).wait();
      EXPECT_TRUE(std::isnan(got[0]));
      EXPECT_TRUE(std::isnan(got[1]));
    }
  });
}

}  // namespace
}  // namespace dtensor::testing

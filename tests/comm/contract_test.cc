#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

using comm::Comm;
using comm::ReduceOp;
using comm::Segments;

TEST_P(CommContract, AllGatherPutsSegmentsInRankOrderWhenSomeAreEmpty) {
  run([](Comm& comm) {
    const auto counts = ragged_counts(comm.size());
    std::vector<int64_t> want;
    for (int r = 0; r < comm.size(); ++r) {
      want.insert(want.end(), static_cast<size_t>(counts[static_cast<size_t>(r)]), 10 + r);
    }
    const std::vector<int64_t> mine(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]),
                                    10 + comm.rank());
    std::vector<int64_t> got(want.size(), -1);
    comm.all_gather_v(view(mine), view(got), Segments(counts)).wait();
    EXPECT_EQ(got, want);
  });
}

TEST_P(CommContract, AllReduceSumsInEverySize) {
  run([](Comm& comm) {
    for (const int64_t n : {0, 1, 5, 96, 97, 5000, 300'000}) {
      std::vector<float> in;
      std::vector<float> want;
      for (int64_t i = 0; i < n; ++i) {
        in.push_back(static_cast<float>(value_at(comm.rank(), i)));
        float sum = 0;
        for (int r = 0; r < comm.size(); ++r) sum += static_cast<float>(value_at(r, i));
        want.push_back(sum);
      }
      std::vector<float> got(in.size(), -99);
      comm.all_reduce(view(in), view(got), ReduceOp::kSum).wait();
      EXPECT_EQ(got, want) << n;
      comm.all_reduce(view(in), view(in), ReduceOp::kSum).wait();
      EXPECT_EQ(in, want) << n;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Local, CommContract, ::testing::ValuesIn(local_worlds()), name_of);

}  // namespace
}  // namespace dtensor::testing

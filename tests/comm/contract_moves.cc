// What moves data: gathers, scatters, broadcasts, exchanges.

#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::ConstBuffer;
using comm::P2P;
using comm::Segments;

// Ragged in the small, and large enough to be sent beside the first message.
std::vector<std::vector<int64_t>> count_lists(int size) {
  std::vector<std::vector<int64_t>> lists = {ragged_counts(size)};
  lists.push_back(std::vector<int64_t>(static_cast<size_t>(size), 0));
  lists.push_back(std::vector<int64_t>(static_cast<size_t>(size), 1));
  lists.push_back(ragged_counts(size));
  for (int64_t& c : lists.back()) c *= 9001;
  lists.push_back(std::vector<int64_t>(static_cast<size_t>(size), 0));
  lists.back().back() = 5;
  return lists;
}

// Rank r sends r * 1000000 + i at index i.
std::vector<int32_t> marked(int r, int64_t count) {
  std::vector<int32_t> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(r * 1000000 + static_cast<int32_t>(i));
  return v;
}

std::vector<int32_t> concatenated(const std::vector<int64_t>& counts) {
  std::vector<int32_t> all;
  for (size_t r = 0; r < counts.size(); ++r) {
    for (const int32_t x : marked(static_cast<int>(r), counts[r])) all.push_back(x);
  }
  return all;
}

// nccl#788
TEST_P(CommContract, AllGatherPutsSegmentsInRankOrderWhenSomeAreEmpty) {
  run([](Comm& comm) {
    for (const auto& counts : count_lists(comm.size())) {
      const auto want = concatenated(counts);
      const auto mine = marked(comm.rank(), counts[static_cast<size_t>(comm.rank())]);
      std::vector<int32_t> got(want.size(), -1);
      comm.all_gather_v(view(mine), view(got), Segments(counts)).wait();
      EXPECT_EQ(got, want);
    }
  });
}

TEST_P(CommContract, AllGatherInPlaceTakesTheOwnSegmentOfTheOutput) {
  run([](Comm& comm) {
    for (const auto& counts : count_lists(comm.size())) {
      const auto want = concatenated(counts);
      const auto mine = marked(comm.rank(), counts[static_cast<size_t>(comm.rank())]);
      const Segments segments(counts);
      std::vector<int32_t> got(want.size(), -1);
      int32_t* own = got.data() + segments.offset(comm.rank());
      std::copy(mine.begin(), mine.end(), own);
      comm.all_gather_v(ConstBuffer(own, segments.count(comm.rank()), DType::kInt32), view(got),
                        segments)
          .wait();
      EXPECT_EQ(got, want);
    }
  });
}

TEST_P(CommContract, AllGatherOfAListMovesEveryItemAndDtype) {
  run([](Comm& comm) {
    const int size = comm.size();
    // Many small items, one large, one empty, of two dtypes.
    std::vector<std::vector<int64_t>> counts;
    for (int i = 0; i < 12; ++i) counts.push_back(ragged_counts(size));
    counts[5] = std::vector<int64_t>(static_cast<size_t>(size), 20000);
    counts[7] = std::vector<int64_t>(static_cast<size_t>(size), 0);
    std::vector<std::vector<int32_t>> in32;
    std::vector<std::vector<int64_t>> in64;
    std::vector<std::vector<int32_t>> out32(counts.size());
    std::vector<std::vector<int64_t>> out64(counts.size());
    std::vector<ConstBuffer> in;
    std::vector<Buffer> out;
    std::vector<Segments> segments;
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t mine = counts[i][static_cast<size_t>(comm.rank())];
      in32.push_back(marked(comm.rank(), mine));
      in64.emplace_back(in32.back().begin(), in32.back().end());
      const auto all = static_cast<size_t>(total(counts[i]));
      out32[i].assign(all, -1);
      out64[i].assign(all, -1);
      in.push_back(i % 2 == 0 ? view(std::as_const(in32[i])) : view(std::as_const(in64[i])));
      out.push_back(i % 2 == 0 ? view(out32[i]) : view(out64[i]));
      segments.emplace_back(counts[i]);
    }
    // The vectors of `in` moved while they were filled: take their addresses now.
    for (size_t i = 0; i < counts.size(); ++i) {
      in[i] = i % 2 == 0 ? view(std::as_const(in32[i])) : view(std::as_const(in64[i]));
    }
    comm.all_gather_v(in, out, segments).wait();
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto want = concatenated(counts[i]);
      if (i % 2 == 0) {
        EXPECT_EQ(out32[i], want) << i;
      } else {
        EXPECT_EQ(out64[i], std::vector<int64_t>(want.begin(), want.end())) << i;
      }
    }
  });
}

TEST_P(CommContract, BroadcastGivesEveryRankTheRootsValues) {
  run([](Comm& comm) {
    for (const int64_t n : {0, 1, 7, 96, 97, 5000, 200'000}) {
      for (int root = 0; root < comm.size(); ++root) {
        auto x = comm.rank() == root ? marked(root, n)
                                     : std::vector<int32_t>(static_cast<size_t>(n), -1);
        comm.broadcast(view(x), root).wait();
        EXPECT_EQ(x, marked(root, n)) << "root " << root;
      }
    }
  });
}

TEST_P(CommContract, GatherAndScatterAreOpposites) {
  run([](Comm& comm) {
    for (const auto& counts : count_lists(comm.size())) {
      for (int root = 0; root < comm.size(); ++root) {
        const auto all = concatenated(counts);
        const auto mine = marked(comm.rank(), counts[static_cast<size_t>(comm.rank())]);
        std::vector<int32_t> gathered(comm.rank() == root ? all.size() : 0, -1);
        comm.gather_v(view(mine), view(gathered), Segments(counts), root).wait();
        if (comm.rank() == root) {
          EXPECT_EQ(gathered, all);
        }
        std::vector<int32_t> back(mine.size(), -1);
        comm.scatter_v(view(std::as_const(gathered)), view(back), Segments(counts), root).wait();
        EXPECT_EQ(back, mine);
      }
    }
  });
}

TEST_P(CommContract, GatherAndScatterInPlaceTakeTheRootsOwnSegmentOfTheWhole) {
  run([](Comm& comm) {
    for (const auto& counts : count_lists(comm.size())) {
      for (int root = 0; root < comm.size(); ++root) {
        const auto all = concatenated(counts);
        const Segments segments(counts);
        auto mine = marked(comm.rank(), segments.count(comm.rank()));
        std::vector<int32_t> whole(comm.rank() == root ? all.size() : 0, -1);
        Buffer own = view(mine);
        if (comm.rank() == root) {
          own.data = whole.data() + segments.offset(root);
          std::copy(mine.begin(), mine.end(), whole.begin() + segments.offset(root));
        }
        comm.gather_v(own, view(whole), segments, root).wait();
        if (comm.rank() == root) {
          EXPECT_EQ(whole, all);
        } else {
          mine.assign(mine.size(), -1);
        }
        comm.scatter_v(view(std::as_const(whole)), own, segments, root).wait();
        if (comm.rank() == root) {
          EXPECT_EQ(whole, all);
        } else {
          EXPECT_EQ(mine, marked(comm.rank(), segments.count(comm.rank())));
        }
      }
    }
  });
}

// Rank r sends (2r + p) % 4 elements (times `scale`) to rank p: some pairs send nothing, and to
// and from differ.
TEST_P(CommContract, AllToAllMovesRaggedSegments) {
  run([](Comm& comm) {
    for (const int64_t scale : {1, 5000}) {
      const auto count = [&](int from, int to) { return (2 * from + to) % 4 * scale; };
      std::vector<int64_t> to;
      std::vector<int64_t> from;
      std::vector<int32_t> in;
      std::vector<int32_t> want;
      for (int p = 0; p < comm.size(); ++p) {
        to.push_back(count(comm.rank(), p));
        from.push_back(count(p, comm.rank()));
        for (const int32_t x : marked(100 * comm.rank() + p, to.back())) in.push_back(x);
        for (const int32_t x : marked(100 * p + comm.rank(), from.back())) want.push_back(x);
      }
      std::vector<int32_t> got(want.size(), -1);
      comm.all_to_all_v(view(std::as_const(in)), Segments(to), view(got), Segments(from)).wait();
      EXPECT_EQ(got, want);
    }
  });
}

// Aluminum#229: rank 0 sends to 1 only and 1 to 2 only.
TEST_P(CommContract, AllToAllOfAChainSendsToOneNeighbour) {
  run([](Comm& comm) {
    std::vector<int64_t> to(static_cast<size_t>(comm.size()), 0);
    std::vector<int64_t> from = to;
    if (comm.rank() < 2 && comm.rank() + 1 < comm.size())
      to[static_cast<size_t>(comm.rank() + 1)] = 3;
    if (comm.rank() == 1 || comm.rank() == 2) from[static_cast<size_t>(comm.rank() - 1)] = 3;
    const auto in = marked(comm.rank(), total(to));
    std::vector<int32_t> got(static_cast<size_t>(total(from)), -1);
    comm.all_to_all_v(view(in), Segments(to), view(got), Segments(from)).wait();
    EXPECT_EQ(got, marked(comm.rank() - 1, total(from)));
  });
}

TEST_P(CommContract, ExchangeMovesAnySetOfLegs) {
  run([](Comm& comm) {
    // To every rank p: p + 1 legs of 0, 1, 2, ... elements; and one large leg to the next rank.
    std::vector<std::vector<int32_t>> data;
    std::vector<P2P::Direction> directions;
    std::vector<int> peers;
    const auto leg = [&](P2P::Direction d, int peer, std::vector<int32_t> values) {
      data.push_back(std::move(values));
      directions.push_back(d);
      peers.push_back(peer);
    };
    std::vector<std::vector<int32_t>> want;
    for (int p = 0; p < comm.size(); ++p) {
      for (int k = 0; k <= p; ++k) leg(P2P::Direction::kSend, p, marked(comm.rank() + 10 * k, k));
      for (int k = 0; k <= comm.rank(); ++k) {
        want.resize(data.size() + 1);
        want.back() = marked(p + 10 * k, k);
        leg(P2P::Direction::kReceive, p, std::vector<int32_t>(static_cast<size_t>(k), -1));
      }
    }
    const int next = (comm.rank() + 1) % comm.size();
    const int last = (comm.rank() + comm.size() - 1) % comm.size();
    leg(P2P::Direction::kSend, next, marked(comm.rank(), 30000));
    want.resize(data.size() + 1);
    want.back() = marked(last, 30000);
    leg(P2P::Direction::kReceive, last, std::vector<int32_t>(30000, -1));
    std::vector<P2P> legs;
    for (size_t i = 0; i < data.size(); ++i)
      legs.push_back({directions[i], peers[i], view(data[i])});
    comm.exchange(legs).wait();
    for (size_t i = 0; i < data.size(); ++i) {
      if (directions[i] == P2P::Direction::kReceive) {
        EXPECT_EQ(data[i], want[i]) << "leg " << i;
      }
    }
    comm.exchange({}).wait();
  });
}

TEST_P(CommContract, AWorldOfOneSendsNothing) {
  if (size() != 1) GTEST_SKIP() << "for one rank";
  run([](Comm& comm) {
    std::vector<float> x(1000, 2);
    std::vector<float> y(1000, -1);
    comm.all_reduce(view(x), view(y), comm::ReduceOp::kAvg).wait();
    EXPECT_EQ(y, x);
    comm.all_gather_v(view(std::as_const(x)), view(y), Segments::even(1000, 1)).wait();
    comm.barrier().wait();
    comm.shutdown();
    EXPECT_EQ(comm.counters().wire_bytes_sent, 0);
    EXPECT_EQ(comm.counters().calls, 4);
  });
}

}  // namespace
}  // namespace dtensor::testing

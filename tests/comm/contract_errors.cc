// What is refused: wrong arguments, on the rank that gives them; different calls, on every rank.

#include <string>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::CommErrorKind;
using comm::ConstBuffer;
using comm::P2P;
using comm::ReduceOp;
using comm::Segments;

// nccl#1394, nccl#1417, vllm#45092: all ranks get a Mismatch with one text, which names each of
// `words`.
using Failures = std::vector<std::optional<comm::CommError::Fields>>;
void expect_mismatch(const Failures& failures, const std::vector<std::string>& words) {
  for (const auto& f : failures) {
    ASSERT_TRUE(f.has_value());
    EXPECT_EQ(f->kind, CommErrorKind::kMismatch);
    EXPECT_TRUE(f->proved);
    EXPECT_EQ(f->culprit, failures[0]->culprit);
    EXPECT_EQ(f->detail, failures[0]->detail);
    for (const auto& word : words) EXPECT_NE(f->detail.find(word), std::string::npos) << f->detail;
  }
}

TEST_P(CommContract, DifferentCountsAreAMismatchOnEveryRank) {
  if (size() < 3) GTEST_SKIP() << "for three ranks and more";
  for (const size_t n : {size_t{10}, size_t{100'000}}) {
    const auto failed = failures([n](Comm& comm) {
      std::vector<float> x(comm.rank() == 0 ? n : 2 * n, 1);
      comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
    });
    expect_mismatch(failed, {"all_reduce sum f32[" + std::to_string(n) + "]",
                             "all_reduce sum f32[" + std::to_string(2 * n) + "]", "rank 0", "#0"});
    for (const auto& f : failed) EXPECT_TRUE(f->culprit == 0 || f->culprit == -1) << f->culprit;
  }
}

TEST_P(CommContract, DifferentOperationsAreAMismatchOnEveryRank) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  expect_mismatch(failures([](Comm& comm) {
                    comm.barrier().wait();
                    std::vector<float> x(10, 1);
                    std::vector<float> y(10 * static_cast<size_t>(comm.size()), 1);
                    if (comm.rank() == comm.size() - 1) {
                      comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
                    } else {
                      comm.all_gather_v(view(std::as_const(x)), view(y),
                                        Segments::even(10 * comm.size(), comm.size()))
                          .wait();
                    }
                  }),
                  {"all_reduce", "all_gather_v", "#1"});
}

TEST_P(CommContract, DifferentRootsDtypesAndReductionsAreMismatches) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  expect_mismatch(failures([](Comm& comm) {
                    std::vector<float> x(10, 1);
                    comm.broadcast(view(x), comm.rank() == 1 ? 1 : 0).wait();
                  }),
                  {"with root 0", "with root 1"});
  expect_mismatch(failures([](Comm& comm) {
                    std::vector<float> f(10, 1);
                    std::vector<int32_t> i(10, 1);
                    const Buffer x = comm.rank() == 1 ? view(i) : view(f);
                    comm.all_reduce(x, x, ReduceOp::kSum).wait();
                  }),
                  {"i32[10]", "f32[10]"});
  expect_mismatch(failures([](Comm& comm) {
                    std::vector<float> x(10, 1);
                    const auto op = comm.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum;
                    comm.all_reduce(view(std::as_const(x)), view(x), op).wait();
                  }),
                  {"all_reduce max", "all_reduce sum"});
}

// Equal in everything but the label, and in another order on the last rank.
TEST_P(CommContract, CallsInAnotherOrderAreAMismatchByTheirLabels) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  expect_mismatch(
      failures([](Comm& comm) {
        const bool swapped = comm.rank() == comm.size() - 1;
        std::vector<float> x(3, 1);
        std::vector<float> y(3 * static_cast<size_t>(comm.size()), 1);
        const auto even = Segments::even(3 * comm.size(), comm.size());
        for (const int k : {0, 1}) {
          const char* label = (k == 0) == swapped ? "B" : "A";
          comm.all_gather_v(view(std::as_const(x)), view(y), even, {.label = label}).wait();
        }
      }),
      {"\"A\"", "\"B\"", "#0"});
}

TEST_P(CommContract, OneCallMoreBeforeShutdownIsAMismatch) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  expect_mismatch(failures([](Comm& comm) {
                    std::vector<float> x(3, 1);
                    if (comm.rank() == 1) comm.broadcast(view(x), 1).wait();
                    comm.shutdown();
                  }),
                  {"broadcast", "shutdown"});
}

// Counts that only two ranks share: those two find it in this call, the others by the next.
TEST_P(CommContract, SegmentsOfAPairThatDifferAreAMismatch) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  for (const int64_t n : {3, 50'000}) {
    expect_mismatch(failures([n](Comm& comm) {
                      std::vector<int64_t> to(static_cast<size_t>(comm.size()), n);
                      auto from = to;
                      if (comm.rank() == 1) from[0] = n - 1;
                      const std::vector<float> in(static_cast<size_t>(total(to)), 1);
                      std::vector<float> out(static_cast<size_t>(total(from)), 1);
                      comm.all_to_all_v(view(in), Segments(to), view(out), Segments(from)).wait();
                      comm.barrier().wait();
                    }),
                    {"rank 0 sends", "to rank 1"});
    expect_mismatch(failures([n](Comm& comm) {
                      std::vector<float> x(static_cast<size_t>(n), 1);
                      std::vector<P2P> legs;
                      if (comm.rank() == 0) legs.push_back({P2P::Direction::kSend, 1, view(x)});
                      comm.exchange(legs).wait();  // rank 1 expects nothing
                      comm.barrier().wait();
                    }),
                    {"exchange", "rank 0 sends"});
  }
}

// Dead is dead: the same error again, at once, from every later call.
TEST_P(CommContract, ADeadCommThrowsItsFirstErrorAgain) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  run([](Comm& comm) {
    std::vector<float> x(comm.rank() == 0 ? 1 : 2, 1);
    std::string first;
    try {
      comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
      ADD_FAILURE() << "a mismatch passed";
    } catch (const comm::CommError& e) {
      first = e.what();
    }
    for (int k = 0; k < 2; ++k) {
      try {
        comm.barrier().wait();
        ADD_FAILURE() << "a dead Comm worked";
      } catch (const comm::CommError& e) {
        EXPECT_EQ(e.what(), first);
      }
    }
    EXPECT_THROW(comm.shutdown(), comm::CommError);
  });
}

TEST_P(CommContract, AbortEndsAWaitOnEveryRankWithItsReason) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  const auto failed = failures([](Comm& comm) {
    if (comm.rank() == 1) {
      comm.abort("the user said so");
      comm.abort("a second reason does not count");
    }
    comm.barrier().wait();
    comm.barrier().wait();
  });
  for (const auto& f : failed) {
    ASSERT_TRUE(f.has_value());
    EXPECT_EQ(f->kind, CommErrorKind::kAborted);
    EXPECT_EQ(f->culprit, 1);
    EXPECT_NE(f->detail.find("the user said so"), std::string::npos) << f->detail;
  }
}

// As a rank does that throws and unwinds: its reason comes before its leaving.
TEST_P(CommContract, AbortByARankThatLeavesAtOnceIsHeard) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  const auto failed = failures([](Comm& comm) {
    if (comm.rank() == 1) return comm.abort("the user said so");
    comm.barrier().wait();
    comm.barrier().wait();
  });
  for (size_t r = 0; r < failed.size(); ++r) {
    if (r == 1) continue;
    ASSERT_TRUE(failed[r].has_value());
    EXPECT_EQ(failed[r]->kind, CommErrorKind::kAborted);
    EXPECT_EQ(failed[r]->culprit, 1);
    EXPECT_NE(failed[r]->detail.find("the user said so"), std::string::npos) << failed[r]->detail;
  }
}

TEST_P(CommContract, WrongArgumentsAreRefusedAndNothingIsSent) {
  run([](Comm& comm) {
    const int size = comm.size();
    std::vector<float> x(8, 1);
    std::vector<float> y(8, 1);
    std::vector<int32_t> i(8, 1);
    const auto cx = view(std::as_const(x));
    const auto refused = [](const std::function<comm::Work()>& call) {
      EXPECT_THROW((void)call(), ArgumentError);
    };
    refused([&] { return comm.broadcast(view(x), size); });
    refused([&] { return comm.broadcast(view(x), -1); });
    refused([&] { return comm.broadcast(Buffer{nullptr, 3}, 0); });
    refused([&] { return comm.broadcast(Buffer{x.data(), -3}, 0); });
    refused([&] { return comm.all_reduce(cx, view(i), ReduceOp::kSum); });
    refused([&] { return comm.all_reduce(cx, Buffer{y.data(), 7}, ReduceOp::kSum); });
    refused([&] { return comm.all_reduce(view(i), view(i), ReduceOp::kAvg); });
    const bool flags[2] = {true, false};
    bool out[2] = {};
    refused([&] {
      return comm.all_reduce(ConstBuffer(flags, 2, DType::kBool), Buffer{out, 2, DType::kBool},
                             ReduceOp::kSum);
    });
    refused([&] { return comm.all_gather_v(cx, view(y), Segments::even(8, size + 1)); });
    refused([&] {
      return comm.reduce_scatter_v(cx, view(y), Segments::even(9, size), ReduceOp::kSum);
    });
    const P2P leg{P2P::Direction::kSend, size, view(x)};
    refused([&] { return comm.exchange(std::span(&leg, 1)); });
    const P2P alone{P2P::Direction::kReceive, comm.rank(), view(x)};
    refused([&] { return comm.exchange(std::span(&alone, 1)); });
    EXPECT_EQ(comm.counters().calls, 0);
    comm.barrier().wait();  // and the Comm lives
    EXPECT_EQ(comm.counters().calls, 1);
  });
}

// Memory that is none, of another dtype and of a device: on a rank that is not the root it has no
// meaning, on the root it is refused.
TEST_P(CommContract, WhatOnlyTheRootUsesIsNotLookedAtElsewhere) {
  run([](Comm& comm) {
    const int size = comm.size();
    const Device nowhere{DeviceType::kCuda, 5};
    const Buffer ill{reinterpret_cast<void*>(8), 1000, DType::kInt64, nowhere};
    for (int root = 0; root < size; ++root) {
      const bool mine = comm.rank() == root;
      std::vector<float> x(3, static_cast<float>(comm.rank() + 1));
      std::vector<float> sum(3, -1);
      const auto cx = view(std::as_const(x));
      comm.reduce(cx, mine ? view(sum) : ill, root, ReduceOp::kSum).wait();
      const auto want = static_cast<float>(size * (size + 1) / 2);
      EXPECT_EQ(sum, std::vector<float>(3, mine ? want : -1));

      std::vector<float> all(3 * static_cast<size_t>(size), -1);
      const Segments even = Segments::even(3 * size, size);
      comm.gather_v(cx, mine ? view(all) : ill, even, root).wait();
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i], mine ? static_cast<float>(i / 3 + 1) : -1);
      }

      std::vector<float> part(3, -1);
      comm.scatter_v(mine ? ConstBuffer(view(all)) : ConstBuffer(ill), view(part), even, root)
          .wait();
      EXPECT_EQ(part, x);
      if (mine) {
        const Buffer elsewhere{sum.data(), 3, DType::kFloat32, nowhere};
        EXPECT_THROW((void)comm.reduce(cx, elsewhere, root, ReduceOp::kSum), ArgumentError);
        EXPECT_THROW((void)comm.gather_v(cx, ill, even, root), ArgumentError);
        EXPECT_THROW((void)comm.scatter_v(ConstBuffer(ill), view(part), even, root), ArgumentError);
      }
      comm.barrier().wait();
    }
  });
}

// Aluminum#22, Aluminum#92: overlap by half.
TEST_P(CommContract, OverlappingBuffersAreRefused) {
  run([](Comm& comm) {
    const auto n = 4 * static_cast<int64_t>(comm.size());
    std::vector<float> x(static_cast<size_t>(3 * n), 1);
    const Segments even = Segments::even(n, comm.size());
    const ConstBuffer in(x.data(), n, DType::kFloat32);
    const Buffer half{x.data() + n / 2, n, DType::kFloat32};
    const ConstBuffer quarter(x.data() + 1, 4, DType::kFloat32);
    const Buffer part{x.data() + 1, 4, DType::kFloat32};
    const Buffer whole{x.data(), n, DType::kFloat32};
    EXPECT_THROW((void)comm.all_reduce(in, half, ReduceOp::kSum), ArgumentError);
    EXPECT_THROW((void)comm.all_gather_v(quarter, whole, even), ArgumentError);
    EXPECT_THROW((void)comm.reduce_scatter_v(in, part, even, ReduceOp::kSum), ArgumentError);
    EXPECT_THROW((void)comm.all_to_all_v(in, even, whole, even), ArgumentError);
    EXPECT_THROW((void)comm.gather_v(quarter, whole, even, comm.rank()), ArgumentError);
    EXPECT_THROW((void)comm.scatter_v(in, part, even, comm.rank()), ArgumentError);
    const P2P legs[2] = {{P2P::Direction::kReceive, 0, whole}, {P2P::Direction::kSend, 0, half}};
    EXPECT_THROW((void)comm.exchange(legs), ArgumentError);
    comm.barrier().wait();
  });
}

}  // namespace
}  // namespace dtensor::testing

// What comm/nccl asks of NCCL, when, and how it ends; with a stand-in for the libraries.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/tests/comm/nccl/stand_in.h"
#include "dtensor/tests/comm/nccl/world.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::CommError;
using comm::CommErrorKind;
using comm::P2P;
using comm::ReduceOp;
using comm::Segments;
using stand_in::Issued;

constexpr Device kGpu{DeviceType::kCuda, 0};

Buffer on_gpu(std::vector<float>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), DType::kFloat32, kGpu};
}

// What NCCL was asked for by a call.
std::vector<Issued> asked(Comm& comm, const std::function<comm::Work()>& call) {
  stand_in::take_groups(comm.rank());
  call().wait();
  const auto groups = stand_in::take_groups(comm.rank());
  EXPECT_EQ(groups.size(), 1U);
  return groups.empty() ? std::vector<Issued>{} : groups[0];
}

void expect_no_faults() { EXPECT_EQ(stand_in::take_faults(), std::vector<std::string>{}); }

TEST(Nccl, EqualSegmentsAreOneCallAndRaggedOnesABroadcastEach) {
  run_ranks(hybrid_world(3), [](Comm& comm) {
    std::vector<float> in(4, static_cast<float>(comm.rank()));
    std::vector<float> out(12);
    const auto equal = asked(
        comm, [&] { return comm.all_gather_v(on_gpu(in), on_gpu(out), Segments::even(12, 3)); });
    EXPECT_EQ(equal, (std::vector<Issued>{{"AllGather", 4, ncclFloat32, -1}}));

    const std::vector<int64_t> counts = {3, 0, 2};
    std::vector<float> mine(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]),
                            static_cast<float>(comm.rank()));
    std::vector<float> all(5, -1);
    const auto ragged =
        asked(comm, [&] { return comm.all_gather_v(on_gpu(mine), on_gpu(all), Segments(counts)); });
    EXPECT_EQ(ragged, (std::vector<Issued>{{"Broadcast", 3, ncclFloat32, 0},
                                           {"Broadcast", 2, ncclFloat32, 2}}));
    EXPECT_EQ(all, (std::vector<float>{0, 0, 0, 2, 2}));
  });
  expect_no_faults();
}

TEST(Nccl, ListsAreOneGroup) {
  run_ranks(hybrid_world(2), [](Comm& comm) {
    std::vector<float> a(2, 1);
    std::vector<float> b(comm.rank() == 0 ? 3 : 0, 2);
    std::vector<float> a_out(4);
    std::vector<float> b_out(3);
    const std::vector<comm::ConstBuffer> in = {on_gpu(a), on_gpu(b)};
    const std::vector<Buffer> out = {on_gpu(a_out), on_gpu(b_out)};
    const std::vector<Segments> segments = {Segments::even(4, 2),
                                            Segments(std::vector<int64_t>{3, 0})};
    const auto group = asked(comm, [&] { return comm.all_gather_v(in, out, segments); });
    EXPECT_EQ(group, (std::vector<Issued>{{"AllGather", 2, ncclFloat32, -1},
                                          {"Broadcast", 3, ncclFloat32, 0}}));
    EXPECT_EQ(b_out, std::vector<float>(3, 2));
  });
  expect_no_faults();
}

// A rank without legs asks nothing; a rank's own legs are copies.
TEST(Nccl, AnExchangeIsSendsAndReceivesOfThoseWhoHaveAny) {
  run_ranks(hybrid_world(3), [](Comm& comm) {
    std::vector<float> a(5, 7);
    std::vector<float> b(5);
    std::vector<float> c(5);
    std::vector<P2P> legs;
    if (comm.rank() == 0) {
      legs = {{P2P::Direction::kSend, 1, on_gpu(a)},
              {P2P::Direction::kSend, 0, on_gpu(a)},
              {P2P::Direction::kReceive, 0, on_gpu(b)}};
    } else if (comm.rank() == 1) {
      legs = {{P2P::Direction::kReceive, 0, on_gpu(c)}};
    }
    stand_in::take_groups(comm.rank());
    comm.exchange(legs).wait();
    const auto groups = stand_in::take_groups(comm.rank());
    if (comm.rank() == 0) {
      EXPECT_EQ(groups.at(0), (std::vector<Issued>{{"Send", 5, ncclFloat32, 1}}));
      EXPECT_EQ(b, a);
    } else if (comm.rank() == 1) {
      EXPECT_EQ(groups.at(0), (std::vector<Issued>{{"Recv", 5, ncclFloat32, 0}}));
      EXPECT_EQ(c, a);
    } else {
      EXPECT_TRUE(groups.empty());
    }
  });
  expect_no_faults();
}

// Order and numbers are the Comm's, whichever memory a call has.
TEST(Nccl, CallsOnBothKindsOfMemoryAreInOneOrder) {
  run_ranks(hybrid_world(3), [](Comm& comm) {
    std::vector<comm::Work> works;
    std::vector<std::vector<float>> values(6, std::vector<float>(1000, 1));
    for (size_t i = 0; i < values.size(); ++i) {
      auto& v = values[i];
      const Buffer b = i % 2 == 0 ? on_gpu(v) : Buffer{v.data(), 1000, DType::kFloat32};
      works.push_back(comm.all_reduce(b, b, ReduceOp::kSum));
    }
    for (auto& w : works) w.wait();
    for (const auto& v : values) EXPECT_EQ(v, std::vector<float>(1000, 3));
    EXPECT_EQ(comm.counters().calls, 6);
  });
  expect_no_faults();
}

TEST(Nccl, MemoryOfTwoKindsInOneCallIsAMismatch) {
  std::vector<std::optional<CommError::Fields>> failed(2);
  run_ranks(hybrid_world(2), [&](Comm& comm) {
    std::vector<float> v(10, 1);
    const Buffer b = comm.rank() == 0 ? on_gpu(v) : Buffer{v.data(), 10, DType::kFloat32};
    try {
      comm.all_reduce(b, b, ReduceOp::kSum).wait();
    } catch (const CommError& e) {
      failed[static_cast<size_t>(comm.rank())] = e.fields();
    }
  });
  for (const auto& f : failed) {
    ASSERT_TRUE(f.has_value());
    EXPECT_EQ(f->kind, CommErrorKind::kMismatch);
  }
  expect_no_faults();
}

TEST(Nccl, ACallWaitsForWhatItsStreamHad) {
  run_ranks(hybrid_world(2), [](Comm& comm) {
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    std::vector<float> v(100, -1);
    std::atomic<bool> open{false};
    stand_in::run_on(stream, [&] {
      while (!open) std::this_thread::yield();
      v.assign(100, 1);
    });
    auto work = comm.all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum, {.stream = {stream}});
    EXPECT_FALSE(work.ready());
    open = true;
    work.wait();
    EXPECT_EQ(v, std::vector<float>(100, 2));
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  });
  expect_no_faults();
}

// What is empty there says nothing of a device either.
TEST(Nccl, WhatOnlyTheRootUsesMayBeEmptyElsewhere) {
  run_ranks(hybrid_world(3), [](Comm& comm) {
    const bool root = comm.rank() == 1;
    std::vector<float> x(2, static_cast<float>(comm.rank()));
    std::vector<float> all(6, -1);
    comm.gather_v(on_gpu(x), root ? on_gpu(all) : Buffer{}, Segments::even(6, 3), 1).wait();
    EXPECT_EQ(all, root ? (std::vector<float>{0, 0, 1, 1, 2, 2}) : std::vector<float>(6, -1));
    std::vector<float> part(2, -1);
    comm.scatter_v(root ? on_gpu(all) : Buffer{}, on_gpu(part), Segments::even(6, 3), 1).wait();
    EXPECT_EQ(part, x);
    std::vector<float> sum(2, -1);
    comm.reduce(on_gpu(x), root ? on_gpu(sum) : Buffer{}, 1, ReduceOp::kSum).wait();
    EXPECT_EQ(sum, std::vector<float>(2, root ? 3 : -1));
  });
  expect_no_faults();
}

TEST(Nccl, MemoryOfAnotherDeviceIsRefusedBeforeAnythingIsSent) {
  run_ranks(hybrid_world(1), [](Comm& comm) {
    std::vector<float> v(1, 1);
    Buffer b = on_gpu(v);
    b.device.index = 3;
    EXPECT_THROW(static_cast<void>(comm.broadcast(b, 0)), ArgumentError);
  });
}

// A peer that is gone: the deadline ends the call, the communicator is aborted by another thread,
// and nothing is written afterwards.
TEST(Nccl, ACallThatHangsEndsAtItsDeadlineAndIsAborted) {
  const int before = stand_in::aborted();
  std::latch both_ended(2);  // before the data may move, or the memory go
  run_ranks(hybrid_world(2), [&](Comm& comm) {
    comm.barrier().wait();
    if (comm.rank() == 0) stand_in::hold(true);
    comm.barrier().wait();
    std::vector<float> v(10, 1);
    try {
      comm.all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum,
                      {.deadline = Deadline::after(std::chrono::milliseconds(200))})
          .wait();
      ADD_FAILURE() << "did not hang";
    } catch (const CommError& e) {
      EXPECT_EQ(e.fields().kind, CommErrorKind::kTimeout);
    }
    both_ended.arrive_and_wait();
    stand_in::hold(false);
    EXPECT_EQ(v, std::vector<float>(10, 1));
    EXPECT_THROW(comm.barrier().wait(), CommError);
    EXPECT_EQ(v, std::vector<float>(10, 1));
  });
  EXPECT_EQ(stand_in::aborted(), before + 2);
  EXPECT_EQ(stand_in::alive(), 0);
}

// NCCL may take long over an end; nobody waits for it, not even one Comm after the other.
TEST(Nccl, AnEndThatTakesLongIsWaitedForByNobody) {
  run_ranks(hybrid_world(1), [](Comm& comm) {
    constexpr int kGroups = 5;
    std::vector<std::unique_ptr<Comm>> groups;
    std::vector<float> v(10, 1);
    for (int k = 0; k < kGroups; ++k) {
      groups.push_back(comm.group(std::vector<int>{0}, std::to_string(k)));
      groups.back()->all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum).wait();
    }
    const int aborted = stand_in::aborted();
    stand_in::linger(true);
    groups.clear();
    EXPECT_EQ(stand_in::alive(), kGroups);
    stand_in::linger(false);
    EXPECT_EQ(stand_in::aborted(), aborted);
  });
  EXPECT_EQ(stand_in::alive(), 0);
  expect_no_faults();
}

// An abort is urgent, and an end that takes long goes on after it: it is not aborted.
TEST(Nccl, AnAbortDoesNotWaitForAnEndThatTakesLong) {
  const int before = stand_in::aborted();
  run_ranks(hybrid_world(1), [&](Comm& comm) {
    std::vector<float> v(10, 1);
    const auto group = [&](const char* name) {
      auto g = comm.group(std::vector<int>{0}, name);
      g->all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum).wait();
      return g;
    };
    auto slow = group("slow");
    const auto hangs = group("hangs");
    stand_in::linger(true);
    slow.reset();
    stand_in::hold(true);
    stand_in::take_groups(0);
    auto work = hangs->all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum);
    while (stand_in::take_groups(0).empty()) std::this_thread::yield();  // until it is under way
    hangs->abort("enough");
    EXPECT_THROW(work.wait(), CommError);
    while (stand_in::aborted() == before) std::this_thread::yield();
    stand_in::hold(false);
    stand_in::linger(false);
  });
  EXPECT_EQ(stand_in::aborted(), before + 1);
  EXPECT_EQ(stand_in::alive(), 0);
}

TEST(Nccl, AnAsynchronousErrorEndsTheComm) {
  run_ranks(hybrid_world(2), [](Comm& comm) {
    comm.barrier().wait();
    if (comm.rank() == 0) stand_in::hold(true);
    comm.barrier().wait();
    std::vector<float> v(10, 1);
    auto work = comm.all_reduce(on_gpu(v), on_gpu(v), ReduceOp::kSum);
    stand_in::fail(true);
    EXPECT_THROW(work.wait(), CommError);
    EXPECT_THROW(comm.barrier().wait(), CommError);
  });
  stand_in::fail(false);
  stand_in::hold(false);
  EXPECT_EQ(stand_in::alive(), 0);
}

TEST(Nccl, ItsCapabilitiesSayWhatItDoesOtherwise) {
  run_ranks(hybrid_world(1), [](Comm& comm) {
    EXPECT_FALSE(comm.capabilities().float32_sums_of_16_bit);
    EXPECT_FALSE(comm.capabilities().fixed_order);
  });
}

}  // namespace
}  // namespace dtensor::testing

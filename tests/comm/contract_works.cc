// Works, groups, labels and accounts.

#include <atomic>
#include <string>
#include <thread>

#include "dtensor/base/error.h"
#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::ConstBuffer;
using comm::ReduceOp;
using comm::Segments;
using comm::Work;

TEST_P(CommContract, ManyWorksAreInFlightAndCompleteInOrder) {
  run([](Comm& comm) {
    constexpr int kWorks = 20;
    std::vector<std::vector<int64_t>> x;
    for (int k = 0; k < kWorks; ++k) {
      x.emplace_back(static_cast<size_t>(k * k * 50), comm.rank() + k);
    }
    std::vector<Work> works;
    for (auto& v : x) {
      works.push_back(comm.all_reduce(view(std::as_const(v)), view(v), ReduceOp::kSum));
    }
    works.back().wait();
    for (int k = 0; k < kWorks; ++k) {
      EXPECT_TRUE(works[static_cast<size_t>(k)].ready());
      EXPECT_EQ(works[static_cast<size_t>(k)].info().sequence, k);
      const int64_t ranks = comm.size() * (comm.size() - 1) / 2;
      for (const int64_t v : x[static_cast<size_t>(k)]) ASSERT_EQ(v, ranks + comm.size() * k);
    }
  });
}

// A call goes on when nobody waits for it, and the others need not wait for a rank that does not.
TEST_P(CommContract, AWorkEndsWithoutBeingWaitedFor) {
  run([](Comm& comm) {
    std::vector<float> x(5, 1);
    Work work = comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum);
    if (comm.rank() == 0) {
      const Deadline limit = Deadline::after(std::chrono::seconds(60));
      while (!work.ready() && !limit.expired()) std::this_thread::yield();
      EXPECT_TRUE(work.ready());
    } else {
      work.wait();
    }
    work.wait();
    work.wait();
    EXPECT_EQ(x, std::vector<float>(5, static_cast<float>(comm.size())));
  });
}

// Owns values; hands them over and poisons them when it goes.
struct Owned {
  explicit Owned(std::vector<int32_t> v) : values(std::move(v)) {}
  ~Owned() {
    if (heir) *heir = values;
    std::fill(values.begin(), values.end(), 77);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  std::vector<int32_t> values;
  std::shared_ptr<std::vector<int32_t>> heir;
};

// pytorch#75512: both tensors are dropped while the call is under way.
TEST_P(CommContract, AWorkKeepsTheOwnersOfItsBuffers) {
  run([](Comm& comm) {
    for (const int64_t n : {4, 30'000}) {
      const int64_t all = n * comm.size();
      auto in = std::make_shared<Owned>(std::vector<int32_t>(static_cast<size_t>(n), comm.rank()));
      auto out = std::make_shared<Owned>(std::vector<int32_t>(static_cast<size_t>(all), -1));
      const auto result = std::make_shared<std::vector<int32_t>>();
      out->heir = result;
      const std::weak_ptr<Owned> watched = in;
      Work work = comm.all_gather_v(ConstBuffer(in->values.data(), n, DType::kInt32, {}, in),
                                    Buffer{out->values.data(), all, DType::kInt32, {}, out},
                                    Segments::even(all, comm.size()));
      in.reset();
      out.reset();
      work.wait();
      EXPECT_TRUE(watched.expired());  // let go at the end of the call
      std::vector<int32_t> want;
      for (int r = 0; r < comm.size(); ++r) want.insert(want.end(), static_cast<size_t>(n), r);
      EXPECT_EQ(*result, want);
    }
  });
}

TEST_P(CommContract, GroupsAreOrderedAsGivenAndIndependent) {
  run([](Comm& comm) {
    std::vector<int> backwards;
    for (int r = comm.size() - 1; r >= 0; --r) backwards.push_back(r);
    const auto reversed = comm.group(backwards, "reversed");
    EXPECT_EQ(reversed->rank(), comm.size() - 1 - comm.rank());
    EXPECT_EQ(reversed->size(), comm.size());
    std::vector<int32_t> got(static_cast<size_t>(comm.size()), -1);
    const std::vector<int32_t> mine = {comm.rank()};
    reversed->all_gather_v(view(mine), view(got), Segments::even(comm.size(), comm.size())).wait();
    EXPECT_EQ(got, std::vector<int32_t>(backwards.begin(), backwards.end()));

    // Even and odd ranks; different numbers of calls on each, and groups of groups.
    std::vector<int> alike;
    for (int r = comm.rank() % 2; r < comm.size(); r += 2) alike.push_back(r);
    const auto half = comm.group(alike, "half");
    for (int k = 0; k < 3 + comm.rank() % 2; ++k) {
      std::vector<int32_t> x = {comm.rank()};
      half->all_reduce(view(std::as_const(x)), view(x), ReduceOp::kMax).wait();
      EXPECT_EQ(x[0], alike.back());
    }
    const std::vector<int> self = {half->rank()};
    const auto alone = half->group(self, "alone");
    alone->barrier().wait();
    comm.barrier().wait();
  });
}

// Works of two Comms go on together, issued in different orders on different ranks.
TEST_P(CommContract, CommsOfOneWorldDoNotWaitForEachOther) {
  run([](Comm& comm) {
    std::vector<int> all;
    for (int r = 0; r < comm.size(); ++r) all.push_back(r);
    const auto other = comm.group(all, "other");
    std::vector<float> x(20'000, 1);
    std::vector<float> y(30'000, 2);
    Work first;
    Work second;
    const auto on_comm = [&] {
      return comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum);
    };
    const auto on_other = [&] {
      return other->all_reduce(view(std::as_const(y)), view(y), ReduceOp::kSum);
    };
    if (comm.rank() % 2 == 0) {
      first = on_comm();
      second = on_other();
    } else {
      second = on_other();
      first = on_comm();
    }
    first.wait();
    second.wait();
    EXPECT_EQ(x, std::vector<float>(20'000, static_cast<float>(comm.size())));
    EXPECT_EQ(y, std::vector<float>(30'000, 2 * static_cast<float>(comm.size())));
  });
}

TEST_P(CommContract, AGroupIsMadeOnceAndByItsRanksOnly) {
  run([](Comm& comm) {
    const std::vector<int> self = {comm.rank()};
    const auto first = comm.group(self, "a");
    EXPECT_THROW(comm.group(self, "a"), ArgumentError);
    EXPECT_NO_THROW(comm.group(self, "b"));
    EXPECT_NO_THROW(first->group(std::vector<int>{0}, "a"));
    EXPECT_THROW(comm.group(std::vector<int>{}, "a"), ArgumentError);
    EXPECT_THROW(comm.group(std::vector<int>{comm.rank(), comm.size()}, "a"), ArgumentError);
    EXPECT_THROW(comm.group(std::vector<int>{comm.rank(), comm.rank()}, "a"), ArgumentError);
    const std::vector<int> next = {(comm.rank() + 1) % comm.size()};
    if (comm.size() > 1) {
      EXPECT_THROW(comm.group(next, "c"), ArgumentError);
    }
  });
}

// Payload over all ranks: an all-reduce of S bytes on n ranks counts 2(n-1)S, whatever the
// algorithm; the others count what has to move.
TEST_P(CommContract, CountersAddPayloadAndWireBytes) {
  run([](Comm& comm) {
    const int64_t n = comm.size();
    std::vector<std::pair<std::function<void()>, int64_t>> steps;  // and the payload of all ranks
    std::vector<std::vector<float>> keep;
    for (const int64_t count : {1, 17, 1000, 100'003}) {
      const int64_t bytes = 4 * count;
      steps.emplace_back(
          [&comm, count] {
            std::vector<float> x(static_cast<size_t>(count), 1);
            comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum).wait();
          },
          2 * (n - 1) * bytes);
      steps.emplace_back(
          [&comm, count] {
            std::vector<float> x(static_cast<size_t>(count), 1);
            const auto even = Segments::even(count, comm.size());
            comm.all_gather_v(ConstBuffer(x.data() + even.offset(comm.rank()),
                                          even.count(comm.rank()), DType::kFloat32),
                              view(x), even)
                .wait();
          },
          (n - 1) * bytes);
      steps.emplace_back(
          [&comm, count] {
            std::vector<float> x(static_cast<size_t>(count), 1);
            comm.broadcast(view(x), 0).wait();
          },
          (n - 1) * bytes);
      steps.emplace_back(
          [&comm, count] {
            std::vector<float> x(static_cast<size_t>(count), 1);
            const auto even = Segments::even(count, comm.size());
            std::vector<float> y(static_cast<size_t>(even.count(comm.rank())), 1);
            comm.reduce_scatter_v(view(std::as_const(x)), view(y), even, ReduceOp::kSum).wait();
          },
          (n - 1) * bytes);
    }
    for (const auto& [step, want] : steps) {
      const auto before = comm.counters();
      step();
      const auto after = comm.counters();
      EXPECT_EQ(after.calls, before.calls + 1);
      std::vector<int64_t> payload = {after.payload_bytes_sent - before.payload_bytes_sent};
      EXPECT_GE(after.wire_bytes_sent - before.wire_bytes_sent, payload[0]);
      comm.all_reduce(view(std::as_const(payload)), view(payload), ReduceOp::kSum).wait();
      EXPECT_EQ(payload[0], want);
    }
  });
}

TEST_P(CommContract, CountersOfGroupsCountAtTheirParent) {
  if (size() < 2) GTEST_SKIP() << "for two ranks and more";
  run([](Comm& comm) {
    std::vector<int> all;
    for (int r = 0; r < comm.size(); ++r) all.push_back(r);
    const auto group = comm.group(all, "g");
    std::vector<float> x(100'000, 1);
    group->broadcast(view(x), 0).wait();
    EXPECT_EQ(group->counters().calls, 1);
    EXPECT_EQ(comm.counters().calls, 1);
    EXPECT_EQ(comm.counters().payload_bytes_sent,
              comm.rank() == 0 ? 400'000 * (comm.size() - 1) : 0);
    EXPECT_EQ(comm.counters().payload_bytes_sent, group->counters().payload_bytes_sent);
  });
}

}  // namespace
}  // namespace dtensor::testing

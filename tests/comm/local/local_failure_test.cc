// What a Comm does when a rank dies, stalls, is slow, or leaves. The Board plays the part of the
// operating system: a thread cannot be killed.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/deadline.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/comm/local/local_control.h"
#include "dtensor/comm/transport.h"
#include "dtensor/tests/comm/values.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

using comm::Comm;
using comm::CommError;
using comm::CommErrorKind;
using comm::ReduceOp;
using comm::local::Board;

// Ranks wait here until `count` of them have come.
class Gate {
 public:
  explicit Gate(int count) : left_(count) {}
  void come() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return left_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

CommError::Fields failure_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const CommError& e) {
    return e.fields();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void all_reduce(Comm& comm, std::vector<float>& x, comm::CallOptions options = {}) {
  comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum, options).wait();
}

void yield_until(const std::function<bool()>& condition) {
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  while (!condition() && !limit.expired()) std::this_thread::yield();
  EXPECT_TRUE(condition());
}

// torchft#164, mlx#4060, gloo#520: rank 2 dies while the others wait for it.
TEST(LocalFailure, ALostRankIsTheCulpritEverywhereAndOtherCommsLiveOn) {
  const auto board = std::make_shared<Board>(4);
  Gate started(3);
  Gate thrown(3);
  run_ranks(4,
            [&](Comm& comm) {
              std::unique_ptr<Comm> survivors;
              if (comm.rank() != 2) survivors = comm.group(std::vector<int>{0, 1, 3}, "survivors");
              const std::vector<int> pair = {comm.rank() / 2 * 2, comm.rank() / 2 * 2 + 1};
              const auto pairs = comm.group(pair, "pairs");
              comm.barrier().wait();
              if (comm.rank() == 2) {
                started.wait();
                board->lose(2, "connection reset");
                thrown.wait();
                return;
              }
              std::vector<float> x(2'000'000, 1);
              std::vector<float> out(x.size(), -1);
              comm::Work work = comm.all_reduce(view(std::as_const(x)), view(out), ReduceOp::kSum,
                                                {.label = "gradients"});
              started.come();
              const auto f = failure_of([&] { work.wait(); });
              EXPECT_EQ(f.kind, CommErrorKind::kPeerLost);
              EXPECT_EQ(f.culprit, 2);
              EXPECT_TRUE(f.proved);
              EXPECT_EQ(f.op.sequence, 1);
              EXPECT_EQ(f.op.label, "gradients");
              EXPECT_EQ(f.op.bytes, 16'000'000);
              EXPECT_EQ(f.detail, "connection reset");
              // Of two groups, the one with the dead rank is dead.
              std::vector<float> y(3, 1);
              if (comm.rank() == 3) {
                EXPECT_EQ(failure_of([&] { all_reduce(*pairs, y); }).culprit, 0);
              } else {
                all_reduce(*pairs, y);
                EXPECT_EQ(y, std::vector<float>(3, 2));
              }
              y.assign(3, 1);
              all_reduce(*survivors, y);
              EXPECT_EQ(y, std::vector<float>(3, 3));
              thrown.come();
            },
            {.board = board});
}

// After a throw nothing is written: the late rank's data finds no memory.
TEST(LocalFailure, NothingIsWrittenAfterTheThrow) {
  for (const size_t n : {size_t{8}, size_t{100'000}}) {
    Gate thrown(1);
    run_ranks(2, [&](Comm& comm) {
      if (comm.rank() == 1) {
        thrown.wait();
        std::vector<float> x(n, 5);
        EXPECT_EQ(failure_of([&] { comm.broadcast(view(x), 1).wait(); }).kind,
                  CommErrorKind::kTimeout);
        return;
      }
      std::vector<float> x(n, -1);
      const auto soon = Deadline::after(std::chrono::milliseconds(100));
      const auto f = failure_of([&] { comm.broadcast(view(x), 1, {.deadline = soon}).wait(); });
      EXPECT_EQ(f.kind, CommErrorKind::kTimeout);
      EXPECT_EQ(f.culprit, 1);
      EXPECT_FALSE(f.proved);
      EXPECT_EQ(x, std::vector<float>(n, -1));
      thrown.come();
      EXPECT_EQ(failure_of([&] { comm.barrier().wait(); }).culprit, 1);
      EXPECT_EQ(x, std::vector<float>(n, -1));
    });
  }
}

// gloo#511: a stopped rank does not answer; the deadline passes; woken, it gets the same error.
TEST(LocalFailure, ADeadlineNamesTheRankThatDoesNotAnswer) {
  const auto board = std::make_shared<Board>(4);
  Gate thrown(3);
  run_ranks(4,
            [&](Comm& comm) {
              comm.barrier().wait();
              std::vector<float> x(1000, 1);
              if (comm.rank() == 2) {
                board->stop(2);
                thrown.wait();
                board->resume(2);
              }
              const auto f = failure_of([&] {
                all_reduce(comm, x, {.deadline = Deadline::after(std::chrono::milliseconds(300))});
              });
              EXPECT_EQ(f.kind, CommErrorKind::kTimeout);
              EXPECT_EQ(f.culprit, 2);
              EXPECT_FALSE(f.proved);
              thrown.come();
            },
            {.board = board});
}

// A slow rank answers, again and again, and is not lost.
TEST(LocalFailure, ASlowRankIsAskedAndNotLost) {
  const auto board = std::make_shared<Board>(3);
  run_ranks(3,
            [&](Comm& comm) {
              for (int k = 1; k <= 3; ++k) {
                if (comm.rank() == 1) yield_until([&] { return board->questions(1) >= 3 * k; });
                std::vector<float> x(100, 1);
                all_reduce(comm, x);
                EXPECT_EQ(x, std::vector<float>(100, 3));
              }
            },
            {.stall = std::chrono::milliseconds(1), .board = board});
}

TEST(LocalFailure, ARankThatLeavesIsNamedByThoseWhoWaitForIt) {
  run_ranks(3,
            [&](Comm& comm) {
              comm.barrier().wait();
              if (comm.rank() == 1) return;
              const auto f = failure_of([&] { comm.barrier().wait(); });
              EXPECT_EQ(f.kind, CommErrorKind::kPeerLost);
              EXPECT_EQ(f.culprit, 1);
              EXPECT_NE(f.detail.find("closed its Comm after #0 barrier"), std::string::npos)
                  << f.detail;
            },
            {.stall = std::chrono::milliseconds(20)});
}

// A group goes on where its ranks have destroyed the Comm that it was made from.
TEST(LocalFailure, AGroupOutlivesTheCommAbove) {
  auto board = std::make_shared<comm::local::Board>(2);
  auto worlds = comm::local::make_world(2, {.stall = std::chrono::milliseconds(5), .board = board});
  std::vector<std::thread> threads;
  for (auto& world : worlds) {
    threads.emplace_back([&] {
      Context context;
      const ContextScope scope(context);
      const std::vector<int> members{0, 1};
      const auto group = world->group(members, "group");
      const int rank = world->rank();
      group->barrier().wait();
      world.reset();
      if (rank == 1) {  // late: rank 0 has asked where it is, several times
        while (board->questions(1) < 3) std::this_thread::yield();
      }
      group->barrier().wait();
      std::vector<float> x(3, 1);
      all_reduce(*group, x);
      EXPECT_EQ(x, std::vector<float>(3, 2));
    });
  }
  for (auto& thread : threads) thread.join();
}

// An abort of a Comm ends the groups in which the aborting rank takes part, and no others.
TEST(LocalFailure, AnAbortEndsTheGroupsOfItsRank) {
  Gate done(3);  // rank 0 stays until then: one that leaves is lost
  run_ranks(4, [&](Comm& world) {
    const bool first = world.rank() < 2;
    const std::vector<int> members = first ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    const auto group = world.group(members, "half");
    if (world.rank() == 0) {
      world.abort("it is over");
    } else if (world.rank() == 1) {
      const auto f = failure_of([&] { group->barrier().wait(); });
      EXPECT_EQ(f.kind, CommErrorKind::kAborted);
      EXPECT_EQ(f.culprit_in_world, 0);
    } else {
      for (int k = 0; k < 20; ++k) group->barrier().wait();
    }
    if (world.rank() != 0) done.come();
    done.wait();
  });
}

// It never made the Comm that the others wait on, and its thread has ended.
TEST(LocalFailure, ARankThatLeavesBeforeItMakesAGroupIsNamed) {
  run_ranks(3,
            [&](Comm& comm) {
              if (comm.rank() == 1) return;
              const auto group = comm.group(std::vector<int>{0, 1, 2}, "dp");
              const auto f = failure_of([&] { group->barrier().wait(); });
              EXPECT_EQ(f.kind, CommErrorKind::kPeerLost);
              EXPECT_EQ(f.culprit, 1);
              EXPECT_NE(f.detail.find("closed its Comm"), std::string::npos) << f.detail;
            },
            {.stall = std::chrono::milliseconds(20)});
}

// A Transport that swallows what one rank sends after a number of messages: they are on the wire
// and never arrive.
class Swallowing : public comm::Transport {
 public:
  Swallowing(std::shared_ptr<comm::Transport> inner, int after)
      : inner_(std::move(inner)), left_(after) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int64_t max_message_bytes() const override { return inner_->max_message_bytes(); }
  std::unique_ptr<comm::Transfer> send(int dst, uint64_t tag, const void* data,
                                       int64_t bytes) override {
    if (rank() == 1 && dst == 0 && left_.fetch_sub(1) <= 0) tag ^= 1;
    return inner_->send(dst, tag, data, bytes);
  }
  std::unique_ptr<comm::Transfer> receive(int src, uint64_t tag, void* data,
                                          int64_t bytes) override {
    return inner_->receive(src, tag, data, bytes);
  }

 private:
  const std::shared_ptr<comm::Transport> inner_;
  std::atomic<int> left_;
};

// All ranks are in one call and answer; rank 0 blames the one whose message it waits for.
TEST(LocalFailure, AMessageThatNeverArrivesBlamesItsSender) {
  run_ranks(3,
            [&](Comm& comm) {
              std::vector<float> x(100'000, 1);
              const auto f = failure_of([&] {
                const auto soon = Deadline::after(std::chrono::milliseconds(200));
                all_reduce(comm, x, {.deadline = soon});
                comm.barrier({.deadline = soon}).wait();
              });
              EXPECT_EQ(f.kind, CommErrorKind::kTimeout);
              if (comm.rank() == 0) {
                EXPECT_EQ(f.op.sequence, 0);
              }
            },
            {.wrap = [](auto inner) { return std::make_shared<Swallowing>(inner, 1); }});
}

// Abort from several threads at once, with calls queued; the destructor returns.
TEST(LocalFailure, AbortIsBoundedAndFromAnyThread) {
  Gate aborted(1);
  run_ranks(2, [&](Comm& comm) {
    if (comm.rank() == 0) {
      std::vector<comm::Work> works;
      for (int k = 0; k < 5; ++k) works.push_back(comm.barrier());
      std::thread first([&] { comm.abort("first"); });
      std::thread second([&] { comm.abort("second"); });
      first.join();
      second.join();
      aborted.come();
      for (auto& work : works) {
        EXPECT_EQ(failure_of([&] { work.wait(); }).kind, CommErrorKind::kAborted);
      }
    } else {
      aborted.wait();
      const auto f = failure_of([&] {  // what rank 0 had sent by then may still complete
        for (int k = 0; k < 6; ++k) comm.barrier().wait();
      });
      EXPECT_EQ(f.kind, CommErrorKind::kAborted);
      EXPECT_EQ(f.culprit, 0);
    }
  });
}

// A rank that answers, and never makes the call: shutdown waits for its deadline, and a Comm that
// is destroyed with a call under way for ten seconds, no longer.
TEST(LocalFailure, ShutdownAndTheDestructorAreBounded) {
  for (const bool shuts_down : {true, false}) {
    Gate gone(1);
    run_ranks(2, [&](Comm& comm) {
      const auto group = comm.group(std::vector<int>{0, 1}, "group");
      if (comm.rank() == 1) return gone.wait();
      if (shuts_down) {
        const auto f =
            failure_of([&] { group->shutdown(Deadline::after(std::chrono::milliseconds(100))); });
        EXPECT_EQ(f.kind, CommErrorKind::kTimeout);
        EXPECT_EQ(f.culprit, 1);
      } else {
        auto other = comm.group(std::vector<int>{0, 1}, "other");
        std::vector<float> x(100, 1);
        const comm::Work work = other->all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum);
        other.reset();
        EXPECT_TRUE(work.ready());
      }
      gone.come();
    });
  }
}

// A test that goes wrong on one rank ends on all, with the first failure.
TEST(LocalFailure, RunRanksGivesTheFirstException) {
  try {
    run_ranks(3, [](Comm& comm) {
      if (comm.rank() == 1) throw std::out_of_range("the first");
      comm.barrier().wait();
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& e) {
    EXPECT_STREQ(e.what(), "the first");
  }
}

}  // namespace
}  // namespace dtensor::testing

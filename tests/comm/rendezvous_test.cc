#include "dtensor/comm/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Outcome {
  std::optional<Meeting> meeting;
  std::optional<CommError> error;
};

Participant participant(int rank, int size) {
  Participant p;
  p.rank = rank;
  p.size = size;
  p.backend = "gloo";
  p.backend_version = "0.5.0";
  p.address = "127.0.0.1";
  return p;
}

// Every participant meets in a thread of its own.
std::vector<Outcome> meet_all(Store& store, const std::vector<Participant>& participants,
                              milliseconds deadline = seconds(60)) {
  std::vector<Outcome> outcomes(participants.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < participants.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].meeting = meet(store, participants[i], Deadline::after(deadline));
      } catch (const CommError& e) {
        outcomes[i].error = e;
      }
    });
  }
  for (auto& t : threads) t.join();
  return outcomes;
}

void expect_error(const Outcome& outcome, CommErrorKind kind,
                  const std::vector<std::string>& parts) {
  ASSERT_TRUE(outcome.error.has_value()) << "a world formed";
  EXPECT_EQ(outcome.error->fields().kind, kind);
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(outcome.error->what()).find(part), std::string::npos)
        << "no \"" << part << "\" in: " << outcome.error->what();
  }
}

// A change to rank 1 of 3 that must make all three fail, each naming `parts`.
void expect_refused(const std::function<void(Participant&)>& change,
                    const std::vector<std::string>& parts) {
  const auto store = make_memory_store();
  std::vector<Participant> all = {participant(0, 3), participant(1, 3), participant(2, 3)};
  change(all[1]);
  for (const Outcome& o : meet_all(*store, all)) expect_error(o, CommErrorKind::kMismatch, parts);
}

TEST(Rendezvous, AllAgreeOnTheRunAndKnowEachOther) {
  const auto store = make_memory_store();
  const auto outcomes = meet_all(*store, {participant(0, 3), participant(1, 3), participant(2, 3)});
  for (const Outcome& o : outcomes) {
    ASSERT_TRUE(o.meeting.has_value());
    EXPECT_EQ(o.meeting->run_id, outcomes[0].meeting->run_id);
    ASSERT_EQ(o.meeting->participants.size(), 3U);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(o.meeting->participants[r].rank, r);
  }
  const std::string& id = outcomes[0].meeting->run_id;  // 20260102T030405Z-89abcdef
  ASSERT_EQ(id.size(), 25U) << id;
  EXPECT_EQ(id[8], 'T');
  EXPECT_EQ(id.substr(15, 2), "Z-");
}

// Enerzyme#107: who came must not go on alone.
TEST(Rendezvous, ARankThatNeverComesIsNamedByTheDeadline) {
  const auto store = make_memory_store();
  for (const Outcome& o :
       meet_all(*store, {participant(0, 3), participant(1, 3)}, milliseconds(50))) {
    expect_error(o, CommErrorKind::kTimeout, {"rank 2", "3 ranks"});
    EXPECT_EQ(o.error->fields().culprit, 2);
    EXPECT_FALSE(o.error->fields().proved);
  }
}

// As when the rank that serves it has come to its deadline a moment before.
class StoreThatEnds : public Store {
 public:
  explicit StoreThatEnds(int after) : left_(after) {}
  void set(std::string_view key, std::string_view value) override { inner_->set(key, value); }
  std::string get(std::string_view key, Deadline deadline) override {
    return inner_->get(key, deadline);
  }
  bool has(std::string_view key) override {
    if (--left_ < 0) throw Error("the store is gone");
    return inner_->has(key);
  }

 private:
  const std::shared_ptr<Store> inner_ = make_memory_store();
  int left_;
};

TEST(Rendezvous, AStoreThatEndsDoesNotHideWhoWasAbsent) {
  StoreThatEnds store(20);
  expect_error(meet_all(store, {participant(1, 2)})[0], CommErrorKind::kTimeout,
               {"rank 0 did not come", "the store is gone"});
}

// Paddle#37951
TEST(Rendezvous, TwoWorldSizesAreBothNamed) {
  expect_refused([](Participant& p) { p.size = 4; }, {"world size", "3", "4"});
}

TEST(Rendezvous, VersionsAndBackendsMustBeEqual) {
  expect_refused([](Participant& p) { p.library_version = "9.9.9"; },
                 {"dtensor version", "9.9.9", std::string(kLibraryVersion)});
  expect_refused([](Participant& p) { p.backend_version = "7.7.7"; },
                 {"gloo version", "7.7.7", "0.5.0"});
  expect_refused([](Participant& p) { p.backend = "ucx"; }, {"backend", "ucx", "gloo"});
}

TEST(Rendezvous, ALoopbackAddressInAWorldOfTwoHostsIsNamed) {
  expect_refused([](Participant& p) { p.host = "elsewhere"; }, {"127.0.0.1", "interface="});
}

TEST(Rendezvous, HostsThatReachEachOtherMeet) {
  const auto store = make_memory_store();
  std::vector<Participant> all = {participant(0, 2), participant(1, 2)};
  all[0].address = "10.0.0.1";
  all[1].address = "10.0.0.2";
  all[1].host = "elsewhere";
  for (const Outcome& o : meet_all(*store, all)) EXPECT_TRUE(o.meeting.has_value());
}

// pytorch#135712
TEST(Rendezvous, ALaterGenerationMeetsAtTheSameStoreAndTheOldOneIsOver) {
  const auto store = make_memory_store();
  const auto first = meet_all(*store, {participant(0, 2), participant(1, 2)});
  std::vector<Participant> next = {participant(0, 2), participant(1, 2)};
  for (Participant& p : next) p.generation = 3;
  const auto second = meet_all(*store, next);
  ASSERT_TRUE(second[0].meeting && second[1].meeting);
  EXPECT_NE(second[0].meeting->run_id, first[0].meeting->run_id);
  EXPECT_NE(second[0].meeting->key_prefix, first[0].meeting->key_prefix);
  for (const int64_t old : {0, 1, 2}) {
    Participant late = participant(1, 2);
    late.generation = old;
    expect_error(meet_all(*store, {late})[0], CommErrorKind::kMismatch,
                 {"generation " + std::to_string(old), "over"});
  }
}

TEST(Rendezvous, ARankOfAnOldGenerationThatWaitsIsToldWhenALaterOneForms) {
  const auto store = make_memory_store();
  Participant next = participant(0, 1);
  next.generation = 1;
  const auto outcomes = meet_all(*store, {participant(1, 2), next});
  expect_error(outcomes[0], CommErrorKind::kMismatch, {"generation 0", "over"});
  EXPECT_TRUE(outcomes[1].meeting.has_value());
}

// nccl#1777
TEST(Rendezvous, ASecondProcessWithTheSameRankIsRefused) {
  const auto store = make_memory_store();
  meet_all(*store, {participant(0, 2), participant(1, 2)});
  expect_error(meet_all(*store, {participant(1, 2)})[0], CommErrorKind::kMismatch,
               {"rank 1", "before"});
}

}  // namespace
}  // namespace dtensor::comm

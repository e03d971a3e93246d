#include "dtensor/comm/control_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/control_mesh.h"
#include "dtensor/comm/control_wire.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm {
namespace {

using internal::Fd;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kComm = 77;
constexpr seconds kLong{60};

using Connections = std::vector<std::vector<Fd>>;  // [rank][peer]

// The mesh of `size` ranks. before(address) runs when rank 0 listens and nobody has come.
Connections connect(int size, const std::function<void(internal::HostPort)>& before = {}) {
  const auto store = make_memory_store();
  Connections all(static_cast<size_t>(size));
  std::vector<Fd> listeners;
  for (int r = 0; r < size; ++r) listeners.push_back(internal::listen_on("127.0.0.1", 0));
  if (before) before(internal::local_address(listeners[0]));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      all[static_cast<size_t>(r)] =
          internal::connect_control_mesh(std::move(listeners[static_cast<size_t>(r)]), *store,
                                         {r, size, "token", "", Deadline::after(kLong)});
    });
  }
  for (auto& t : threads) t.join();
  return all;
}

std::vector<std::shared_ptr<Control>> controls(int size, milliseconds liveness = seconds(30)) {
  Connections mesh = connect(size);
  std::vector<std::shared_ptr<Control>> out;
  for (int r = 0; r < size; ++r) {
    out.push_back(make_control_sockets(std::move(mesh[static_cast<size_t>(r)]), {r, liveness}));
  }
  return out;
}

std::vector<int> all_of(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Waits for events of a Control until a condition holds.
class Events {
 public:
  explicit Events(Control& control)
      : handle_(control.subscribe([this] {
          const std::lock_guard lock(mutex_);
          ++count_;
          changed_.notify_all();
        })) {}
  bool wait_for(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + kLong;
    std::unique_lock lock(mutex_);
    for (;;) {
      const int seen = count_;
      lock.unlock();
      if (condition()) return true;
      lock.lock();
      if (!changed_.wait_until(lock, until, [&] { return count_ != seen; })) return false;
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;  // guarded by mutex_
  std::shared_ptr<void> handle_;
};

Position at(int64_t sequence) {
  Position p;
  p.sequence = sequence;
  p.inside = true;
  p.history = static_cast<uint64_t>(sequence) * 11;
  p.call = "call " + std::to_string(sequence);
  return p;
}

TEST(ControlSockets, EveryRankAnswersWhereItIs) {
  const auto c = controls(3);
  std::vector<std::shared_ptr<void>> served;
  for (int r = 0; r < 2; ++r) served.push_back(c[r]->serve(kComm, [r] { return at(40 + r); }));
  for (int asker = 0; asker < 3; ++asker) {
    const auto answers = c[asker]->ask(kComm, all_of(3), kLong);
    ASSERT_EQ(answers.size(), 3U);
    for (int r = 0; r < 2; ++r) {
      ASSERT_TRUE(answers[r].has_value());
      EXPECT_EQ(answers[r]->sequence, 40 + r);
      EXPECT_EQ(answers[r]->history, static_cast<uint64_t>(40 + r) * 11);
      EXPECT_EQ(answers[r]->call, "call " + std::to_string(40 + r));
      EXPECT_TRUE(answers[r]->inside);
      EXPECT_FALSE(answers[r]->closed);
    }
    ASSERT_TRUE(answers[2].has_value());  // never served: Position{}
    EXPECT_EQ(answers[2]->sequence, -1);
  }
}

TEST(ControlSockets, AClosedCommsLastAnswerStaysAlsoWhenTheRankHasLeft) {
  auto c = controls(2);
  c[1]->serve(kComm, [] { return at(5); }).reset();
  for (const bool left : {false, true}) {
    if (left) c[1].reset();
    const auto answers = c[0]->ask(kComm, all_of(2), kLong);
    ASSERT_TRUE(answers[1].has_value());
    EXPECT_EQ(answers[1]->sequence, 5);
    EXPECT_TRUE(answers[1]->closed);
    EXPECT_FALSE(answers[1]->inside);
  }
  EXPECT_FALSE(c[0]->lost(1).has_value()) << "a goodbye is no loss";
}

TEST(ControlSockets, AClosedConnectionIsAProvedLoss) {
  Connections mesh = connect(3);
  std::vector<std::shared_ptr<Control>> c;
  for (int r = 0; r < 2; ++r)
    c.push_back(make_control_sockets(std::move(mesh[r]), {r, seconds(30)}));
  Events events0(*c[0]);
  Events events1(*c[1]);
  mesh[2].clear();  // as when its process is killed
  EXPECT_TRUE(events0.wait_for([&] { return c[0]->lost(2).has_value(); }));
  EXPECT_TRUE(events1.wait_for([&] { return c[1]->lost(2).has_value(); }));
  EXPECT_TRUE(c[0]->lost(2)->proved);
  EXPECT_FALSE(c[0]->lost(1).has_value());
  const auto answers = c[0]->ask(kComm, all_of(3), kLong);  // does not wait for the lost one
  EXPECT_TRUE(answers[1].has_value());
  EXPECT_FALSE(answers[2].has_value());
}

// gloo#511: whoever does not answer is suspected; whoever does is not, however slow its calls.
TEST(ControlSockets, SilenceIsASuspectedLoss) {
  Connections mesh = connect(3);
  std::vector<std::shared_ptr<Control>> c;
  for (int r = 0; r < 2; ++r) {
    c.push_back(make_control_sockets(std::move(mesh[r]), {r, milliseconds(500)}));
  }
  Events events(*c[0]);
  EXPECT_TRUE(events.wait_for([&] { return c[0]->lost(2).has_value(); }));
  EXPECT_FALSE(c[0]->lost(2)->proved);
  EXPECT_FALSE(c[0]->lost(1).has_value());
}

TEST(ControlSockets, BytesThatAreNoMessageLoseTheirSender) {
  Connections mesh = connect(2);
  const auto c = make_control_sockets(std::move(mesh[0]), {0, seconds(30)});
  Events events(*c);
  internal::write_all(mesh[1][0], "\xff\xff\xff\xff nonsense", {});
  EXPECT_TRUE(events.wait_for([&] { return c->lost(1).has_value(); }));
}

// Proposals at one time, from all ranks, each another: one stands, everywhere.
TEST(ControlSockets, OneVerdictStandsOnAllRanks) {
  constexpr int kSize = 5;
  const auto c = controls(kSize);
  for (uint64_t comm = 1; comm <= 200; ++comm) {
    std::vector<Verdict> verdicts(kSize);
    std::latch at_one_time(kSize);
    std::vector<std::thread> threads;
    for (int r = 0; r < kSize; ++r) {
      threads.emplace_back([&, r] {
        const Verdict mine{CommErrorKind::kMismatch, r, true, "by " + std::to_string(r)};
        at_one_time.arrive_and_wait();
        verdicts[r] = c[r]->settle(comm, all_of(kSize), mine, kLong);
      });
    }
    for (auto& t : threads) t.join();
    for (int r = 0; r < kSize; ++r) {
      EXPECT_EQ(verdicts[r].detail, verdicts[0].detail);
      EXPECT_EQ(c[r]->verdict(comm)->detail, verdicts[0].detail);
    }
    const Verdict late{CommErrorKind::kAborted, 3, true, "late"};
    EXPECT_EQ(c[3]->settle(comm, all_of(kSize), late, kLong).detail, verdicts[0].detail);
  }
}

// A data connection between two ranks breaks: each blames the other, and both are heard. The lower
// one decides, also about itself; here it has decided that it was the other.
TEST(ControlSockets, OfTwoWhoBlameEachOtherTheLowerOneDecides) {
  Connections mesh = connect(2);
  const auto c = make_control_sockets(std::move(mesh[1]), {1, seconds(30)});
  const Verdict decided{CommErrorKind::kPeerLost, 1, false, "connection reset"};
  std::thread lower([&] {
    std::string in;
    for (bool asked = false; !asked;) {
      char byte = 0;
      internal::read_all(mesh[0][1], &byte, 1, Deadline::after(kLong));
      in += byte;
      const auto m = internal::take_message(in);
      asked = m && m->kind == internal::ControlKind::kPropose;
    }
    internal::write_all(
        mesh[0][1],
        internal::encode({internal::ControlKind::kDecide, 0, kComm, {}, {0, 1}, decided}), {});
  });
  const Verdict mine{CommErrorKind::kPeerLost, 0, false, "connection reset"};
  EXPECT_EQ(c->settle(kComm, all_of(2), mine, kLong).culprit, 1);
  lower.join();
}

TEST(ControlSockets, AVerdictReachesMembersThatDidNotAskAndNobodyElse) {
  const auto c = controls(3);
  Events events(*c[2]);
  const std::vector<int> members = {0, 2};
  c[0]->settle(kComm, members, {CommErrorKind::kAborted, 0, true, "enough"}, kLong);
  EXPECT_TRUE(events.wait_for([&] { return c[2]->verdict(kComm).has_value(); }));
  EXPECT_EQ(c[2]->verdict(kComm)->detail, "enough");
  c[1]->ask(kComm, all_of(3), kLong);  // what was sent to rank 1 before has come
  EXPECT_FALSE(c[1]->verdict(kComm).has_value());
}

// The lowest member would decide; where it is the one accused, or dead, the next does.
TEST(ControlSockets, AVerdictIsFoundWithoutTheLowestMember) {
  Connections mesh = connect(4);
  std::vector<std::shared_ptr<Control>> c(4);
  for (int r = 1; r < 4; ++r) c[r] = make_control_sockets(std::move(mesh[r]), {r, seconds(30)});
  const Verdict stopped{CommErrorKind::kTimeout, 0, false, "does not answer"};
  EXPECT_EQ(c[2]->settle(1, all_of(4), stopped, kLong).culprit, 0);
  // Not accused, and silent: passed over after a quarter of the time.
  const Verdict other{CommErrorKind::kMismatch, 3, true, "other"};
  EXPECT_EQ(c[2]->settle(2, all_of(4), other, milliseconds(400)).detail, "other");
  mesh[0].clear();
  EXPECT_EQ(c[3]->settle(3, all_of(4), other, kLong).detail, "other");
  EXPECT_EQ(c[1]->settle(3, all_of(4), stopped, kLong).detail, "other");
}

// Rank 2 loses its connection to rank 0, says so to the others, and then is gone itself: they heard
// rank 0 all the time, and do not believe it.
TEST(ControlSockets, WhoIsCutOffIsNotBelieved) {
  Connections mesh = connect(4);
  std::vector<std::shared_ptr<Control>> c;
  for (int r = 0; r < 4; ++r) {
    if (r != 2) c.push_back(make_control_sockets(std::move(mesh[r]), {r, seconds(30)}));
  }
  const Verdict wrong{CommErrorKind::kPeerLost, 0, true, "connection closed", true};
  const std::string proposal =
      internal::encode({internal::ControlKind::kPropose, 0, kComm, {}, {0, 1, 2, 3}, wrong});
  std::vector<std::unique_ptr<Events>> events;
  for (const auto& control : c) events.push_back(std::make_unique<Events>(*control));
  internal::write_all(mesh[2][1], proposal, {});
  mesh[2].clear();
  for (size_t i = 0; i < c.size(); ++i) {
    EXPECT_TRUE(events[i]->wait_for([&] { return c[i]->lost(2).has_value(); }));
  }
  const Verdict right{CommErrorKind::kPeerLost, 2, true, "gone", true};
  for (const auto& control : c) {
    EXPECT_EQ(control->settle(kComm, all_of(4), right, kLong).culprit, 2);
  }
}

// And where it stays, its word counts in the end, as a suspicion.
TEST(ControlSockets, AnAccusationIsDoubtedByWhoHearsTheAccusedAndThenASuspicion) {
  const auto c = controls(3);
  const Verdict accusation{CommErrorKind::kPeerLost, 1, true, "connection closed", true};
  const Verdict stands = c[2]->settle(kComm, all_of(3), accusation, kLong);
  EXPECT_EQ(stands.culprit, 1);
  EXPECT_FALSE(stands.proved);
  for (const auto& control : c) {
    Events events(*control);
    EXPECT_TRUE(events.wait_for([&] { return control->verdict(kComm).has_value(); }));
    EXPECT_EQ(control->verdict(kComm)->culprit, 1);
  }
}

// The connection between two ranks breaks, and both live: each finds that the other is gone. One of
// them is named, the same one on all ranks, as a suspicion.
TEST(ControlSockets, ABrokenConnectionBetweenTwoIsOneVerdictOnAllRanks) {
  for (const auto& [size, a, b] :
       std::vector<std::array<int, 3>>{{3, 0, 1}, {4, 0, 3}, {4, 1, 2}}) {
    Connections mesh = connect(size);
    const Fd between(dup(mesh[static_cast<size_t>(a)][static_cast<size_t>(b)].get()));
    std::vector<std::shared_ptr<Control>> c;
    std::vector<std::unique_ptr<Events>> events;
    for (int r = 0; r < size; ++r) {
      c.push_back(make_control_sockets(std::move(mesh[static_cast<size_t>(r)]), {r, seconds(30)}));
      events.push_back(std::make_unique<Events>(*c.back()));
    }
    ASSERT_EQ(shutdown(between.get(), SHUT_RDWR), 0);
    std::vector<std::thread> threads;
    for (const auto& [accuser, accused] : {std::pair(a, b), std::pair(b, a)}) {
      threads.emplace_back([&, accuser = accuser, accused = accused, size = size] {
        Control& control = *c[static_cast<size_t>(accuser)];
        EXPECT_TRUE(events[static_cast<size_t>(accuser)]->wait_for(
            [&] { return control.lost(accused).has_value(); }));
        const std::string detail = "lost by " + std::to_string(accuser);
        control.settle(kComm, all_of(size), {CommErrorKind::kPeerLost, accused, true, detail, true},
                       kLong);
      });
    }
    for (auto& t : threads) t.join();
    for (int r = 0; r < size; ++r) {
      Control& control = *c[static_cast<size_t>(r)];
      ASSERT_TRUE(events[static_cast<size_t>(r)]->wait_for(
          [&] { return control.verdict(kComm).has_value(); }));
      const auto verdict = control.verdict(kComm);
      EXPECT_TRUE(verdict->culprit == a || verdict->culprit == b) << verdict->culprit;
      EXPECT_EQ(verdict->culprit, c[0]->verdict(kComm)->culprit) << r;
      EXPECT_EQ(verdict->detail, c[0]->verdict(kComm)->detail) << r;
      EXPECT_FALSE(verdict->proved) << r;
    }
  }
}

// Of a world of two there is no third who can tell: each names the other, and both say what it may
// be.
TEST(ControlSockets, OfAWorldOfTwoEachNamesTheOtherWhenTheirConnectionBreaks) {
  Connections mesh = connect(2);
  const Fd between(dup(mesh[0][1].get()));
  std::vector<std::shared_ptr<Control>> c;
  std::vector<std::unique_ptr<Events>> events;
  for (int r = 0; r < 2; ++r) {
    c.push_back(make_control_sockets(std::move(mesh[static_cast<size_t>(r)]), {r, seconds(30)}));
    events.push_back(std::make_unique<Events>(*c.back()));
  }
  ASSERT_EQ(shutdown(between.get(), SHUT_RDWR), 0);
  for (int r = 0; r < 2; ++r) {
    Control& control = *c[static_cast<size_t>(r)];
    const int other = 1 - r;
    ASSERT_TRUE(
        events[static_cast<size_t>(r)]->wait_for([&] { return control.lost(other).has_value(); }));
    const std::string detail = control.lost(other)->detail;
    const Verdict mine{CommErrorKind::kPeerLost, other, true, detail, true};
    const Verdict stands = control.settle(kComm, all_of(2), mine, kLong);
    EXPECT_EQ(stands.kind, CommErrorKind::kPeerLost);
    EXPECT_EQ(stands.culprit, other);
    EXPECT_EQ(stands.detail, detail);
    const std::string both = "its process has ended, or only the connection between the two has";
    EXPECT_NE(detail.find(both), std::string::npos) << detail;
  }
}

// A rank leaves, and all others find that at one time: one verdict, too, whoever decides.
TEST(ControlSockets, ALostRankIsOneVerdictOnAllRanks) {
  for (int lost = 0; lost < 4; ++lost) {
    Connections mesh = connect(4);
    std::vector<std::shared_ptr<Control>> c(4);
    for (int r = 0; r < 4; ++r) {
      if (r != lost) {
        c[static_cast<size_t>(r)] =
            make_control_sockets(std::move(mesh[static_cast<size_t>(r)]), {r, seconds(30)});
      }
    }
    mesh[static_cast<size_t>(lost)].clear();
    std::vector<Verdict> verdicts(4);
    std::vector<std::thread> threads;
    for (int r = 0; r < 4; ++r) {
      if (r == lost) continue;
      threads.emplace_back([&, r] {
        Control& control = *c[static_cast<size_t>(r)];
        Events events(control);
        EXPECT_TRUE(events.wait_for([&] { return control.lost(lost).has_value(); }));
        verdicts[static_cast<size_t>(r)] = control.settle(
            kComm, all_of(4),
            {CommErrorKind::kPeerLost, lost, true, "lost by " + std::to_string(r), true}, kLong);
      });
    }
    for (auto& t : threads) t.join();
    const Verdict& first = verdicts[lost == 0 ? 1 : 0];
    EXPECT_EQ(first.culprit, lost);
    EXPECT_TRUE(first.proved);
    for (int r = 0; r < 4; ++r) {
      if (r == lost) continue;
      EXPECT_EQ(verdicts[static_cast<size_t>(r)].detail, first.detail) << r;
    }
  }
}

// A rank that leaves because of a verdict is not taken for the culprit.
TEST(ControlSockets, AVerdictComesBeforeTheEndOfItsSender) {
  for (int i = 0; i < 20; ++i) {
    auto c = controls(2);
    Events events(*c[1]);
    c[0]->settle(kComm, all_of(2), {CommErrorKind::kAborted, 0, true, "leaving"}, kLong);
    c[0].reset();
    EXPECT_TRUE(events.wait_for([&] { return c[1]->verdict(kComm).has_value(); }));
    EXPECT_FALSE(c[1]->lost(0).has_value());
  }
}

// pytorch#173909
TEST(ControlMesh, StrangersAreDroppedAndDelayNobody) {
  std::vector<Fd> strangers;
  Connections mesh = connect(3, [&](const internal::HostPort& address) {
    for (int i = 0; i < 100; ++i) strangers.push_back(internal::connect_to(address, {}));
    internal::write_all(strangers[0], std::string(1000, 'x'), {});
    internal::write_all(strangers[1], "DTCT", {});  // half a greeting and nothing more
    std::string wrong_token = "DTCTRL01" + std::string(64, 't') + std::string("\1\0\0\0", 4);
    internal::write_all(strangers[2], wrong_token, {});
  });
  for (int r = 0; r < 3; ++r) {
    for (int p = 0; p < 3; ++p) EXPECT_EQ(static_cast<bool>(mesh[r][p]), r != p);
  }
  char byte = 0;
  for (const Fd& s : strangers) {
    EXPECT_THROW(internal::read_all(s, &byte, 1, Deadline::after(kLong)), Error);
  }
  const auto c = make_control_sockets(std::move(mesh[0]), {0, seconds(30)});
  const auto d = make_control_sockets(std::move(mesh[1]), {1, seconds(30)});
  EXPECT_TRUE(c->ask(kComm, std::vector<int>{1}, kLong)[0].has_value());
}

// All ranks of a large world connect before one of them has said who it is.
TEST(ControlMesh, ManyRanksMayComeAtOneTime) {
  constexpr int kSize = 200;
  Fd listener = internal::listen_on("127.0.0.1", 0);
  const internal::HostPort address = internal::local_address(listener);
  std::vector<Fd> ranks;
  for (int r = 1; r < kSize; ++r) ranks.push_back(internal::connect_to(address, {}));
  const auto store = make_memory_store();
  std::vector<Fd> mesh;
  std::thread zero([&] {
    mesh = internal::connect_control_mesh(std::move(listener), *store,
                                          {0, kSize, "token", "", Deadline::after(kLong)});
  });
  const auto greeting = [](int r) {
    std::string g = "DTCTRL01token" + std::string(59, '\0');
    g.append(reinterpret_cast<const char*>(&r), sizeof(r));
    return g;
  };
  for (int r = 1; r < kSize; ++r) {
    std::string answer(greeting(0).size(), '\0');
    try {
      internal::write_all(ranks[static_cast<size_t>(r - 1)], greeting(r), {});
      internal::read_all(ranks[static_cast<size_t>(r - 1)], answer.data(), answer.size(),
                         Deadline::after(kLong));
    } catch (const Error& e) {
      ADD_FAILURE() << "rank " << r << ": " << e.what();
      ranks[static_cast<size_t>(r - 1)] = internal::connect_to(address, {});
      internal::write_all(ranks[static_cast<size_t>(r - 1)], greeting(r), {});
      continue;
    }
    EXPECT_EQ(answer, greeting(0));
  }
  zero.join();
  for (int r = 1; r < kSize; ++r) EXPECT_TRUE(static_cast<bool>(mesh[static_cast<size_t>(r)])) << r;
}

TEST(ControlMesh, ARankThatDoesNotConnectIsNamed) {
  const auto store = make_memory_store();
  try {
    internal::connect_control_mesh(internal::listen_on("127.0.0.1", 0), *store,
                                   {0, 2, "token", "", Deadline::after(milliseconds(30))});
    FAIL() << "a mesh of one formed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1"), std::string::npos) << e.what();
  }
}

TEST(ControlWire, EveryKindComesBack) {
  using internal::ControlKind;
  using internal::ControlMessage;
  std::string stream;
  for (int k = 0; k <= static_cast<int>(ControlKind::kDecide); ++k) {
    ControlMessage m;
    m.kind = static_cast<ControlKind>(k);
    m.nonce = 3;
    m.comm = kComm;
    m.position = at(9);
    m.members = {4, 0, 2};
    m.verdict = {CommErrorKind::kTimeout, 2, false, "silent"};
    stream += internal::encode(m);
  }
  std::string partial;
  int count = 0;
  for (const char byte : stream) {  // byte by byte
    partial += byte;
    while (auto m = internal::take_message(partial)) {
      EXPECT_EQ(static_cast<int>(m->kind), count++);
      if (m->kind == ControlKind::kDecide) {
        EXPECT_EQ(m->members, (std::vector<int>{4, 0, 2}));
        EXPECT_EQ(m->verdict.kind, CommErrorKind::kTimeout);
        EXPECT_EQ(m->verdict.culprit, 2);
        EXPECT_EQ(m->verdict.detail, "silent");
      }
      EXPECT_TRUE(m->kind != ControlKind::kAnswer || m->position.call == "call 9");
    }
  }
  EXPECT_EQ(count, static_cast<int>(ControlKind::kDecide) + 1);
  EXPECT_TRUE(partial.empty());
}

TEST(ControlWire, CutShortOrTooLongIsRefused) {
  std::string good = internal::encode({.kind = internal::ControlKind::kAsk, .nonce = 1, .comm = 2});
  for (const int change : {-1, 1}) {
    std::string bad = good;
    bad[0] = static_cast<char>(bad[0] + change);
    bad += "x";
    EXPECT_THROW(internal::take_message(bad), Error);
  }
  std::string huge("\xff\xff\xff\x7f", 4);
  EXPECT_THROW(internal::take_message(huge), Error);
}

}  // namespace
}  // namespace dtensor::comm

#include "dtensor/tests/comm/transport_contract.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace dtensor::testing {
namespace {

using comm::Transfer;
using comm::Transport;
using comm::TransportError;
using Bytes = std::vector<char>;
using Kind = TransportError::Kind;
using TransportPtr = std::shared_ptr<Transport>;

constexpr uint64_t kFirst = 5;
constexpr uint64_t kSecond = uint64_t{1} << 63;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

Bytes bytes(int64_t count, int seed) {
  Bytes v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<char>(seed + static_cast<int>(i % 101));
  return v;
}

// The largest message that a test sends.
int64_t large(const Transport& t) { return std::min<int64_t>(t.max_message_bytes(), 1 << 20); }

// What a wait throws; nullopt where it does not.
std::optional<TransportError> error_of(Transfer& transfer, Deadline deadline) {
  try {
    transfer.wait(deadline);
  } catch (const TransportError& e) {
    return e;
  }
  return std::nullopt;
}

void expect_error(Transfer& transfer, Kind kind, Deadline deadline = soon()) {
  const auto error = error_of(transfer, deadline);
  ASSERT_TRUE(error.has_value()) << "nothing thrown";
  EXPECT_EQ(error->kind, kind) << error->what();
}

// Messages between ranks 0 and 1 come through in both directions; also: both have come here.
void expect_alive(Transport& mine) {
  const int peer = 1 - mine.rank();
  const Bytes sent = bytes(1000, 'q' + mine.rank());
  Bytes got(1000);
  const auto r = mine.receive(peer, 999, got.data(), 1000);
  const auto s = mine.send(peer, 999, sent.data(), 1000);
  r->wait(soon());
  s->wait(soon());
  EXPECT_EQ(got, bytes(1000, 'q' + peer));
}

TEST_P(TransportContract, MessagesOfOneTagKeepTheirOrderAndTagsAreIndependent) {
  run(2, [](TransportPtr& mine) {
    const std::vector<int64_t> sizes = {1, 511, 4096, 4097, large(*mine), 3, 8192, 65536};
    std::vector<Bytes> values;
    std::vector<std::unique_ptr<Transfer>> transfers;
    const size_t n = sizes.size();
    for (size_t k = 0; k < 2 * n; ++k) values.push_back(bytes(sizes[k % n], static_cast<int>(k)));
    if (mine->rank() == 0) {
      for (size_t k = 0; k < 2 * n; ++k) {
        transfers.push_back(
            mine->send(1, k < n ? kFirst : kSecond, values[k].data(), sizes[k % n]));
      }
      for (const auto& t : transfers) t->wait(soon());
      return;
    }
    std::vector<Bytes> got(2 * n);
    for (size_t i = 0; i < 2 * n; ++i) {
      const size_t k = (i + n) % (2 * n);  // the second tag first
      got[k].resize(values[k].size());
      transfers.push_back(mine->receive(0, k < n ? kFirst : kSecond, got[k].data(), sizes[k % n]));
    }
    for (const auto& t : transfers) t->wait(soon());
    EXPECT_EQ(got, values);
    EXPECT_TRUE(transfers[0]->ready());
  });
}

TEST_P(TransportContract, WhicheverSideComesFirstMessagesArrive) {
  run(2, [](TransportPtr& mine) {
    for (const int64_t n : {int64_t{1}, int64_t{4096}, int64_t{4097}, large(*mine)}) {
      for (const int first : {0, 1}) {
        const Bytes value = bytes(n, first);
        Bytes got(value.size());
        if (mine->rank() != first) expect_alive(*mine);
        const auto t = mine->rank() == 0 ? mine->send(1, kFirst, value.data(), n)
                                         : mine->receive(0, kFirst, got.data(), n);
        if (mine->rank() == first) expect_alive(*mine);
        t->wait(soon());
        if (mine->rank() == 1) {
          EXPECT_EQ(got, value);
        }
      }
    }
  });
}

TEST_P(TransportContract, EqualTagsOfTwoSendersAreTwo) {
  run(3, [](TransportPtr& mine) {
    if (mine->rank() > 0) {
      const Bytes value = bytes(1000, mine->rank());
      mine->send(0, 7, value.data(), 1000)->wait(soon());
      return;
    }
    for (const int src : {2, 1}) {
      Bytes got(1000);
      mine->receive(src, 7, got.data(), 1000)->wait(soon());
      EXPECT_EQ(got, bytes(1000, src));
    }
  });
}

TEST_P(TransportContract, ManyMessagesAreUnderWayInBothDirections) {
  run(3, [](TransportPtr& mine) {
    constexpr int kMessages = 40;
    const auto size_of = [](int k) { return int64_t{1} + k * 1777 % 30'000; };
    std::vector<Bytes> sent;
    std::vector<Bytes> got;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int k = 0; k < kMessages; ++k) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == mine->rank()) continue;
        const int64_t n = size_of(k);
        sent.push_back(bytes(n, 3 * k + mine->rank()));
        got.emplace_back(static_cast<size_t>(n));
        const auto tag = static_cast<uint64_t>(k % 7);
        transfers.push_back(mine->send(peer, tag, sent.back().data(), n));
        transfers.push_back(mine->receive(peer, tag, got.back().data(), n));
      }
    }
    std::ranges::reverse(transfers);
    for (const auto& t : transfers) t->wait(soon());
    size_t i = 0;
    for (int k = 0; k < kMessages; ++k) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == mine->rank()) continue;
        EXPECT_EQ(got[i++], bytes(size_of(k), 3 * k + peer));
      }
    }
  });
}

TEST_P(TransportContract, ThreadsOfOneRankDoNotDisturbEachOther) {
  run(2, [](TransportPtr& mine) {
    std::vector<std::thread> threads;
    for (uint64_t tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&mine, tag] {
        const int peer = 1 - mine->rank();
        for (int round = 0; round < 50; ++round) {
          const int64_t n = 1 + (round * 9973) % 50000;
          const Bytes sent = bytes(n, mine->rank() + round);
          Bytes got(sent.size());
          const auto r = mine->receive(peer, tag, got.data(), n);
          const auto s = mine->send(peer, tag, sent.data(), n);
          r->wait(soon());
          s->wait(soon());
          ASSERT_EQ(got, bytes(n, peer + round));
        }
      });
    }
    for (auto& t : threads) t.join();
  });
}

// ucxx#104, ucxx#107: shorter or longer than its receiver expects, it is an error that names the
// sender, and nothing beyond the receiver's memory is written.
TEST_P(TransportContract, AMessageOfAnotherSizeIsAnError) {
  run(2, [](TransportPtr& mine) {
    for (const int64_t n : {int64_t{99}, int64_t{101}, int64_t{2000}, large(*mine)}) {
      const Bytes value = bytes(n, 'a');
      Bytes got(108, 'x');
      std::unique_ptr<Transfer> t;
      if (mine->rank() == 0) t = mine->receive(1, 7, got.data(), 100);
      if (mine->rank() == 1) t = mine->send(0, 7, value.data(), n);
      if (mine->rank() == 0) {
        const auto error = error_of(*t, soon());
        ASSERT_TRUE(error.has_value()) << n << " bytes were taken as 100";
        EXPECT_EQ(error->kind, Kind::kPeer);
        EXPECT_EQ(error->peer, 1);
        EXPECT_EQ(Bytes(got.begin() + 100, got.end()), Bytes(8, 'x'));
      }
      expect_alive(*mine);
    }
  });
}

TEST_P(TransportContract, InterruptEndsAWaitAndNoOther) {
  run(2, [](TransportPtr& mine) {
    const Bytes value = bytes(10, 'b');
    if (mine->rank() == 1) {
      expect_alive(*mine);
      mine->send(0, 2, value.data(), 10)->wait(soon());
      return;
    }
    Bytes one(10);
    Bytes two(10);
    const auto a = mine->receive(1, 1, one.data(), 10);
    const auto b = mine->receive(1, 2, two.data(), 10);
    a->interrupt();  // before the wait
    expect_error(*a, Kind::kInterrupted);
    std::thread other([&] { a->interrupt(); });  // before or during it
    expect_error(*a, Kind::kInterrupted);
    other.join();
    expect_alive(*mine);
    b->wait(soon());
    EXPECT_EQ(two, value);
  });
}

// pytorch#67742: what was cancelled is not written later, and harms nobody else.
TEST_P(TransportContract, ACancelledReceiveIsNotWrittenAndTheConnectionLives) {
  run(2, [](TransportPtr& mine) {
    const Bytes value = bytes(1000, 'c');
    Bytes got(1000, 'x');
    if (mine->rank() == 0) mine->receive(1, 1, got.data(), 1000).reset();
    expect_alive(*mine);
    std::unique_ptr<Transfer> s;
    if (mine->rank() == 1) s = mine->send(0, 1, value.data(), 1000);
    expect_alive(*mine);
    EXPECT_EQ(got, Bytes(1000, 'x'));
  });
}

// Its memory is gone: the address sanitizer would see a read. What comes in its place is no data.
TEST_P(TransportContract, ACancelledSendIsWholeOrAnErrorAndTheConnectionLives) {
  run(2, [](TransportPtr& mine) {
    if (mine->rank() == 0) {
      const Bytes value = bytes(1000, 'd');
      mine->send(1, 1, value.data(), 1000).reset();
    }
    expect_alive(*mine);
    if (mine->rank() == 1) {
      Bytes got(1000);
      const auto error = error_of(*mine->receive(0, 1, got.data(), 1000), soon());
      if (error.has_value()) {
        EXPECT_EQ(error->kind, Kind::kPeer) << error->what();
      } else {
        EXPECT_EQ(got, bytes(1000, 'd'));
      }
    }
    expect_alive(*mine);
  });
}

TEST_P(TransportContract, ATransferOutlivesItsTransport) {
  run(2, [](TransportPtr& mine) {
    const Bytes value = bytes(10, 'e');
    if (mine->rank() == 1) {
      expect_alive(*mine);
      mine->send(0, 1, value.data(), 10)->wait(soon());
      return;
    }
    Bytes got(10);
    const auto r = mine->receive(1, 1, got.data(), 10);
    expect_alive(*mine);
    mine.reset();
    r->wait(soon());
    EXPECT_EQ(got, value);
  });
}

TEST_P(TransportContract, TheDeadlineEndsAWait) {
  run(2, [](TransportPtr& mine) {
    if (mine->rank() == 1) return;
    Bytes got(10);
    const auto r = mine->receive(1, 1, got.data(), 10);
    expect_error(*r, Kind::kTimeout, Deadline::after(std::chrono::milliseconds(5)));
  });
}

// gloo#520: no SIGPIPE, no end of the process; sends that are stuck end, too.
TEST_P(TransportContract, APeerThatIsGoneEndsWaitsAndNothingElse) {
  if (GetParam().gone_peer == GonePeer::kIsNotTold) GTEST_SKIP() << "ranks cannot go alone";
  const bool is_told = GetParam().gone_peer == GonePeer::kIsTold;
  run(2, [&](TransportPtr& mine) {
    if (mine->rank() == 1) {
      expect_alive(*mine);
      mine.reset();
      return;
    }
    const auto expect_told = [&](const TransportError& e) {
      EXPECT_NE(e.kind, Kind::kInterrupted) << e.what();
      EXPECT_TRUE(!is_told || e.kind == Kind::kPeer) << e.what();
    };
    const Bytes value = bytes(large(*mine), 'f');
    Bytes got(10);
    std::vector<std::unique_ptr<Transfer>> transfers;
    // Starting may be an error already.
    const auto receive = [&] {
      try {
        transfers.push_back(mine->receive(1, 1, got.data(), 10));
      } catch (const TransportError& e) {
        expect_told(e);
      }
    };
    const auto send = [&] {
      try {
        transfers.push_back(mine->send(1, 2, value.data(), static_cast<int64_t>(value.size())));
      } catch (const TransportError& e) {
        expect_told(e);
      }
    };
    // Waits for all and counts errors.
    const auto failed = [&] {
      size_t n = 0;
      for (const auto& t : transfers) {
        const auto error =
            error_of(*t, is_told ? soon() : Deadline::after(std::chrono::milliseconds(20)));
        if (error.has_value()) expect_told(*error);
        n += error.has_value() ? 1 : 0;
      }
      return n;
    };
    receive();
    expect_alive(*mine);
    for (int k = 0; k < 8; ++k) send();
    EXPECT_GE(failed(), 1U);  // the receive; the last bytes may have been taken for sent
    transfers.clear();
    receive();
    if (is_told) send();
    EXPECT_EQ(failed(), transfers.size());
  });
}

}  // namespace
}  // namespace dtensor::testing

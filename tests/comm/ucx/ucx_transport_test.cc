#include "dtensor/comm/ucx/ucx_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm::ucx {
namespace {

using Kind = TransportError::Kind;
using std::chrono::milliseconds;
constexpr std::chrono::seconds kLong{60};
constexpr int64_t kMessage = 1 << 20;  // more than UCX takes before the other side has read

Deadline soon() { return Deadline::after(kLong); }

std::vector<char> bytes(int64_t count, char seed) {
  std::vector<char> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<char>(seed + i % 101);
  return v;
}

Kind kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const TransportError& e) {
    return e.kind;
  }
  ADD_FAILURE() << "did not throw";
  return Kind::kTimeout;
}

// UCX moves data while somebody waits on each side.
void wait_for_both(Transfer& a, Transfer& b) {
  std::thread other([&] { a.wait(soon()); });
  b.wait(soon());
  other.join();
}

class UcxTransport : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::shared_ptr<Transport>> transports(int size) {
    const auto store = make_memory_store();
    std::vector<std::shared_ptr<Transport>> out(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        UcxTransportOptions o;
        o.rank = r;
        o.size = size;
        o.transports = GetParam();
        o.token = "token";
        o.deadline = soon();
        out[static_cast<size_t>(r)] = make_ucx_transport(store, o);
      });
    }
    for (auto& t : threads) t.join();
    return out;
  }

  static void expect_alive(Transport& a, Transport& b) {
    const auto sent = bytes(1000, 'q');
    std::vector<char> got(1000);
    const auto r = b.receive(a.rank(), 999, got.data(), 1000);
    const auto s = a.send(b.rank(), 999, sent.data(), 1000);
    wait_for_both(*s, *r);
    EXPECT_EQ(got, sent);
  }
};

TEST_P(UcxTransport, MessagesOfOneTagKeepTheirOrderAndTagsAreIndependent) {
  const auto t = transports(2);
  const std::vector<int64_t> sizes = {1, 511, 4097, kMessage, 3, 8192, 65536};
  std::vector<std::vector<char>> sent;
  std::vector<std::unique_ptr<Transfer>> sends;
  for (const uint64_t tag : {5ULL, 1ULL << 63}) {
    for (const int64_t n : sizes) {
      sent.push_back(bytes(n, static_cast<char>(sent.size())));
      sends.push_back(t[0]->send(1, tag, sent.back().data(), n));
    }
  }
  std::thread sender([&] {
    for (const auto& x : sends) x->wait(soon());
  });
  std::vector<std::vector<char>> got(sent.size());
  std::vector<std::unique_ptr<Transfer>> receives;
  for (const size_t half : {1U, 0U}) {  // the second tag first
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto& into = got[half * sizes.size() + i];
      into.resize(static_cast<size_t>(sizes[i]));
      receives.push_back(t[1]->receive(0, half == 1 ? 1ULL << 63 : 5, into.data(), sizes[i]));
    }
  }
  for (const auto& x : receives) x->wait(soon());
  sender.join();
  EXPECT_EQ(got, sent);
  EXPECT_TRUE(receives[0]->ready());
}

TEST_P(UcxTransport, EqualTagsOfTwoSendersAreTwo) {
  const auto t = transports(3);
  const auto one = bytes(1000, '1');
  const auto two = bytes(1000, '2');
  std::vector<char> from_two(1000);
  std::vector<char> from_one(1000);
  const auto s1 = t[1]->send(0, 7, one.data(), 1000);
  const auto s2 = t[2]->send(0, 7, two.data(), 1000);
  t[0]->receive(2, 7, from_two.data(), 1000)->wait(soon());
  t[0]->receive(1, 7, from_one.data(), 1000)->wait(soon());
  EXPECT_EQ(from_one, one);
  EXPECT_EQ(from_two, two);
}

// Many threads of one rank use its Transport at once.
TEST_P(UcxTransport, ThreadsOfOneRankDoNotDisturbEachOther) {
  const auto t = transports(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    for (uint64_t k = 0; k < 4; ++k) {
      threads.emplace_back([&, rank, k] {
        for (int round = 0; round < 50; ++round) {
          const int64_t n = 1 + (round * 9973) % 50000;
          const auto sent = bytes(n, static_cast<char>(rank + round));
          std::vector<char> got(sent.size());
          const auto r = t[static_cast<size_t>(rank)]->receive(1 - rank, k, got.data(), n);
          const auto s = t[static_cast<size_t>(rank)]->send(1 - rank, k, sent.data(), n);
          r->wait(soon());
          s->wait(soon());
          ASSERT_EQ(got, bytes(n, static_cast<char>(1 - rank + round)));
        }
      });
    }
  }
  for (auto& thread : threads) thread.join();
}

// A message of another length than announced, shorter or longer, is an error.
TEST_P(UcxTransport, AMessageOfAnotherSizeIsAnError) {
  const auto t = transports(2);
  const auto sent = bytes(kMessage, 'a');
  for (const int64_t n : {int64_t{99}, int64_t{101}, int64_t{2000}, kMessage}) {
    std::vector<char> got(108, 'x');
    const auto r = t[0]->receive(1, 7, got.data(), 100);
    const auto s = t[1]->send(0, 7, sent.data(), n);
    std::thread sender([&] { s->wait(soon()); });
    EXPECT_EQ(kind_of([&] { r->wait(soon()); }), Kind::kPeer) << n;
    expect_alive(*t[1], *t[0]);
    sender.join();
    EXPECT_EQ(std::vector<char>(got.begin() + 100, got.end()), std::vector<char>(8, 'x'));
  }
}

TEST_P(UcxTransport, InterruptEndsAWaitAndNoOther) {
  const auto t = transports(2);
  std::vector<char> one(10);
  std::vector<char> two(10);
  const auto a = t[0]->receive(1, 1, one.data(), 10);
  const auto b = t[0]->receive(1, 2, two.data(), 10);
  a->interrupt();  // before the wait
  EXPECT_EQ(kind_of([&] { a->wait(soon()); }), Kind::kInterrupted);
  std::thread other([&] { a->interrupt(); });  // before or during it
  EXPECT_EQ(kind_of([&] { a->wait(soon()); }), Kind::kInterrupted);
  other.join();
  const auto sent = bytes(10, 'b');
  t[1]->send(0, 2, sent.data(), 10)->wait(soon());
  b->wait(soon());
  EXPECT_EQ(two, sent);
}

TEST_P(UcxTransport, AReceiveCancelledBeforeItsMessageIsNotWritten) {
  const auto t = transports(2);
  std::vector<char> got(1000, 'x');
  t[0]->receive(1, 1, got.data(), 1000).reset();
  const auto sent = bytes(1000, 'c');
  t[1]->send(0, 1, sent.data(), 1000)->wait(soon());
  expect_alive(*t[1], *t[0]);
  EXPECT_EQ(got, std::vector<char>(1000, 'x'));
}

// The rest of a message whose beginning is there goes nowhere.
TEST_P(UcxTransport, AReceiveCancelledAmidItsMessageIsNotWrittenAnyMore) {
  const auto t = transports(2);
  const auto sent = bytes(kMessage, 'c');
  int cut = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<char> got(sent.size(), 'x');
    auto r = t[0]->receive(1, 1, got.data(), kMessage);
    const auto s = t[1]->send(0, 1, sent.data(), kMessage);
    try {
      r->wait(Deadline::after(milliseconds(0)));
    } catch (const TransportError& e) {
      EXPECT_EQ(e.kind, Kind::kTimeout);
      if (got.front() != 'x' && !r->ready()) ++cut;
    }
    r.reset();
    const std::vector<char> before = got;
    std::thread sender([&] { s->wait(soon()); });
    expect_alive(*t[1], *t[0]);
    sender.join();
    EXPECT_EQ(got, before);
  }
  if (GetParam() != "tcp") {  // a socket may hold a whole message
    EXPECT_GT(cut, 0) << "no receive was cancelled half-way";
  }
}

// Its memory is gone: the address sanitizer would see a read. What comes in its place is no data.
TEST_P(UcxTransport, ACancelledSendIsWholeOrAnErrorAtItsReceiver) {
  const auto t = transports(2);
  for (const int64_t n : {int64_t{100}, 8 * kMessage}) {
    std::vector<std::unique_ptr<Transfer>> sends;
    {
      const auto sent = bytes(n, 'd');
      for (int64_t at = 0; at < n; at += kMessage) {
        sends.push_back(t[0]->send(1, 1, sent.data() + at, std::min(n, kMessage)));
      }
      sends.clear();
    }
    const auto whole = bytes(n, 'd');
    int withdrawn = 0;
    for (int64_t at = 0; at < n; at += kMessage) {
      std::vector<char> got(static_cast<size_t>(std::min(n, kMessage)));
      const auto r = t[1]->receive(0, 1, got.data(), std::min(n, kMessage));
      try {
        r->wait(soon());
        EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + at));
      } catch (const TransportError& e) {
        EXPECT_EQ(e.kind, Kind::kPeer);
        ++withdrawn;
      }
    }
    EXPECT_EQ(withdrawn > 0, n > kMessage);
    expect_alive(*t[0], *t[1]);
  }
}

// The sender goes on to compute: nobody calls UCX for it but its own thread.
TEST_P(UcxTransport, WhatWasSentArrivesThoughTheSenderDoesNothingMore) {
  const auto t = transports(2);
  for (int round = 0; round < 5; ++round) {
    const auto sent = bytes(kMessage, static_cast<char>('e' + round));
    const auto s = t[0]->send(1, 1, sent.data(), kMessage);
    std::vector<char> got(sent.size());
    t[1]->receive(0, 1, got.data(), kMessage)->wait(soon());
    EXPECT_EQ(got, sent);
  }
}

TEST_P(UcxTransport, ATransferOutlivesItsTransport) {
  auto t = transports(2);
  std::vector<char> got(10);
  auto r = t[0]->receive(1, 1, got.data(), 10);
  t[0].reset();
  const auto sent = bytes(10, 'e');
  t[1]->send(0, 1, sent.data(), 10)->wait(soon());
  r->wait(soon());
  EXPECT_EQ(got, sent);
}

// UCX reports nothing where memory is shared; by TCP it may. In no case does it end the process,
// neither when messages are stuck nor when their connection is closed.
TEST_P(UcxTransport, APeerThatIsGoneEndsWaitsAndNothingElse) {
  auto t = transports(2);
  const auto sent = bytes(kMessage, 'f');
  std::vector<char> got(10);
  std::vector<std::unique_ptr<Transfer>> sends;
  sends.push_back(t[0]->receive(1, 1, got.data(), 10));
  for (int i = 0; i < 8; ++i) sends.push_back(t[0]->send(1, 2, sent.data(), kMessage));
  t[1].reset();
  sends.push_back(t[0]->send(1, 2, sent.data(), kMessage));
  for (const auto& s : sends) {
    EXPECT_NE(kind_of([&] {
                s->wait(Deadline::after(milliseconds(20)));
                throw TransportError(Kind::kPeer, 1, "went through");
              }),
              Kind::kInterrupted);
  }
  sends.clear();
  const auto begin = std::chrono::steady_clock::now();
  t[0].reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kLong);
}

TEST_P(UcxTransport, TheDeadlineEndsAWait) {
  const auto t = transports(2);
  std::vector<char> got(10);
  const auto r = t[0]->receive(1, 1, got.data(), 10);
  EXPECT_EQ(kind_of([&] { r->wait(Deadline::after(milliseconds(5))); }), Kind::kTimeout);
}

// The ports on which this process listens.
std::set<int> own_ports() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    sockets.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::set<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state != "0A" || sockets.count("socket:[" + inode + "]") == 0) continue;
    ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

// Garbage, half a greeting and silence, at every port.
TEST_P(UcxTransport, AStrangerIsDroppedAndDisturbsNobody) {
  const auto t = transports(2);
  const std::set<int> ports = own_ports();
  ASSERT_FALSE(ports.empty());
  std::vector<internal::Fd> strangers;
  for (const int port : ports) {
    for (const std::string& words : {std::string(10000, 'g'), std::string("half"), std::string()}) {
      strangers.push_back(internal::connect_to({"127.0.0.1", port}, soon()));
      send(strangers.back().get(), words.data(), words.size(), MSG_NOSIGNAL);
    }
  }
  expect_alive(*t[0], *t[1]);
  expect_alive(*t[1], *t[0]);
  strangers.clear();
  expect_alive(*t[0], *t[1]);
}

TEST_P(UcxTransport, ARankThatDoesNotComeIsAnError) {
  const auto store = make_memory_store();
  UcxTransportOptions o;
  o.size = 2;
  o.transports = GetParam();
  o.deadline = Deadline::after(milliseconds(50));
  EXPECT_THROW(make_ucx_transport(store, o), Error);
}

INSTANTIATE_TEST_SUITE_P(Tls, UcxTransport, testing::Values("posix,self,tcp", "tcp"),
                         [](const auto& tested) {
                           return tested.param == "tcp" ? "tcp" : "posix";
                         });

TEST(UcxTransportStart, WhatDoesNotFitIsNamed) {
  const auto start = [](const std::string& address, const std::string& transports) {
    UcxTransportOptions o;
    o.address = address;
    o.transports = transports;
    try {
      make_ucx_transport(make_memory_store(), o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  // TEST-NET-1: nobody's
  EXPECT_NE(start("192.0.2.1", "tcp").find("192.0.2.1"), std::string::npos);
  EXPECT_NE(start("127.0.0.1", "carrier_pigeon").find("carrier_pigeon"), std::string::npos);
}

}  // namespace
}  // namespace dtensor::comm::ucx

#include "dtensor/comm/ucx/ucx_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/hash.h"
#include "dtensor/comm/secret.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/ucx/worker.h"
#include "dtensor/tests/comm/process_worlds.h"
#include "dtensor/tests/comm/transport_contract.h"

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

// UCX moves data while somebody waits on each side.
void wait_for_both(Transfer& a, Transfer& b) {
  std::thread other([&] { a.wait(soon()); });
  b.wait(soon());
  other.join();
}

std::vector<std::shared_ptr<Transport>> transports_over(
    const std::string& tls, int size, const std::shared_ptr<Store>& store = make_memory_store(),
    const std::shared_ptr<const Secret>& secret = nullptr) {
  std::vector<std::shared_ptr<Transport>> out(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      UcxTransportOptions o;
      o.rank = r;
      o.size = size;
      o.transports = tls;
      o.token = "token";
      o.secret = secret;
      o.deadline = soon();
      out[static_cast<size_t>(r)] = make_ucx_transport(store, o);
    });
  }
  for (auto& t : threads) t.join();
  return out;
}

class UcxTransport : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::shared_ptr<Transport>> transports(int size) {
    return transports_over(GetParam(), size);
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

// A stranger who has read the worker's address, and knows tag and size of what is due from rank 1.
TEST_P(UcxTransport, WhatAStrangerSendsIsNotTakenForAMessageOfARank) {
  constexpr uint64_t kTag = 77;
  for (const auto& secret :
       {std::shared_ptr<const Secret>(), std::make_shared<const Secret>("sixteen bytes or more")}) {
    const std::shared_ptr<Store> store = make_memory_store();
    const auto t = transports_over(GetParam(), 2, store, secret);
    WorkerOptions options;
    options.transports = GetParam();
    options.device = "lo";
    Worker stranger(options);
    stranger.connect(0, store->get("ucx/0", soon()));
    const auto forged = bytes(1000, 'f');
    const auto right = bytes(1000, 'r');
    std::vector<char> got(1000);
    const auto due = t[0]->receive(1, kTag, got.data(), 1000);
    std::thread receiver([&] { due->wait(soon()); });  // it also lets the stranger in
    const auto tag_of = [](uint64_t salt) {
      return internal::mix(internal::mix(salt, uint64_t{1}), kTag);
    };
    std::vector<uint64_t> tags = {kTag, tag_of(0)};
    if (secret) {  // the store alone does not tell
      uint64_t salt = 0;
      std::memcpy(&salt, store->get("ucx/salt", soon()).data(), sizeof(salt));
      tags.push_back(tag_of(salt));
    }
    std::vector<Operation*> sent;
    for (const uint64_t tag : tags) sent.push_back(stranger.send(0, tag, forged.data(), 1000));
    EXPECT_TRUE(stranger.settle(soon()));
    const auto send = t[1]->send(0, kTag, right.data(), 1000);
    send->wait(soon());
    receiver.join();
    EXPECT_EQ(got, right);
    for (Operation* op : sent) stranger.release(op);
    expect_alive(*t[0], *t[1]);
  }
}

TEST_P(UcxTransport, ARankThatDoesNotComeIsAnError) {
  const auto store = make_memory_store();
  UcxTransportOptions o;
  o.size = 2;
  o.transports = GetParam();
  o.deadline = Deadline::after(milliseconds(50));
  EXPECT_THROW(make_ucx_transport(store, o), Error);
}

INSTANTIATE_TEST_SUITE_P(Tls, UcxTransport, ::testing::Values("posix,self,tcp", "tcp"),
                         [](const auto& tested) {
                           return tested.param == "tcp" ? "tcp" : "posix";
                         });

using testing::GonePeer;
using testing::TransportContract;
using testing::TransportWorld;

// UCX reports nothing where memory is shared; by TCP it may.
INSTANTIATE_TEST_SUITE_P(
    Ucx, TransportContract,
    ::testing::Values(TransportWorld{"posix",
                                     [](int n) { return transports_over("posix,self,tcp", n); },
                                     GonePeer::kMayBeTold},
                      TransportWorld{"tcp", [](int n) { return transports_over("tcp", n); },
                                     GonePeer::kMayBeTold}),
    testing::transport_name);

TEST(UcxTransportContract, HoldsBetweenProcesses) {
  EXPECT_EQ(testing::run_suite_in_processes("tests/comm/ucx/transport_rank", 3, "ucx"), 0);
}

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

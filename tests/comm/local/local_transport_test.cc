#include "dtensor/comm/local/local_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace dtensor::comm::local {
namespace {

constexpr int64_t kSizes[] = {1, 4096, 4097, 1'000'000};

std::vector<char> bytes_of(int64_t n, int seed) {
  std::vector<char> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<char>(i * 31 + static_cast<size_t>(seed));
  return v;
}

Deadline minute() { return Deadline::after(std::chrono::seconds(60)); }

TEST(LocalTransport, MovesMessagesWhicheverSideComesFirst) {
  const auto t = make_transports(2);
  for (const int64_t n : kSizes) {
    for (const bool send_first : {true, false}) {
      const auto in = bytes_of(n, 1);
      std::vector<char> out(in.size(), 0);
      std::unique_ptr<Transfer> send;
      std::unique_ptr<Transfer> receive;
      if (send_first) send = t[0]->send(1, 5, in.data(), n);
      receive = t[1]->receive(0, 5, out.data(), n);
      if (!send_first) send = t[0]->send(1, 5, in.data(), n);
      send->wait(minute());
      receive->wait(minute());
      EXPECT_EQ(out, in);
    }
  }
}

TEST(LocalTransport, KeepsTheOrderWithinATagAndNoneBetweenTags) {
  const auto t = make_transports(3);
  const std::vector<std::vector<char>> in = {bytes_of(6000, 0), bytes_of(6000, 1),
                                             bytes_of(6000, 2)};
  std::vector<std::unique_ptr<Transfer>> transfers;
  transfers.push_back(t[0]->send(1, 7, in[0].data(), 6000));
  transfers.push_back(t[0]->send(1, 8, in[1].data(), 6000));
  transfers.push_back(t[0]->send(1, 7, in[2].data(), 6000));
  transfers.push_back(t[2]->send(1, 7, in[1].data(), 6000));
  std::vector<std::vector<char>> out(4, std::vector<char>(6000));
  transfers.push_back(t[1]->receive(2, 7, out[3].data(), 6000));
  transfers.push_back(t[1]->receive(0, 8, out[1].data(), 6000));
  transfers.push_back(t[1]->receive(0, 7, out[0].data(), 6000));
  transfers.push_back(t[1]->receive(0, 7, out[2].data(), 6000));
  for (auto& x : transfers) x->wait(minute());
  EXPECT_EQ(out[0], in[0]);
  EXPECT_EQ(out[1], in[1]);
  EXPECT_EQ(out[2], in[2]);
  EXPECT_EQ(out[3], in[1]);
}

// ucxx#104: a short message is an error, not a whole one.
TEST(LocalTransport, AMessageOfAnotherSizeIsAnError) {
  const auto t = make_transports(2);
  const auto in = bytes_of(100, 1);
  std::vector<char> out(200, 9);
  const auto send = t[0]->send(1, 5, in.data(), 100);
  const auto receive = t[1]->receive(0, 5, out.data(), 200);
  try {
    receive->wait(minute());
    ADD_FAILURE() << "taken as whole";
  } catch (const TransportError& e) {
    EXPECT_EQ(e.kind, TransportError::Kind::kPeer);
    EXPECT_EQ(e.peer, 0);
  }
  EXPECT_EQ(out, std::vector<char>(200, 9));
}

TEST(LocalTransport, ACancelledReceiveLeavesItsMemoryAlone) {
  const auto t = make_transports(2);
  const auto in = bytes_of(100, 1);
  std::vector<char> first(100, 9);
  std::vector<char> second(100, 9);
  t[1]->receive(0, 5, first.data(), 100).reset();
  const auto send = t[0]->send(1, 5, in.data(), 100);
  const auto receive = t[1]->receive(0, 5, second.data(), 100);
  receive->wait(minute());
  EXPECT_EQ(first, std::vector<char>(100, 9));
  EXPECT_EQ(second, in);
}

TEST(LocalTransport, AWaitIsInterruptedFromAnotherThread) {
  const auto t = make_transports(2);
  char byte = 0;
  for (const bool before : {true, false}) {
    const auto receive = t[1]->receive(0, 5, &byte, 1);
    std::thread other;
    if (before) receive->interrupt();
    if (!before) other = std::thread([&] { receive->interrupt(); });
    try {
      receive->wait(minute());
      ADD_FAILURE() << "not interrupted";
    } catch (const TransportError& e) {
      EXPECT_EQ(e.kind, TransportError::Kind::kInterrupted);
    }
    if (other.joinable()) other.join();
  }
}

TEST(LocalTransport, AWaitEndsAtItsDeadline) {
  const auto t = make_transports(2);
  char byte = 0;
  const auto receive = t[1]->receive(0, 5, &byte, 1);
  try {
    receive->wait(Deadline::after(std::chrono::milliseconds(1)));
    ADD_FAILURE() << "no timeout";
  } catch (const TransportError& e) {
    EXPECT_EQ(e.kind, TransportError::Kind::kTimeout);
  }
}

// Two threads, many messages, each side cancelling some: nothing is lost of the others.
TEST(LocalTransport, SurvivesCancellationUnderLoad) {
  const auto t = make_transports(2);
  constexpr int kRounds = 2000;
  std::thread sender([&] {
    for (int k = 0; k < kRounds; ++k) {
      const auto in = bytes_of(5000, k);
      const auto send = t[0]->send(1, static_cast<uint64_t>(k), in.data(), 5000);
      if (k % 3 != 0) send->wait(minute());
    }
  });
  for (int k = 0; k < kRounds; ++k) {
    std::vector<char> out(5000);
    auto receive = t[1]->receive(0, static_cast<uint64_t>(k), out.data(), 5000);
    if (k % 3 == 0) {
      receive.reset();
      continue;
    }
    receive->wait(minute());
    ASSERT_EQ(out, bytes_of(5000, k));
  }
  sender.join();
}

}  // namespace
}  // namespace dtensor::comm::local

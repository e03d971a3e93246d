#include "dtensor/comm/store.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/file_store.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/tcp_store.h"
#include "dtensor/tests/support/forked.h"

namespace dtensor::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One world of handles on the same values: handle(0) first (it serves), then any others.
struct Body {
  std::string name;
  std::function<std::function<std::shared_ptr<Store>(int)>()> make;
};

std::function<std::shared_ptr<Store>(int)> memory_handles() {
  auto store = make_memory_store();
  return [store](int) { return store; };
}

std::function<std::shared_ptr<Store>(int)> file_handles() {
  const std::string directory = std::string(::testing::TempDir()) + "/store." +
                                ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::remove_all(directory);
  return [directory](int) { return make_file_store(directory); };
}

std::function<std::shared_ptr<Store>(int)> tcp_handles() {
  auto served = make_tcp_store({.serve = true});
  return [served](int rank) {
    return rank == 0 ? served : make_tcp_store({.port = tcp_store_port(*served)});
  };
}

class StoreContract : public ::testing::TestWithParam<Body> {
 protected:
  void SetUp() override { handle = GetParam().make(); }
  std::function<std::shared_ptr<Store>(int)> handle;
};

TEST_P(StoreContract, WhatOneSetAnotherGets) {
  const auto a = handle(0);
  const auto b = handle(1);
  EXPECT_FALSE(b->has("k"));
  const std::string value("line\n\0end", 9);
  a->set("k", value);
  EXPECT_TRUE(b->has("k"));
  EXPECT_EQ(b->get("k", {}), value);
  b->set("empty", "");
  EXPECT_EQ(a->get("empty", {}), "");
}

TEST_P(StoreContract, GetWaitsForTheKey) {
  const auto a = handle(0);
  const auto b = handle(1);
  std::string got;
  std::thread waiter([&] { got = b->get("late", Deadline::after(seconds(60))); });
  a->set("other", "1");
  a->set("late", "2");
  waiter.join();
  EXPECT_EQ(got, "2");
}

TEST_P(StoreContract, AKeyIsSetOnce) {
  const auto a = handle(0);
  const auto b = handle(1);
  a->set("k", "1");
  b->set("k", "1");  // the same value is no error
  EXPECT_THROW(b->set("k", "2"), Error);
  EXPECT_EQ(a->get("k", {}), "1");
}

TEST_P(StoreContract, AnAbsentKeyIsNamedAtTheDeadline) {
  const auto a = handle(0);
  const auto b = handle(1);
  for (const auto& store : {a, b}) {
    try {
      store->get("hello/2", Deadline::after(milliseconds(5)));
      FAIL() << "an absent key was found";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("hello/2"), std::string::npos) << e.what();
    }
  }
}

TEST_P(StoreContract, SizesAreBoundedAndTheLargestFits) {
  const auto a = handle(0);
  const auto b = handle(1);
  const std::string key(kMaxKeyBytes, 'k');
  const std::string value(kMaxValueBytes, 'v');
  b->set(key, value);
  EXPECT_EQ(a->get(key, {}), value);
  EXPECT_EQ(b->get(key, {}), value);
  EXPECT_THROW(b->set("", "1"), ArgumentError);
  EXPECT_THROW(b->set(key + "k", "1"), ArgumentError);
  EXPECT_THROW(b->set("k", value + "v"), ArgumentError);
}

TEST_P(StoreContract, OfManyWhoSetOneKeyOneWins) {
  constexpr int kSize = 6;
  std::vector<std::shared_ptr<Store>> stores;
  for (int r = 0; r < kSize; ++r) stores.push_back(handle(r));
  std::vector<int> won(kSize, 0);
  std::vector<std::thread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&, r] {
      try {
        stores[r]->set("winner", std::to_string(r));
        won[r] = 1;
      } catch (const Error&) {
        won[r] = 0;
      }
    });
  }
  for (auto& t : threads) t.join();
  int winners = 0;
  for (int r = 0; r < kSize; ++r) winners += won[r];
  ASSERT_EQ(winners, 1);
  EXPECT_EQ(won[std::stoi(stores[0]->get("winner", {}))], 1);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         ::testing::Values(Body{"Memory", memory_handles},
                                           Body{"File", file_handles}, Body{"Tcp", tcp_handles}),
                         [](const auto& info) { return info.param.name; });

// pytorch#173909: a stranger on the port.
TEST(TcpStore, AStrangerIsDroppedAndNobodyElseNotices) {
  const auto served = make_tcp_store({.serve = true});
  const internal::HostPort address{"127.0.0.1", tcp_store_port(*served)};
  const auto rank1 = make_tcp_store({.port = address.port});

  const internal::Fd half = internal::connect_to(address, {});
  internal::write_all(half, "DTS1\1", {});  // half a greeting and nothing more
  const internal::Fd huge = internal::connect_to(address, {});
  const uint32_t header[4] = {0x31535444, 1, 1, 0xffffffffU};  // a value of 4 GiB
  internal::write_all(huge, {reinterpret_cast<const char*>(header), sizeof(header)}, {});
  const internal::Fd garbage = internal::connect_to(address, {});
  internal::write_all(garbage, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", {});

  char byte = 0;
  EXPECT_THROW(internal::read_all(garbage, &byte, 1, {}), Error);  // closed by the store
  EXPECT_THROW(internal::read_all(huge, &byte, 1, {}), Error);
  rank1->set("k", "v");
  EXPECT_EQ(served->get("k", {}), "v");
}

TEST(TcpStore, NobodyServingIsAnErrorWithTheAddress) {
  internal::Fd listener = internal::listen_on("127.0.0.1", 0);
  const int port = internal::local_address(listener).port;
  listener.reset();
  try {
    make_tcp_store({.port = port, .deadline = Deadline::after(milliseconds(20))});
    FAIL() << "connected to nobody";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(std::to_string(port)), std::string::npos) << e.what();
  }
}

TEST(Socket, AnInterfaceIsItsAddressAndAnUnknownOneListsTheKnown) {
  EXPECT_EQ(internal::address_of_interface("lo"), "127.0.0.1");
  try {
    internal::address_of_interface("nosuch0");
    FAIL() << "found an interface that is not there";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("lo"), std::string::npos) << e.what();
  }
}

TEST(FileStore, ADirectoryThatCannotBeMadeIsAnError) {
  EXPECT_THROW(make_file_store("/proc/no/such"), Error);
}

// How many eventfds of this process somebody has written to and nobody has read.
int signalled_events() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    for (std::string word; info >> word;) {
      if (word == "eventfd-count:" && info >> word && word != "0") ++found;
    }
  }
  return found;
}

// The thread that serves is of the process that made it, and so is what wakes it.
TEST(TcpStore, AForkedProcessLeavesItsServerAlone) {
  auto served = make_tcp_store({.serve = true});
  const auto other = make_tcp_store({.port = tcp_store_port(*served)});
  const auto left_alone = [&] {
    served.reset();
    return 0;
  };
  EXPECT_EQ(dtensor::testing::status_of_fork(left_alone), 0);
  EXPECT_EQ(signalled_events(), 0);  // its thread would never sleep again
  other->set("k", "v");
  EXPECT_EQ(served->get("k", Deadline::after(seconds(30))), "v");
}

}  // namespace
}  // namespace dtensor::comm

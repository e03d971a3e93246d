// Who shares memory with whom, and what is left of it.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/root.h"
#include "dtensor/comm/shm/handing_over.h"
#include "dtensor/comm/shm/neighbours.h"
#include "dtensor/comm/socket.h"
#include "dtensor/comm/store.h"
#include "dtensor/tests/comm/gloo_world.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::ConstBuffer;
using comm::Memory;
using comm::OpKind;
using comm::ReduceOp;
using Options = std::map<std::string, std::string>;

using comm::internal::Fd;
using comm::shm::HandOver;
using comm::shm::Party;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

const Options kShared = {{"shm", "1073741824"}};

bool shares(const Comm& comm) {
  return comm.capabilities().algorithm(OpKind::kAllReduce, 1).find("shm") != std::string::npos;
}

void expect_sums(Comm& comm, int64_t count) {
  const Memory x = comm.allocate(4 * count);
  std::fill_n(x.as<float>(), count, static_cast<float>(comm.rank() + 1));
  const Buffer b = x.buffer(count, DType::kFloat32);
  comm.all_reduce(b, b, ReduceOp::kSum).wait();
  const auto want = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(x.as<float>()[i], want) << i;
}

// What processes have open under /dev/shm shows here; memory without a name does not.
std::vector<std::string> named_memory() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("dtensor") != std::string::npos) {
      names.push_back(entry.path());
    }
  }
  return names;
}

TEST(SharedMemory, IsUsedByRanksOfOneHostAndHasNoName) {
  run_ranks(gloo_world(3, kShared), [](Comm& comm) {
    EXPECT_TRUE(shares(comm));
    expect_sums(comm, 300'000);
    EXPECT_EQ(named_memory(), std::vector<std::string>());
  });
}

// More than the caches hold goes past them; to places that are not aligned, too.
TEST(SharedMemory, GathersMoreThanTheCachesHold) {
  run_ranks(gloo_world(2, kShared), [](Comm& comm) {
    const std::vector<int64_t> counts = {20'000'003, 25'000'006};
    const comm::Segments segments(counts);
    const int64_t mine = segments.count(comm.rank());
    const Memory in = comm.allocate(mine);
    const Memory out = comm.allocate(segments.total());
    const auto value = [](int r, int64_t i) { return static_cast<int8_t>((i * 5 + r) % 127); };
    for (int64_t i = 0; i < mine; ++i) in.as<int8_t>()[i] = value(comm.rank(), i);
    comm.all_gather_v(in.buffer(mine, DType::kInt8), out.buffer(segments.total(), DType::kInt8),
                      segments)
        .wait();
    for (int r = 0; r < 2; ++r) {
      const int8_t* got = out.as<int8_t>() + segments.offset(r);
      for (int64_t i = 0; i < segments.count(r); ++i) ASSERT_EQ(got[i], value(r, i)) << r << i;
    }
  });
}

TEST(SharedMemory, IsTurnedOffByOneRankForTheWholeHost) {
  run_ranks(gloo_world(3, {}, {kShared, {{"shm", "off"}}, kShared}), [](Comm& comm) {
    EXPECT_FALSE(shares(comm));
    expect_sums(comm, 300'000);
  });
}

// Two hosts of two ranks, and one of one: the world goes over the network, groups within a host do
// not.
TEST(SharedMemory, IsUsedWithinEachOfSeveralHosts) {
  const Options a = {{"host", "a"}};
  const Options b = {{"host", "b"}};
  const Options c = {{"host", "c"}};
  run_ranks(gloo_world(5, kShared, {a, b, a, c, b}), [](Comm& comm) {
    EXPECT_FALSE(shares(comm));
    expect_sums(comm, 100'000);
    const std::vector<std::vector<int>> hosts = {{0, 2}, {4, 1}, {0, 2}, {3}, {4, 1}};
    const auto host = comm.group(hosts[static_cast<size_t>(comm.rank())], "host");
    EXPECT_EQ(shares(*host), host->size() == 2);
    expect_sums(*host, 100'000);
    comm.barrier().wait();
  });
}

TEST(SharedMemory, OptionsAreReadBeforeAnybodyIsWaitedFor) {
  EXPECT_THROW(gloo_world(2, {{"shm", "maybe"}}), ArgumentError);
  EXPECT_THROW(gloo_world(2, {{"shm", "12"}}), ArgumentError);
}

TEST(SharedMemory, OutlivesItsComm) {
  std::vector<Memory> kept(2);
  run_ranks(gloo_world(2, kShared), [&](Comm& comm) {
    Memory m = comm.allocate(1 << 20);
    std::memset(m.data(), comm.rank() + 1, 1 << 20);
    kept[static_cast<size_t>(comm.rank())] = m;
    comm.barrier().wait();
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(kept[static_cast<size_t>(r)].as<char>()[(1 << 20) - 1], r + 1);
  }
}

TEST(SharedMemory, FallsBackToTheHeapWhereTheLimitIsReached) {
  run_ranks(gloo_world(2, {{"shm", "1048576"}}), [](Comm& comm) {
    // More than the limit and what the Comms themselves have.
    constexpr int64_t kCount = (int64_t{3} << 30) / 8;
    const Memory m = comm.allocate(8 * kCount);
    ASSERT_NE(m.data(), nullptr);
    m.as<double>()[kCount - 1] = comm.rank();
    const Buffer last{m.as<double>() + kCount - 1, 1, DType::kFloat64};
    comm.all_reduce(last, last, ReduceOp::kSum).wait();
    EXPECT_EQ(m.as<double>()[kCount - 1], 1);
  });
}

// What the Context's allocator gives, in a group of the world, and in a later world.
TEST(SharedMemory, IsWhereTheAllocatorTakesLargeBlocksFrom) {
  constexpr int64_t kCount = 100'000;
  const auto in_place = [](Comm& comm) {
    comm::set_root(comm);
    const auto group = comm.group(std::vector<int>{2, 0}, "two");
    const auto allocator = Context::current().slot<CurrentAllocator>().allocator;
    auto* x = static_cast<float*>(allocator->allocate(4 * kCount));
    std::fill_n(x, kCount, static_cast<float>(comm.rank() + 1));
    const Buffer b{x, kCount, DType::kFloat32};
    group->all_reduce(b, b, ReduceOp::kSum).wait();
    EXPECT_EQ(x[kCount - 1], 4);
    allocator->deallocate(x, 4 * kCount);
    return group->counters().bytes_read_in_place;
  };
  const auto run = [&](std::vector<std::unique_ptr<Comm>> world, int64_t want) {
    run_ranks(std::move(world), [&](Comm& comm) {
      if (comm.rank() != 1) {
        EXPECT_EQ(in_place(comm), want);
      }
      comm.barrier().wait();
    });
  };
  // Of each half, that of the other rank as it came, and its sum.
  run(gloo_world(3, kShared), 4 * kCount);
  run(gloo_world(3, {{"shm", "4096"}}), 0);
  run(gloo_world(3, {{"shm", "off"}}), 0);
}

// Tensors do not take what Comms need, however many there are.
TEST(SharedMemory, HasRoomForComsBesideWhatIsAllocated) {
  run_ranks(gloo_world(2, {{"shm", "8388608"}}), [](Comm& comm) {
    std::vector<Memory> taken;
    for (int k = 0; k < 1200; ++k) taken.push_back(comm.allocate(1 << 20));
    const auto group = comm.group(std::vector<int>{1, 0}, "late");
    expect_sums(*group, 100'000);
  });
}

// Does it lie in memory that others map?
bool is_shared(const void* data) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    const auto at = reinterpret_cast<uintptr_t>(data);
    if (at >= begin && at < end) return line.find("memfd:dtensor") != std::string::npos;
  }
  return false;
}

TEST(SharedMemory, TheLimitIsOfWhatUsersHaveAtOneTime) {
  run_ranks(gloo_world(2, {{"shm", "1048576"}}), [](Comm& comm) {
    Memory most = comm.allocate(1 << 20);
    EXPECT_TRUE(is_shared(most.data()));
    EXPECT_FALSE(is_shared(comm.allocate(1).data()));
    most = Memory();
    EXPECT_TRUE(is_shared(comm.allocate(1 << 20).data()));
    EXPECT_FALSE(is_shared(comm.allocate((1 << 20) + 1).data()));
    comm.barrier().wait();
  });
}

// Comms beyond what their rings have room for; a name that was refused may be used later.
TEST(SharedMemory, AGroupWithoutRoomIsAnErrorAndMayBeMadeLater) {
  run_ranks(gloo_world(2, kShared), [](Comm& comm) {
    const std::vector<int> both = {0, 1};
    std::vector<std::unique_ptr<Comm>> groups;
    std::string refused;
    while (refused.empty() && groups.size() < 2000) {
      const std::string name = std::to_string(groups.size());
      try {
        groups.push_back(comm.group(both, name));
      } catch (const ArgumentError&) {
        throw;
      } catch (const Error& e) {
        refused = name;
        EXPECT_NE(std::string(e.what()).find("no room in shared memory"), std::string::npos);
      }
    }
    ASSERT_FALSE(refused.empty());
    groups.resize(groups.size() / 2);
    comm.barrier().wait();  // both have
    const auto again = comm.group(both, refused);
    expect_sums(*again, 100'000);
  });
}

TEST(SharedMemory, BuffersAreCheckedAgainstTheirMemory) {
  run_ranks(gloo_world(1, kShared), [](Comm& comm) {
    const Memory m = comm.allocate(100);
    EXPECT_EQ(m.buffer(25, DType::kFloat32).count, 25);
    EXPECT_THROW(m.buffer(26, DType::kFloat32), ArgumentError);
    EXPECT_THROW(comm.allocate(-1), ArgumentError);
    EXPECT_NE(comm.allocate(0).data(), nullptr);
  });
}

// More groups than there would be room for if those that ended did not make way.
TEST(SharedMemory, OfComsThatEndedIsUsedAgain) {
  run_ranks(gloo_world(2, {{"shm", "4096"}}), [](Comm& comm) {
    for (int k = 0; k < 1500; ++k) {
      const auto group = comm.group(std::vector<int>{0, 1}, std::to_string(k));
      float x = 1;
      group->all_reduce({&x, 1, DType::kFloat32}, {&x, 1, DType::kFloat32}, ReduceOp::kSum).wait();
      ASSERT_EQ(x, 2);
    }
  });
}

// Who sees a socket's name, as every user of the host does, gets nothing by it; nor does who knows
// the key of one rank and is none.
TEST(SharedMemory, IsNotGivenToStrangers) {
  HandOver one;
  HandOver two;
  const comm::shm::Arena arena(comm::shm::kPageBytes, 0);
  std::vector<Fd> strangers;
  const std::string wrong_key(one.me().key.size(), 'f');
  for (const std::string& greeting : {std::string(), one.me().name, wrong_key + " " + two.me().name,
                                      one.me().key + " dtensor-0", std::string(200, 'x')}) {
    Fd& fd = strangers.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string& name = one.me().name;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    if (!greeting.empty()) {
      ASSERT_GT(send(fd.get(), greeting.data(), greeting.size(), 0), 0);
    }
  }
  std::vector<Fd> given;
  std::thread other([&] { given = two.swap(arena.fd(), {one.me()}, soon()); });
  const std::vector<Fd> got = one.swap(arena.fd(), {two.me()}, soon());
  other.join();
  EXPECT_EQ(got.size(), 1U);
  EXPECT_EQ(given.size(), 1U);
  for (size_t k = 1; k < strangers.size(); ++k) {
    char byte = 0;
    EXPECT_LE(recv(strangers[k].get(), &byte, 1, 0), 0) << k;  // closed, without a descriptor
  }
}

std::string error_of_swap(HandOver& from, const Fd& mine, const std::vector<Party>& others,
                          Deadline deadline, const std::function<bool()>& given_up = {}) {
  try {
    from.swap(mine, others, deadline, given_up);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// Who listens under the name of a rank, and does not know who asks, is no rank.
TEST(SharedMemory, IsNotTakenFromStrangers) {
  HandOver one;
  HandOver two;
  const comm::shm::Arena arena(comm::shm::kPageBytes, 0);
  std::string error;
  std::thread other([&] {
    // It was told a wrong key of who asks.
    error_of_swap(two, arena.fd(), {{one.me().name, std::string(32, 'f')}}, soon());
  });
  error = error_of_swap(one, arena.fd(), {two.me()}, soon());
  other.join();
  EXPECT_NE(error.find("in the place of a rank"), std::string::npos) << error;
}

TEST(SharedMemory, ARankThatDoesNotComeIsAnErrorByTheDeadline) {
  HandOver one;
  HandOver silent;
  const comm::shm::Arena arena(comm::shm::kPageBytes, 0);
  const std::string error =
      error_of_swap(one, arena.fd(), {silent.me()}, Deadline::after(std::chrono::milliseconds(50)));
  EXPECT_NE(error.find("by the deadline"), std::string::npos) << error;
}

// What cannot be passed on is an error on both sides, at once.
TEST(SharedMemory, ADescriptorThatCannotBeGivenIsAnErrorOnBothSides) {
  HandOver one;
  HandOver two;
  const comm::shm::Arena arena(comm::shm::kPageBytes, 0);
  std::string other_error;
  std::atomic<bool> failed{false};
  std::thread other([&] {
    other_error = error_of_swap(two, arena.fd(), {one.me()}, soon(), [&] { return failed.load(); });
  });
  const std::string error = error_of_swap(one, Fd(), {two.me()}, soon());
  failed = true;
  other.join();
  EXPECT_NE(error.find("cannot be given"), std::string::npos) << error;
  EXPECT_NE(other_error, "");
  EXPECT_EQ(other_error.find("by the deadline"), std::string::npos) << other_error;
}

// A rank that cannot take part says so; the others, which wait for it, go without as well.
TEST(SharedMemory, ARankThatFailsSendsTheWholeHostOn) {
  const std::shared_ptr<comm::Store> store = comm::make_memory_store();
  HandOver failing;  // it listens, and asks nobody
  store->set("shm/host/2", "h");
  store->set("shm/offer/2", failing.me().name + " " + failing.me().key + " 4096");
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      EXPECT_EQ(comm::shm::Neighbours::meet(*store, {.rank = r,
                                                     .size = 3,
                                                     .host = "h",
                                                     .key_prefix = "",
                                                     .arena_bytes = 1 << 20,
                                                     .deadline = soon()}),
                nullptr);
    });
  }
  store->set("shm/failed/0", "off");
  store->set("shm/state/2", "no more descriptors");
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace dtensor::testing

// What a HostComm makes of another rank's memory that is not what it should be.

#include "dtensor/comm/shm/host_comm.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/algorithms/standing.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/local/local_control.h"
#include "dtensor/comm/shm/neighbours.h"
#include "dtensor/comm/shm/slot.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm::shm {
namespace {

constexpr uint64_t kComm = 7;
const std::vector<int> kBoth = {0, 1};

// Two ranks of one host, in this process.
struct Host {
  Host() {
    const std::shared_ptr<Store> store = make_memory_store();
    std::vector<std::thread> threads;
    for (const int r : kBoth) {
      threads.emplace_back([&, r] {
        ranks[static_cast<size_t>(r)] =
            Neighbours::meet(*store, {.rank = r,
                                      .size = 2,
                                      .host = "h",
                                      .key_prefix = "",
                                      .arena_bytes = 1 << 20,
                                      .deadline = Deadline::after(std::chrono::seconds(60))});
      });
    }
    for (auto& t : threads) t.join();
  }

  std::shared_ptr<Neighbours> ranks[2];
};

Call barrier(int64_t sequence) {
  Call call;
  call.op = OpKind::kBarrier;
  call.sequence = sequence;
  call.deadline = Deadline::after(std::chrono::seconds(60));
  call.key = key_of(call);
  return call;
}

// A rank that closes a Comm may use the memory again before another rank has opened its own; what
// that one then reads is of another Comm, and no proof that the calls differ.
TEST(HostComm, AnnouncementsOfAnotherCommAreALostPeerAndNoMismatch) {
  const Host host;
  ASSERT_NE(host.ranks[0], nullptr);
  local::Board board(2);
  std::vector<std::unique_ptr<HostComm>> comms;
  std::vector<std::unique_ptr<Link>> links;
  for (const int r : kBoth) {
    comms.push_back(
        std::make_unique<HostComm>(host.ranks[static_cast<size_t>(r)], kComm, r, kBoth));
    links.push_back(std::make_unique<Link>());
    links.back()->standing = std::make_shared<Standing>(Standing::Setting{
        .comm = kComm, .rank = r, .members = kBoth, .world_size = 2, .control = board.control(r)});
  }
  std::thread zero([&] { comms[0]->run(*links[0], barrier(0)); });
  comms[1]->run(*links[1], barrier(0));
  zero.join();

  auto* directory = reinterpret_cast<Directory*>(host.ranks[0]->arena()->base());
  Directory::Entry& entry = directory->entries[0];
  ASSERT_EQ(entry.comm.load(), kComm);
  auto* slot = reinterpret_cast<Slot*>(host.ranks[0]->arena()->base() + entry.offset.load());
  entry.comm = kComm + 1;
  slot->announcements[1].digest = 1;
  slot->announcements[1].header.comm = kComm + 1;
  slot->announcements[1].turn = 2;
  try {
    comms[1]->run(*links[1], barrier(1));
    FAIL() << "a call with nobody";
  } catch (const TransportError& e) {
    EXPECT_EQ(e.kind, TransportError::Kind::kPeer);
    EXPECT_EQ(e.peer, 0);
  }
  entry.comm = kComm;
}

}  // namespace
}  // namespace dtensor::comm::shm

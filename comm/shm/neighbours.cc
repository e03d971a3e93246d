#include "dtensor/comm/shm/neighbours.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <sstream>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/shm/handing_over.h"

namespace dtensor::comm::shm {
namespace {

constexpr std::string_view kOff = "off";
constexpr std::string_view kOk = "ok";

// What an arena holds beside its SharedBlocks.
constexpr int64_t kOwnBytes = int64_t{1} << 30;

// What a rank says of its memory in the store.
struct Offer {
  Party party;
  int64_t bytes = 0;
};

std::string text_of(const Offer& o) {
  return fmt::format("{} {} {}", o.party.name, o.party.key, o.bytes);
}

Offer offer_of(const std::string& text) {
  Offer o;
  std::istringstream in(text);
  if (!(in >> o.party.name >> o.party.key >> o.bytes)) {
    throw Error(fmt::format("shared memory: a rank of this host offers \"{}\"", text));
  }
  return o;
}

}  // namespace

int64_t parse_arena_bytes(std::string_view value) {
  if (value == kOff) return 0;
  if (value == "on") {
    return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  }
  return parse_integer("shm (on, off or bytes)", value, kPageBytes, int64_t{1} << 44);
}

std::shared_ptr<Neighbours> Neighbours::meet(Store& store, const NeighbourOptions& options) {
  const Deadline deadline = options.deadline.resolved();
  const int size = options.size;
  const auto key = [&](std::string_view what, int r) {
    return fmt::format("{}shm/{}/{}", options.key_prefix, what, r);
  };
  store.set(key("host", options.rank), options.host);
  std::vector<int> here;  // the others
  for (int r = 0; r < size; ++r) {
    if (r != options.rank && store.get(key("host", r), deadline) == options.host) here.push_back(r);
  }
  if (here.empty()) return nullptr;
  std::string trouble;
  std::shared_ptr<Arena> arena;
  std::optional<HandOver> hand_over;
  if (options.arena_bytes > 0) {
    try {
      arena = std::make_shared<Arena>(options.arena_bytes, kOwnBytes);
      void* first = arena->allocate(sizeof(Directory), Arena::For::kOwn);
      internal_check(first == arena->base(), "an arena does not begin with its directory");
      new (first) Directory;
      hand_over.emplace();
    } catch (const Error& e) {
      trouble = e.what();
      hand_over.reset();
    }
  }
  store.set(key("offer", options.rank),
            hand_over ? text_of({hand_over->me(), arena->size_bytes()}) : std::string(kOff));
  std::vector<std::string> offers;
  for (const int r : here) offers.push_back(store.get(key("offer", r), deadline));
  std::vector<Mapping> others(static_cast<size_t>(size));
  // Of the ranks of this host: one of them goes without.
  const std::string failed = key("failed", std::min(options.rank, here.front()));
  if (hand_over && std::ranges::find(offers, kOff) == offers.end()) {
    try {
      std::vector<Party> parties;
      std::vector<int64_t> bytes;
      for (const std::string& text : offers) {
        Offer o = offer_of(text);
        parties.push_back(std::move(o.party));
        bytes.push_back(o.bytes);
      }
      const std::vector<internal::Fd> given =
          hand_over->swap(arena->fd(), parties, deadline, [&] { return store.has(failed); });
      for (size_t i = 0; i < here.size(); ++i) {
        others[static_cast<size_t>(here[i])] = map_given(given[i], bytes[i]);
      }
    } catch (const Error& e) {
      trouble = e.what();
      store.set(failed, kOff);
    }
  }
  // Either all of the host, or none: what a Comm of some of them does must be the same on each.
  store.set(key("state", options.rank), trouble.empty() ? kOk : trouble);
  bool all = hand_over.has_value() && std::ranges::find(offers, kOff) == offers.end();
  for (const int r : here) {
    const std::string state = store.get(key("state", r), deadline);
    if (state != kOk && trouble.empty()) trouble = fmt::format("rank {}: {}", r, state);
    all = all && state == kOk;
  }
  if (!trouble.empty()) {
    log(LogLevel::kWarn,
        fmt::format("rank {}: no shared memory on this host: {}", options.rank, trouble));
    return nullptr;
  }
  if (!all) return nullptr;
  return std::shared_ptr<Neighbours>(new Neighbours(options, std::move(arena), std::move(others)));
}

Neighbours::Neighbours(const NeighbourOptions& options, std::shared_ptr<Arena> arena,
                       std::vector<Mapping> others)
    : rank_(options.rank),
      arena_(std::move(arena)),
      blocks_(std::make_shared<SharedBlocks>(arena_, options.arena_bytes)),
      others_(std::move(others)) {}

const std::byte* Neighbours::base_of(int world_rank) const {
  return world_rank == rank_ ? arena_->base() : others_[static_cast<size_t>(world_rank)].data();
}

int64_t Neighbours::size_of_arena(int world_rank) const {
  return world_rank == rank_ ? arena_->size_bytes()
                             : others_[static_cast<size_t>(world_rank)].size_bytes();
}

bool Neighbours::have(std::span<const int> world_ranks) const {
  return std::ranges::all_of(world_ranks, [&](int r) { return base_of(r) != nullptr; });
}

Slot& Neighbours::open(uint64_t comm, std::span<const int> world_ranks) {
  const std::lock_guard lock(mutex_);
  reuse_closed();
  Directory& d = directory();
  const int64_t used = d.used.load(std::memory_order_relaxed);
  const bool full = vacant_.empty() && used == static_cast<int64_t>(d.entries.size());
  void* memory = full ? nullptr
                      : arena_->allocate(Slot::size_bytes(static_cast<int>(world_ranks.size())),
                                         Arena::For::kOwn);
  if (memory == nullptr) {
    throw Error(fmt::format(
        "a Comm of {} ranks: no room in shared memory beside {} others; let some of them go",
        world_ranks.size(), open_.size() + closed_.size()));
  }
  auto* slot = new (memory) Slot;  // its bits are zero, which is what they begin with
  Directory::Entry* entry = nullptr;
  if (vacant_.empty()) {
    entry = &d.entries[static_cast<size_t>(used)];
  } else {
    entry = vacant_.back();
    vacant_.pop_back();
  }
  slot->comm.store(comm, std::memory_order_relaxed);
  entry->offset.store(static_cast<std::byte*>(memory) - arena_->base(), std::memory_order_relaxed);
  entry->comm.store(comm, std::memory_order_release);
  if (entry == &d.entries[static_cast<size_t>(used)]) {
    d.used.store(used + 1, std::memory_order_release);
  }
  open_.push_back({comm, entry, {world_ranks.begin(), world_ranks.end()}});
  return *slot;
}

void Neighbours::close(uint64_t comm) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, comm, &Closed::comm);
  if (found == open_.end()) return;
  auto* slot = reinterpret_cast<Slot*>(arena_->base() + found->entry->offset.load());
  slot->closed.store(true, std::memory_order_release);
  closed_.push_back(std::move(*found));
  open_.erase(found);
}

bool Neighbours::all_closed(const Closed& slot) const {
  const int ranks = static_cast<int>(slot.world_ranks.size());
  return std::ranges::all_of(slot.world_ranks, [&](int r) {
    if (r == rank_) return true;
    const Slot* other = find(r, slot.comm, ranks).slot;
    return other == nullptr || other->closed.load(std::memory_order_acquire);
  });
}

void Neighbours::reuse_closed() {
  std::erase_if(closed_, [&](const Closed& c) {
    if (!all_closed(c)) return false;
    void* memory = arena_->base() + c.entry->offset.load();
    c.entry->comm.store(0, std::memory_order_relaxed);
    // Before its memory changes: see holds().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    arena_->deallocate(memory, Slot::size_bytes(static_cast<int>(c.world_ranks.size())));
    vacant_.push_back(c.entry);
    return true;
  });
}

Neighbours::Found Neighbours::find(int world_rank, uint64_t comm, int ranks) const {
  const auto* d = reinterpret_cast<const Directory*>(base_of(world_rank));
  const int64_t used = std::min<int64_t>(d->used.load(std::memory_order_acquire),
                                         static_cast<int64_t>(d->entries.size()));
  for (int64_t i = 0; i < used; ++i) {
    const Directory::Entry& entry = d->entries[static_cast<size_t>(i)];
    if (entry.comm.load(std::memory_order_acquire) != comm) continue;
    const std::byte* slot =
        at(world_rank, entry.offset.load(std::memory_order_relaxed), Slot::size_bytes(ranks));
    return {reinterpret_cast<const Slot*>(slot), &entry};
  }
  return {};
}

bool Neighbours::holds(const Found& found, int world_rank, uint64_t comm) const {
  std::atomic_thread_fence(std::memory_order_acquire);
  return found.entry->comm.load(std::memory_order_relaxed) == comm &&
         base_of(world_rank) + found.entry->offset.load(std::memory_order_relaxed) ==
             reinterpret_cast<const std::byte*>(found.slot);
}

const std::byte* Neighbours::at(int world_rank, int64_t offset, int64_t bytes) const {
  const int64_t size = size_of_arena(world_rank);
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) return nullptr;
  return base_of(world_rank) + offset;
}

}  // namespace dtensor::comm::shm

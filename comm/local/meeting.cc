#include "dtensor/comm/local/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"

namespace dtensor::comm::local {
namespace {

using MakeWorld = std::function<std::vector<std::unique_ptr<Comm>>()>;

struct Meeting {
  std::vector<std::unique_ptr<Comm>> world;  // those that nobody has taken yet
  std::vector<bool> came;
  size_t arrivals = 0;
  int absent = -1;  // set when some rank's patience has ended
};

// Meetings that are not complete yet, by name and generation.
struct Meetings {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Meeting>> open;  // guarded by mutex
};

Meetings& meetings() {
  static Meetings instance;  // where threads of one process meet: there is no other place
  return instance;
}

std::shared_ptr<Meeting> join(Meetings& all, const std::string& key, const Endpoint& endpoint,
                              const MakeWorld& make) {
  auto& meeting = all.open[key];
  if (!meeting) {
    meeting = std::make_shared<Meeting>();
    meeting->world = make();
    meeting->came.resize(static_cast<size_t>(endpoint.size));
  }
  const size_t size = meeting->came.size();
  if (size != static_cast<size_t>(endpoint.size)) {
    throw ArgumentError(fmt::format("{}: rank {} says size {}, a rank before it said size {}", key,
                                    endpoint.rank, endpoint.size, size));
  }
  const auto rank = static_cast<size_t>(endpoint.rank);
  if (rank >= size || meeting->came[rank]) {
    throw ArgumentError(fmt::format("{}: rank {} of {} {}", key, rank, size,
                                    rank >= size ? "does not exist" : "is already there"));
  }
  meeting->came[rank] = true;
  ++meeting->arrivals;
  return meeting;
}

}  // namespace

std::unique_ptr<Comm> meet(const Endpoint& endpoint, const std::string& name,
                           const MakeWorld& make) {
  const std::string key = fmt::format("local://?name={}&generation={}", name, endpoint.generation);
  const Deadline deadline = endpoint.deadline.resolved();
  const auto start = std::chrono::steady_clock::now();
  Meetings& all = meetings();
  std::unique_lock lock(all.mutex);
  const auto meeting = join(all, key, endpoint, make);
  const size_t size = meeting->came.size();
  if (meeting->arrivals == size) {
    all.open.erase(key);
    all.changed.notify_all();
  }
  all.changed.wait_for(lock, deadline.left(),
                       [&] { return meeting->arrivals == size || meeting->absent >= 0; });
  if (meeting->arrivals < size) {
    if (meeting->absent < 0) {
      meeting->absent =
          static_cast<int>(std::ranges::find(meeting->came, false) - meeting->came.begin());
      all.open.erase(key);
      all.changed.notify_all();
    }
    throw CommError({.kind = CommErrorKind::kTimeout,
                     .culprit = meeting->absent,
                     .elapsed = std::chrono::steady_clock::now() - start,
                     .comm = key,
                     .size = endpoint.size,
                     .detail = fmt::format("rank {} did not come", meeting->absent)});
  }
  return std::move(meeting->world[static_cast<size_t>(endpoint.rank)]);
}

}  // namespace dtensor::comm::local

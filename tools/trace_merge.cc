#include "dtensor/tools/trace_merge.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace dtensor::tools {
namespace {

using comm::CallRecord;
using comm::CallState;
using comm::Trace;

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

RankRow row_of(const Trace& t) {
  RankRow row;
  row.rank = t.ranks[static_cast<size_t>(t.rank)];
  row.traced = true;
  if (t.calls.empty()) return row;
  const auto open = std::ranges::find_if(
      t.calls, [](const CallRecord& c) { return c.state != CallState::kDone; });
  row.at = open == t.calls.end() ? t.calls.back() : *open;
  row.inside = row.at->state != CallState::kDone;
  const int64_t since = !row.inside            ? row.at->completed
                        : row.at->started != 0 ? row.at->started
                                               : row.at->issued;
  const bool ended = row.at->state == CallState::kFailed;
  row.seconds = seconds((ended ? row.at->completed : t.taken) - since);
  return row;
}

// Has this rank not come to call `sequence`? Who left no trace may not have.
bool is_behind(const RankRow& row, int64_t sequence) {
  return !row.at || row.at->sequence < sequence;
}

void compare(std::vector<RankRow>& rows) {
  for (RankRow& row : rows) {
    if (!row.at || !row.inside) continue;
    for (const RankRow& other : rows) {
      if (other.rank == row.rank) continue;
      if (is_behind(other, row.at->sequence)) row.waits_for.push_back(other.rank);
      if (other.at && other.at->sequence == row.at->sequence && other.at->hash != row.at->hash) {
        row.differs = true;
      }
    }
  }
}

// Over the calls that all traces have.
void add_lateness(const std::vector<const Trace*>& traces, std::vector<RankRow>& rows) {
  std::map<int64_t, std::vector<std::pair<size_t, int64_t>>> issued;  // by sequence: row, time
  for (size_t i = 0; i < traces.size(); ++i) {
    if (traces[i] == nullptr) return;
    for (const CallRecord& c : traces[i]->calls) issued[c.sequence].emplace_back(i, c.issued);
  }
  for (const auto& [sequence, times] : issued) {
    if (times.size() != rows.size()) continue;
    int64_t first = times[0].second;
    for (const auto& [row, time] : times) first = std::min(first, time);
    for (const auto& [row, time] : times) rows[row].late_seconds += seconds(time - first);
  }
}

CommTable table_of(const std::vector<Trace>& traces) {
  CommTable table;
  table.run_id = traces[0].run_id;
  table.generation = traces[0].generation;
  table.comm = traces[0].comm;
  std::vector<const Trace*> by_member;
  for (size_t member = 0; member < traces[0].ranks.size(); ++member) {
    const Trace* latest = nullptr;
    for (const Trace& t : traces) {
      const bool mine = t.rank == static_cast<int>(member);
      if (mine && (latest == nullptr || t.taken > latest->taken)) latest = &t;
    }
    by_member.push_back(latest);
    RankRow row;
    row.rank = traces[0].ranks[member];
    table.rows.push_back(latest == nullptr ? row : row_of(*latest));
    if (latest != nullptr && table.error.empty()) table.error = latest->error;
  }
  compare(table.rows);
  add_lateness(by_member, table.rows);
  return table;
}

}  // namespace

std::vector<CommTable> merge(std::vector<Trace> traces) {
  using Key = std::tuple<std::string, int64_t, std::string, std::vector<int>>;
  std::map<Key, std::vector<Trace>> by_comm;
  for (Trace& t : traces) {
    Key key(t.run_id, t.generation, t.comm, t.ranks);
    by_comm[std::move(key)].push_back(std::move(t));
  }
  std::vector<CommTable> out;
  for (const auto& [key, of_comm] : by_comm) out.push_back(table_of(of_comm));
  return out;
}

Origin origin_of(const std::vector<CommTable>& tables) {
  std::map<int, std::set<int>> waits;
  std::set<int> waited_for;
  for (const CommTable& table : tables) {
    for (const RankRow& row : table.rows) {
      waits[row.rank].insert(row.waits_for.begin(), row.waits_for.end());
      waited_for.insert(row.waits_for.begin(), row.waits_for.end());
    }
  }
  Origin origin;
  for (const int r : waited_for) {
    if (waits[r].empty()) origin.ranks.push_back(r);
  }
  if (!origin.ranks.empty() || waited_for.empty()) return origin;
  // Everybody waits: from any, on and on, until one comes again.
  origin.circle = true;
  std::vector<int> path = {*waited_for.begin()};
  for (;;) {
    const int next = *waits[path.back()].begin();
    const auto seen = std::ranges::find(path, next);
    if (seen != path.end()) {
      origin.ranks.assign(seen, path.end());
      return origin;
    }
    path.push_back(next);
  }
}

}  // namespace dtensor::tools

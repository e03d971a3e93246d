#include "dtensor/comm/algorithms/choice.h"

#include <algorithm>
#include <array>

namespace dtensor::comm {
namespace {

constexpr int kAnyRanks = 1 << 30;

struct Row {
  Path path;
  int most_ranks;
  Choice choice;
};

// The first row that fits counts. On a host the data of one step lies in the announcement, which
// bounds it by 16 KiB.
constexpr std::array kTable = {
    Row{Path::kHost, 2, {16 * 1024, 0}},
    Row{Path::kHost, 4, {8 * 1024, 0}},
    Row{Path::kHost, kAnyRanks, {4 * 1024, 0}},
    // Between two ranks one step sends no more than two.
    Row{Path::kTransport, 2, {1024 * 1024, 128 * 1024}},
    Row{Path::kTransport, kAnyRanks, {16 * 1024, 128 * 1024}},
};
constexpr int64_t kMostOnHost = 16 * 1024;

}  // namespace

Choice choose(Path path, int ranks, std::optional<int64_t> one_step_bytes) {
  const auto row = std::ranges::find_if(
      kTable, [&](const Row& r) { return r.path == path && ranks <= r.most_ranks; });
  Choice choice = row->choice;
  if (one_step_bytes) choice.all_reduce_one_step_bytes = *one_step_bytes;
  if (path == Path::kHost) {
    choice.all_reduce_one_step_bytes = std::min(choice.all_reduce_one_step_bytes, kMostOnHost);
  }
  return choice;
}

std::string_view algorithm_of(OpKind op, int64_t bytes, Path path, const Choice& choice) {
  const bool on_host = path == Path::kHost;
  switch (op) {
    case OpKind::kAllReduce:
      if (bytes <= choice.all_reduce_one_step_bytes) return on_host ? "shm one step" : "one step";
      return on_host ? "shm reduce-scatter, all-gather" : "reduce-scatter, all-gather";
    case OpKind::kReduceScatter:
    case OpKind::kReduce:
      if (on_host) return "shm direct";
      return bytes <= choice.reduce_scatter_one_step_bytes ? "one step" : "direct in chunks";
    case OpKind::kBarrier:
    case OpKind::kShutdown:
      return on_host ? "shm all pairs" : "frames";
    default:
      return on_host ? "shm direct" : "direct";
  }
}

}  // namespace dtensor::comm

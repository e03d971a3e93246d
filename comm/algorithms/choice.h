// Choice: which algorithm a collective uses. It depends on the operation, its bytes, the number of
// ranks and the path of the data only, which are equal on all ranks. This is the one table;
// `dtensor comm-bench --tune` measures what it should say on a machine.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dtensor/comm/types.h"

namespace dtensor::comm {

// What moves the data of a Comm: messages of a Transport, or memory that all of its ranks share.
enum class Path : uint8_t { kTransport, kHost };

struct Choice {
  // All-reduces up to this size send everything to everybody, in one step; larger ones are a
  // reduce-scatter and an all-gather.
  int64_t all_reduce_one_step_bytes = 0;
  // Reduce-scatters over a Transport up to this size, of all their buffers, are one message to each
  // rank; larger ones stream through chunks.
  int64_t reduce_scatter_one_step_bytes = 0;
};

// `one_step_bytes` replaces the table's all_reduce_one_step_bytes.
Choice choose(Path path, int ranks, std::optional<int64_t> one_step_bytes = {});

// What a call of `bytes` uses, for people: "one step".
std::string_view algorithm_of(OpKind op, int64_t bytes, Path path, const Choice& choice);

}  // namespace dtensor::comm

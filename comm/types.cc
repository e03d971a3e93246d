#include "dtensor/comm/types.h"

namespace dtensor::comm {

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "avg", "min", "max", "prod"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view name_of(OpKind op) {
  constexpr std::string_view kNames[] = {
      "all_reduce", "reduce",    "broadcast", "all_gather_v", "reduce_scatter_v", "all_to_all_v",
      "gather_v",   "scatter_v", "exchange",  "barrier",      "shutdown"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace dtensor::comm

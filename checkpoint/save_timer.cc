#include "dtensor/checkpoint/save_timer.h"

#include <fmt/core.h>

#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/root.h"

namespace dtensor::checkpoint {

SaveTimer::SaveTimer(SaveEvery every, Clock clock)
    : every_(every), clock_(std::move(clock)), last_(clock_()) {
  if (every_.steps >= 0 && every_.time.count() >= 0) return;
  throw ArgumentError(
      fmt::format("checkpoint::SaveTimer: every {} steps, every {} s: give numbers of 0 or more",
                  every_.steps, every_.time.count()));
}

bool SaveTimer::is_due(int64_t step) {
  bool due = every_.steps > 0 && step % every_.steps == 0;
  if (every_.time.count() > 0 && !due) {
    comm::Comm* root = comm::root();
    int64_t told = clock_() - last_ >= every_.time ? 1 : 0;
    if (root != nullptr && root->size() > 1) {
      root->broadcast(comm::Buffer{&told, 1, DType::kInt64}, 0, {.label = "is a save due?"}).wait();
    }
    due = told != 0;
  }
  if (due) last_ = clock_();
  return due;
}

}  // namespace dtensor::checkpoint

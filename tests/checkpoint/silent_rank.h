// A rank on a Comm on which nothing may be called. Saving needs no more: the ranks of a world may
// save one after the other in one thread, or in processes that know nothing of each other.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm/comm.h"

namespace dtensor::testing {

class Silent : public comm::Backend {
 public:
  Silent(int rank, int size, std::string run_id)
      : rank_(rank), size_(size), run_id_(std::move(run_id)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void run(const comm::Call&) override { throw InternalError("the Comm was used"); }
  std::shared_ptr<comm::Backend> group(std::span<const int>, std::string_view) override {
    throw InternalError("a group was made");
  }
  void abort(std::string_view) noexcept override {}
  const comm::Capabilities& capabilities() const override { return capabilities_; }
  comm::Counters counters() const override { return {}; }
  const std::string& run_id() const override { return run_id_; }
  int64_t generation() const override { return 0; }

 private:
  int rank_;
  int size_;
  comm::Capabilities capabilities_;
  std::string run_id_;
};

inline constexpr char kSilentRun[] = "20260301T101500Z-1f2e3d4c";

// Calls f(comm) in a Context of the rank's own. What f has begun ends with that.
template <class F>
void as_silent_rank(int rank, int size, const std::string& run_id, F&& f) {
  Context context;
  const ContextScope scope(context);
  comm::Comm comm(std::make_shared<Silent>(rank, size, run_id), "world");
  f(comm);
}

}  // namespace dtensor::testing

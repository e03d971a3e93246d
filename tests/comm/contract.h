// The contract of a Comm, as tests over any backend: contract_test.cc instantiates them for
// `local`; a backend's own test for itself.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/comm/comm.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {

// A backend and a world size; make() gives the Comms in rank order.
struct CommWorld {
  std::string backend;
  int size = 1;
  std::function<std::vector<std::unique_ptr<comm::Comm>>(int size)> make;
};

inline std::string name_of(const ::testing::TestParamInfo<CommWorld>& info) {
  return info.param.backend + "_" + std::to_string(info.param.size);
}

inline std::vector<CommWorld> local_worlds() {
  std::vector<CommWorld> worlds;
  for (const int size : {1, 2, 3, 4, 7}) {
    worlds.push_back({"local", size, [](int n) { return comm::local::make_world(n); }});
  }
  return worlds;
}

class CommContract : public ::testing::TestWithParam<CommWorld> {
 protected:
  void run(const RankFunction& f) { run_ranks(GetParam().make(GetParam().size), f); }
  int size() const { return GetParam().size; }
};

// A view of a vector's memory.
template <class T>
comm::Buffer view(std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}
template <class T>
comm::ConstBuffer view(const std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}

// 2, 0, 4, 5, 0, 7, 8, ...: ragged, with empty ranks.
inline std::vector<int64_t> ragged_counts(int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : r + 2);
  return counts;
}

inline int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t c : counts) sum += c;
  return sum;
}

// Element i of rank r: small integers, exact in every dtype; sums over 7 ranks are, too.
inline int value_at(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 11) - 4; }

}  // namespace dtensor::testing

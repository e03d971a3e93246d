// The contract of a Comm, as tests over any backend: the target :contract holds the tests, and
// each backend's test instantiates CommContract for its worlds:
//   INSTANTIATE_TEST_SUITE_P(Local, CommContract, testing::ValuesIn(worlds("local", make)),
//                            world_name);

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/comm/comm.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {

// Gives the Comms of a world, in rank order, all in this process.
using MakeWorld = std::function<std::vector<std::unique_ptr<comm::Comm>>(int size)>;

struct CommWorld {
  std::string backend;
  int size = 1;
  MakeWorld make;
};

inline std::vector<CommWorld> worlds(const std::string& backend, const MakeWorld& make) {
  std::vector<CommWorld> all;
  for (const int size : {1, 2, 3, 4, 7}) all.push_back({backend, size, make});
  return all;
}

inline std::string world_name(const ::testing::TestParamInfo<CommWorld>& info) {
  return info.param.backend + "_" + std::to_string(info.param.size);
}

class CommContract : public ::testing::TestWithParam<CommWorld> {
 protected:
  int size() const { return GetParam().size; }
  void run(const RankFunction& f) const { run_ranks(GetParam().make(size()), f); }
  // The same where ranks are expected to fail: their CommErrors, by rank.
  std::vector<std::optional<comm::CommError::Fields>> failures(const RankFunction& f) const {
    std::vector<std::optional<comm::CommError::Fields>> all(static_cast<size_t>(size()));
    run([&](comm::Comm& comm) {
      try {
        f(comm);
      } catch (const comm::CommError& e) {
        all[static_cast<size_t>(comm.rank())] = e.fields();
      }
    });
    return all;
  }
};

// A view of a vector's memory. (A vector<bool> has none.)
template <class T>
comm::Buffer view(std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}
template <class T>
comm::ConstBuffer view(const std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}

// Of rank r: r + 2 elements, every third rank from 1 on none: 2,0,4,5,0,7,8.
inline std::vector<int64_t> ragged_counts(int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : r + 2);
  return counts;
}

inline int64_t total(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t c : counts) sum += c;
  return sum;
}

// What rank `r` has at index i: -4..6, so that sums and products of a few are exact in any dtype
// that can hold them.
inline int value_at(int r, int64_t i) { return static_cast<int>((i * 7 + r * 3) % 11) - 4; }

template <class T>
std::vector<T> values_of(int r, int64_t count) {
  std::vector<T> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(T(static_cast<float>(value_at(r, i))));
  return v;
}

}  // namespace dtensor::testing

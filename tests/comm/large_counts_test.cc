// Every operation once with more than 2^31 elements of a byte: beyond what a 32-bit count holds.
// By hand, as it takes 5 GiB of memory:
//   scripts/bazel test //tests/comm:large_counts_test

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/comm/local/local.h"
#include "dtensor/tests/comm/gloo_world.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::Memory;
using comm::P2P;
using comm::ReduceOp;
using comm::Segments;

constexpr int64_t kBig = (int64_t{1} << 31) + 4099;  // no multiple of anything
constexpr int64_t kSmall = 7;
constexpr uint8_t kPoison = 0xEE;

// What rank r has at element i.
uint8_t value_at(int r, int64_t i) { return static_cast<uint8_t>(i % 251 + 3 * r); }

class Bytes {
 public:
  explicit Bytes(int64_t n) : memory_(Memory::of_heap(n)), n_(n) {
    std::fill_n(data(), n, kPoison);
  }
  uint8_t* data() const { return memory_.as<uint8_t>(); }
  Buffer whole() const { return part(0, n_); }
  Buffer part(int64_t begin, int64_t n) const { return {data() + begin, n, DType::kUInt8}; }
  // [begin, begin + n) becomes the first n elements of rank r.
  void put(int r, int64_t begin, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) data()[begin + i] = value_at(r, i);
  }

 private:
  Memory memory_;
  int64_t n_;
};

// Both ends and what lies around the 2^31st byte.
template <class Want>
void expect(const Bytes& got, int64_t begin, int64_t n, const Want& want) {
  constexpr int64_t kAround = 5000;
  for (const int64_t middle : {int64_t{0}, int64_t{1} << 31, n}) {
    for (int64_t i = middle - kAround; i < middle + kAround; ++i) {
      if (i < 0 || i >= n) continue;
      ASSERT_EQ(got.data()[begin + i], want(i)) << "at " << i << " of " << n;
    }
  }
}

void expect_rank(const Bytes& got, int r, int64_t begin, int64_t n) {
  expect(got, begin, n, [r](int64_t i) { return value_at(r, i); });
}
uint8_t sum_at(int64_t i) { return static_cast<uint8_t>(value_at(0, i) + value_at(1, i)); }

struct World {
  std::string name;
  std::function<std::vector<std::unique_ptr<Comm>>()> make;
};

class LargeCounts : public ::testing::TestWithParam<World> {
 protected:
  static void run(const RankFunction& f) {
    run_ranks(GetParam().make(), f, {.limit = std::chrono::seconds(1200)});
  }
};

TEST_P(LargeCounts, AllReduceInPlace) {
  run([](Comm& comm) {
    const Bytes x(kBig);
    x.put(comm.rank(), 0, kBig);
    comm.all_reduce(x.whole(), x.whole(), ReduceOp::kSum).wait();
    expect(x, 0, kBig, sum_at);
  });
}

TEST_P(LargeCounts, ReduceInPlace) {
  run([](Comm& comm) {
    const Bytes x(kBig);
    x.put(comm.rank(), 0, kBig);
    const Buffer out = comm.rank() == 1 ? x.whole() : Buffer{nullptr, 0, DType::kUInt8};
    comm.reduce(x.whole(), out, 1, ReduceOp::kSum).wait();
    if (comm.rank() == 1) expect(x, 0, kBig, sum_at);
  });
}

TEST_P(LargeCounts, ReduceScatterInPlace) {
  run([](Comm& comm) {
    const Segments s(std::vector<int64_t>{kSmall, kBig});
    const Bytes x(s.total());
    x.put(comm.rank(), 0, s.total());
    const int64_t begin = s.offset(comm.rank());
    const int64_t n = s.count(comm.rank());
    comm.reduce_scatter_v(x.whole(), x.part(begin, n), s, ReduceOp::kSum).wait();
    expect(x, begin, n, [begin](int64_t i) { return sum_at(begin + i); });
  });
}

TEST_P(LargeCounts, Broadcast) {
  run([](Comm& comm) {
    const Bytes x(kBig);
    if (comm.rank() == 1) x.put(1, 0, kBig);
    comm.broadcast(x.whole(), 1).wait();
    expect_rank(x, 1, 0, kBig);
  });
}

TEST_P(LargeCounts, AllGatherInPlace) {
  run([](Comm& comm) {
    const Segments s(std::vector<int64_t>{kBig, kSmall});
    const Bytes x(s.total());
    const Buffer mine = x.part(s.offset(comm.rank()), s.count(comm.rank()));
    x.put(comm.rank(), s.offset(comm.rank()), mine.count);
    comm.all_gather_v(mine, x.whole(), s).wait();
    expect_rank(x, 0, 0, kBig);
    expect_rank(x, 1, kBig, kSmall);
  });
}

TEST_P(LargeCounts, GatherAndScatter) {
  run([](Comm& comm) {
    const Segments s(std::vector<int64_t>{kBig, kSmall});
    const Bytes x(comm.rank() == 1 ? s.total() : kBig);
    const Buffer mine = comm.rank() == 1 ? x.part(kBig, kSmall) : x.whole();
    x.put(comm.rank(), comm.rank() == 1 ? kBig : 0, mine.count);
    const Buffer whole = comm.rank() == 1 ? x.whole() : Buffer{nullptr, 0, DType::kUInt8};
    comm.gather_v(mine, whole, s, 1).wait();
    if (comm.rank() == 1) {
      expect_rank(x, 0, 0, kBig);
      expect_rank(x, 1, kBig, kSmall);
    } else {
      std::fill_n(x.data(), kBig, kPoison);
    }
    comm.scatter_v(whole, mine, s, 1).wait();
    if (comm.rank() == 0) expect_rank(x, 0, 0, kBig);
  });
}

TEST_P(LargeCounts, AllToAllOneWay) {
  run([](Comm& comm) {
    const bool sends = comm.rank() == 0;
    // 0 keeps and gets a few, and sends 1 all the rest.
    const Segments to(sends ? std::vector<int64_t>{kSmall, kBig} : std::vector<int64_t>{kSmall, 0});
    const Segments from(sends ? std::vector<int64_t>{kSmall, kSmall}
                              : std::vector<int64_t>{kBig, 0});
    const Bytes in(to.total());
    in.put(comm.rank(), 0, to.total());
    const Bytes out(from.total());
    comm.all_to_all_v(in.whole(), to, out.whole(), from).wait();
    if (sends) {
      expect_rank(out, 1, kSmall, kSmall);
    } else {
      expect(out, 0, kBig, [](int64_t i) { return value_at(0, kSmall + i); });
    }
  });
}

TEST_P(LargeCounts, ExchangeOneWay) {
  run([](Comm& comm) {
    const bool sends = comm.rank() == 0;
    const Bytes x(kBig);
    if (sends) x.put(0, 0, kBig);
    const std::array<P2P, 1> legs = {
        {{sends ? P2P::Direction::kSend : P2P::Direction::kReceive, sends ? 1 : 0, x.whole()}}};
    comm.exchange(legs).wait();
    if (!sends) expect_rank(x, 0, 0, kBig);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LargeCounts,
                         ::testing::Values(World{"local",
                                                 [] { return comm::local::make_world(2); }},
                                           World{"shared",
                                                 [] {
                                                   return gloo_world(2, {{"shm", "1073741824"}});
                                                 }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dtensor::testing

#include "dtensor/tests/comm/random_programs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::testing {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::ConstBuffer;
using comm::Memory;
using comm::OpKind;
using comm::P2P;
using comm::ReduceOp;
using comm::Segments;
using Bytes = std::vector<std::byte>;

constexpr std::array kAll = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                             DType::kBFloat16, DType::kInt8,    DType::kUInt8,
                             DType::kInt32,    DType::kInt64,   DType::kBool};

// The same on every rank.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  // Mostly few, now and then none, rarely many.
  int64_t count(int64_t most) {
    if (one_in(5)) return 0;
    if (one_in(12)) return below(most);
    return one_in(4) ? below(6000) : below(40);
  }
  std::vector<int64_t> counts(int ranks, int64_t most) {
    std::vector<int64_t> all;
    for (int r = 0; r < ranks; ++r) all.push_back(count(most));
    return all;
  }
  DType dtype() { return kAll[static_cast<size_t>(below(kAll.size()))]; }

 private:
  std::mt19937_64 engine_;
};

// What rank r of the Comm has at element i of its buffer `key`: small, so that every reduction of
// it is exact in every dtype.
int value_of(uint64_t key, int r, int64_t i) {
  const auto mixed = key * 31 + static_cast<uint64_t>(r) * 17 + static_cast<uint64_t>(i) * 7;
  return std::array{1, 2, -1, 0, 1, -2, 2, 1, -1, 1, 2}[mixed % 11];
}

void put(Bytes& to, int64_t at, DType dtype, double value) {
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T x;
    if constexpr (std::is_same_v<T, bool>) {
      x = value > 0;
    } else if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(static_cast<int64_t>(value));  // wraps
    } else if constexpr (std::is_same_v<T, double>) {
      x = value;
    } else {
      x = T(static_cast<float>(value));
    }
    std::memcpy(to.data() + at * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  });
}

Bytes values(uint64_t key, int r, int64_t count, DType dtype) {
  Bytes all(static_cast<size_t>(count * size_of(dtype)));
  for (int64_t i = 0; i < count; ++i) put(all, i, dtype, value_of(key, r, i));
  return all;
}

// The reduction over `ranks` of elements [begin, begin + count).
Bytes reduced(uint64_t key, int ranks, int64_t begin, int64_t count, DType dtype, ReduceOp op) {
  Bytes all(static_cast<size_t>(count * size_of(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kBool) {
      bool x = value_of(key, 0, begin + i) > 0;
      for (int r = 1; r < ranks; ++r) {
        const bool y = value_of(key, r, begin + i) > 0;
        x = op == ReduceOp::kMax ? x || y : x && y;
      }
      put(all, i, dtype, x ? 1 : 0);
      continue;
    }
    double x = value_of(key, 0, begin + i);
    // An unsigned -1 is the largest.
    const auto order = [&](double v) { return dtype == DType::kUInt8 && v < 0 ? v + 256 : v; };
    for (int r = 1; r < ranks; ++r) {
      const double y = value_of(key, r, begin + i);
      if (op == ReduceOp::kSum || op == ReduceOp::kAvg) x += y;
      if (op == ReduceOp::kProd) x *= y;
      if (op == ReduceOp::kMin && order(y) < order(x)) x = y;
      if (op == ReduceOp::kMax && order(y) > order(x)) x = y;
    }
    if (op == ReduceOp::kAvg) {
      // One division, in float32 where that is what sums are made in.
      x = dtype == DType::kFloat64 ? x / ranks : static_cast<float>(x) / static_cast<float>(ranks);
    }
    put(all, i, dtype, x);
  }
  return all;
}

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

// A call in flight: what it uses, and what must be there when it ends.
struct Flight {
  comm::Work work;
  std::string what;
  std::vector<Memory> memory;
  std::vector<std::pair<Buffer, Bytes>> wanted;
};

class Program {
 public:
  Program(Comm& world, uint64_t seed, const ProgramOptions& options)
      : world_(world), options_(options), dice_(seed), own_(seed * 1000 + 7 + rank_of(world)) {
    comms_.push_back(&world);
    // Some groups, each in a random order.
    for (int g = 0; g < 3; ++g) {
      std::vector<int> ranks(static_cast<size_t>(world.size()));
      std::iota(ranks.begin(), ranks.end(), 0);
      for (size_t i = ranks.size(); i > 1; --i) {
        std::swap(ranks[i - 1], ranks[static_cast<size_t>(dice_.below(static_cast<int64_t>(i)))]);
      }
      ranks.resize(static_cast<size_t>(1 + dice_.below(world.size())));
      const bool member = std::ranges::find(ranks, world.rank()) != ranks.end();
      const std::string name = std::to_string(seed) + "/" + std::to_string(g);
      groups_.push_back(member ? world.group(ranks, name) : nullptr);
      comms_.push_back(groups_.back().get());
    }
  }

  void run() {
    for (int step = 0; step < options_.steps; ++step) {
      const auto which = static_cast<size_t>(dice_.below(static_cast<int64_t>(comms_.size())));
      const auto op = static_cast<OpKind>(dice_.below(static_cast<int64_t>(OpKind::kShutdown)));
      const uint64_t seed = static_cast<uint64_t>(dice_.below(int64_t{1} << 60));
      const bool ends = dice_.one_in(3);
      if (comms_[which] != nullptr) issue(*comms_[which], op, seed, step);
      if (ends) land();
    }
    land();
  }

 private:
  static uint64_t rank_of(const Comm& world) {
    return static_cast<uint64_t>(world.rank()) * 65'537;
  }

  // Memory of some kind, different on each rank, with these contents.
  Buffer memory(Flight& f, const Bytes& contents, DType dtype) {
    const auto bytes = static_cast<int64_t>(contents.size());
    const Memory& m = f.memory.emplace_back(
        own_.one_in(2) ? world_.allocate(std::max<int64_t>(bytes, 1)) : Memory::of_heap(bytes));
    if (bytes > 0) std::memcpy(m.data(), contents.data(), contents.size());
    return {m.data(), bytes / size_of(dtype), dtype};
  }
  Buffer poisoned(Flight& f, int64_t count, DType dtype) {
    return memory(f, Bytes(static_cast<size_t>(count * size_of(dtype)), std::byte{0xA5}), dtype);
  }

  static Buffer part_of(const Buffer& b, int64_t offset, int64_t count) {
    return {static_cast<std::byte*>(b.data) + offset * size_of(b.dtype), count, b.dtype};
  }

  static ReduceOp reduction(Dice& dice, DType dtype) {
    if (dtype == DType::kBool) return dice.one_in(2) ? ReduceOp::kMin : ReduceOp::kMax;
    const auto op = static_cast<ReduceOp>(dice.below(5));
    return op == ReduceOp::kAvg && !is_floating(dtype) ? ReduceOp::kSum : op;
  }

  void issue(Comm& comm, OpKind op, uint64_t seed, int step) {
    Dice dice(seed);
    Flight f;
    f.what = std::string(name_of(op)) + " at step " + std::to_string(step);
    const int root = static_cast<int>(dice.below(comm.size()));
    const DType dtype = dice.dtype();
    switch (op) {
      case OpKind::kAllReduce:
      case OpKind::kReduce:
        reduce(comm, op, dice, seed, root, dtype, f);
        break;
      case OpKind::kBroadcast: {
        const int64_t n = dice.count(options_.most);
        const Bytes want = values(seed, root, n, dtype);
        const Buffer x = comm.rank() == root ? memory(f, want, dtype) : poisoned(f, n, dtype);
        f.wanted.emplace_back(x, want);
        f.work = comm.broadcast(x, root);
        break;
      }
      case OpKind::kAllGather:
        all_gather(comm, dice, seed, f);
        break;
      case OpKind::kReduceScatter:
        reduce_scatter(comm, dice, seed, f);
        break;
      case OpKind::kAllToAll:
        all_to_all(comm, dice, seed, dtype, f);
        break;
      case OpKind::kGather:
      case OpKind::kScatter:
        gather_or_scatter(comm, op, dice, seed, root, dtype, f);
        break;
      case OpKind::kExchange:
        exchange(comm, dice, seed, f);
        break;
      default:
        f.work = comm.barrier();
    }
    flights_.push_back(std::move(f));
  }

  void reduce(Comm& comm, OpKind op, Dice& dice, uint64_t seed, int root, DType dtype, Flight& f) {
    const int64_t n = dice.count(options_.most);
    const ReduceOp how = reduction(dice, dtype);
    const Buffer in = memory(f, values(seed, comm.rank(), n, dtype), dtype);
    const Buffer out = own_.one_in(2) ? in : poisoned(f, n, dtype);
    const bool gets = op == OpKind::kAllReduce || comm.rank() == root;
    if (gets) f.wanted.emplace_back(out, reduced(seed, comm.size(), 0, n, dtype, how));
    f.work = op == OpKind::kAllReduce
                 ? comm.all_reduce(in, out, how)
                 : comm.reduce(in, gets ? out : Buffer{nullptr, 0, dtype}, root, how);
  }

  void all_gather(Comm& comm, Dice& dice, uint64_t seed, Flight& f) {
    std::vector<ConstBuffer> in;
    std::vector<Buffer> out;
    std::vector<Segments> segments;
    const int64_t items = 1 + dice.below(dice.one_in(4) ? 40 : 3);
    for (int64_t k = 0; k < items; ++k) {
      const DType dtype = dice.dtype();
      const uint64_t key = seed + static_cast<uint64_t>(k);
      const Segments s(dice.counts(comm.size(), options_.most / comm.size() / items));
      Bytes want;
      for (int r = 0; r < comm.size(); ++r) append(want, values(key, r, s.count(r), dtype));
      const Bytes mine = values(key, comm.rank(), s.count(comm.rank()), dtype);
      out.push_back(poisoned(f, s.total(), dtype));
      const Buffer place = part_of(out.back(), s.offset(comm.rank()), s.count(comm.rank()));
      if (own_.one_in(2)) {
        if (!mine.empty()) std::memcpy(place.data, mine.data(), mine.size());
        in.push_back(place);
      } else {
        in.push_back(memory(f, mine, dtype));
      }
      segments.push_back(s);
      f.wanted.emplace_back(out.back(), std::move(want));
    }
    f.work = comm.all_gather_v(in, out, segments);
  }

  void reduce_scatter(Comm& comm, Dice& dice, uint64_t seed, Flight& f) {
    std::vector<ConstBuffer> in;
    std::vector<Buffer> out;
    std::vector<Segments> segments;
    const int64_t items = 1 + dice.below(3);
    ReduceOp how = static_cast<ReduceOp>(2 + dice.below(2));  // min or max: of all dtypes
    if (dice.one_in(2)) how = ReduceOp::kSum;
    for (int64_t k = 0; k < items; ++k) {
      DType dtype = dice.dtype();
      if (dtype == DType::kBool && how == ReduceOp::kSum) dtype = DType::kInt64;
      const uint64_t key = seed + static_cast<uint64_t>(k);
      const Segments s(dice.counts(comm.size(), options_.most / comm.size()));
      const Buffer whole = memory(f, values(key, comm.rank(), s.total(), dtype), dtype);
      const int64_t begin = s.offset(comm.rank());
      const int64_t n = s.count(comm.rank());
      in.push_back(whole);
      out.push_back(own_.one_in(2) ? part_of(whole, begin, n) : poisoned(f, n, dtype));
      segments.push_back(s);
      f.wanted.emplace_back(out.back(), reduced(key, comm.size(), begin, n, dtype, how));
    }
    f.work = comm.reduce_scatter_v(in, out, segments, how);
  }

  void all_to_all(Comm& comm, Dice& dice, uint64_t seed, DType dtype, Flight& f) {
    std::vector<std::vector<int64_t>> counts;  // [src][dst]
    for (int r = 0; r < comm.size(); ++r) {
      counts.push_back(dice.counts(comm.size(), options_.most / comm.size()));
    }
    const auto at = [&](int r, int q) {
      return counts[static_cast<size_t>(r)][static_cast<size_t>(q)];
    };
    std::vector<int64_t> from;
    Bytes want;
    for (int r = 0; r < comm.size(); ++r) {
      from.push_back(at(r, comm.rank()));
      int64_t begin = 0;
      for (int q = 0; q < comm.rank(); ++q) begin += at(r, q);
      const Bytes all = values(seed, r, begin + from.back(), dtype);
      want.insert(want.end(), all.begin() + begin * size_of(dtype), all.end());
    }
    const Segments to(counts[static_cast<size_t>(comm.rank())]);
    const Segments back(from);
    const Buffer in = memory(f, values(seed, comm.rank(), to.total(), dtype), dtype);
    const Buffer out = poisoned(f, back.total(), dtype);
    f.wanted.emplace_back(out, std::move(want));
    f.work = comm.all_to_all_v(in, to, out, back);
  }

  void gather_or_scatter(Comm& comm, OpKind op, Dice& dice, uint64_t seed, int root, DType dtype,
                         Flight& f) {
    const Segments s(dice.counts(comm.size(), options_.most / comm.size()));
    const int64_t mine = s.count(comm.rank());
    const Buffer none{nullptr, 0, dtype};
    const bool is_root = comm.rank() == root;
    const bool in_place = is_root && own_.one_in(2);
    if (op == OpKind::kGather) {
      const Bytes given = values(seed, comm.rank(), mine, dtype);
      const Buffer out = is_root ? poisoned(f, s.total(), dtype) : none;
      Buffer in;
      if (in_place) {
        in = part_of(out, s.offset(root), mine);
        if (mine > 0) std::memcpy(in.data, given.data(), given.size());
      } else {
        in = memory(f, given, dtype);
      }
      Bytes want;
      for (int r = 0; r < comm.size(); ++r) append(want, values(seed, r, s.count(r), dtype));
      if (is_root) f.wanted.emplace_back(out, std::move(want));
      f.work = comm.gather_v(in, out, s, root);
      return;
    }
    const Bytes all = values(seed, root, s.total(), dtype);
    const Buffer in = is_root ? memory(f, all, dtype) : none;
    const Buffer out = in_place ? part_of(in, s.offset(root), mine) : poisoned(f, mine, dtype);
    const auto begin = all.begin() + s.offset(comm.rank()) * size_of(dtype);
    f.wanted.emplace_back(out, Bytes(begin, begin + mine * size_of(dtype)));
    f.work = comm.scatter_v(in, out, s, root);
  }

  void exchange(Comm& comm, Dice& dice, uint64_t seed, Flight& f) {
    std::vector<P2P> legs;
    const int64_t n = dice.below(12);
    for (int64_t k = 0; k < n; ++k) {
      const int src = static_cast<int>(dice.below(comm.size()));
      const int dst = static_cast<int>(dice.below(comm.size()));
      const DType dtype = dice.dtype();
      const int64_t count = dice.count(options_.most / 4);
      const Bytes data = values(seed + static_cast<uint64_t>(k), src, count, dtype);
      if (src == comm.rank()) legs.push_back({P2P::Direction::kSend, dst, memory(f, data, dtype)});
      if (dst == comm.rank()) {
        legs.push_back({P2P::Direction::kReceive, src, poisoned(f, count, dtype)});
        f.wanted.emplace_back(legs.back().buffer, data);
      }
    }
    f.work = comm.exchange(legs);
  }

  void land() {
    for (Flight& f : flights_) {
      f.work.wait();
      for (const auto& [buffer, want] : f.wanted) {
        if (want.empty() || std::memcmp(buffer.data, want.data(), want.size()) == 0) continue;
        throw Error(f.what + ": a wrong result of " + std::to_string(buffer.count) + " " +
                    std::string(name_of(buffer.dtype)));
      }
    }
    flights_.clear();
  }

  Comm& world_;
  const ProgramOptions options_;
  Dice dice_;
  Dice own_;  // differs from rank to rank
  std::vector<std::unique_ptr<Comm>> groups_;
  std::vector<Comm*> comms_;  // the world and the groups; nullptr where this rank is no member
  std::vector<Flight> flights_;
};

}  // namespace

void run_random_program(comm::Comm& world, uint64_t seed, const ProgramOptions& options) {
  try {
    Program(world, seed, options).run();
  } catch (const comm::CommError&) {
    throw;
  } catch (const Error& e) {
    throw Error("random program " + std::to_string(seed) + ", rank " +
                std::to_string(world.rank()) + " of " + std::to_string(world.size()) + ": " +
                e.what());
  }
}

}  // namespace dtensor::testing

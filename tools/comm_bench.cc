#include "dtensor/tools/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/capabilities_table.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/environment.h"
#include "dtensor/tools/options.h"

namespace dtensor::tools {
namespace {

using comm::Buffer;
using comm::Comm;
using comm::OpKind;
using comm::Segments;
using Clock = std::chrono::steady_clock;

constexpr std::array kOps = {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                             OpKind::kAllToAll,  OpKind::kBroadcast,     OpKind::kReduce,
                             OpKind::kGather,    OpKind::kScatter,       OpKind::kExchange,
                             OpKind::kBarrier};
constexpr int64_t kMostBytes = int64_t{1} << 36;
constexpr auto kPerSize = std::chrono::milliseconds(300);
constexpr int kFewest = 5;
constexpr int kMost = 20'000;

enum class Kind : uint8_t { kAllocated, kHeap };

struct Row {
  OpKind op;
  int64_t bytes;
  double median_us;
  double bus_gb_s;
  std::string algorithm;
};

// "4m" is 4 MiB.
int64_t read_bytes(const std::string& text) {
  size_t used = 0;
  int64_t n = 0;
  try {
    n = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const int shift = unit.empty() ? 0 : unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : -1;
  if (used == 0 || shift < 0 || n < 1 || n > kMostBytes >> shift) {
    throw UsageError(fmt::format("--bytes {}: give sizes as 8, 64k, 4m or 1g", text));
  }
  return n << shift;
}

// "1k:64m" is 1k, 4k, 16k, ... 64m; "8,4m" are these two.
std::vector<int64_t> read_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t colon = item.find(':');
    if (colon == std::string::npos) {
      sizes.push_back(read_bytes(item));
    } else {
      const int64_t last = read_bytes(item.substr(colon + 1));
      for (int64_t n = read_bytes(item.substr(0, colon)); n <= last; n *= 4) sizes.push_back(n);
    }
    begin = end + 1;
  }
  return sizes;
}

// "all_gather" is all_gather_v, of equal parts.
std::string short_name(OpKind op) {
  std::string name(comm::name_of(op));
  if (name.ends_with("_v")) name.resize(name.size() - 2);
  return name;
}

std::vector<OpKind> read_ops(const std::string& text) {
  std::vector<OpKind> ops;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const auto known =
        std::ranges::find_if(kOps, [&](OpKind op) { return short_name(op) == name; });
    if (known == kOps.end()) {
      std::string all;
      for (const OpKind op : kOps) {
        all += (all.empty() ? "" : ", ") + short_name(op);
      }
      throw UsageError(fmt::format("--ops {}: the operations are {}", name, all));
    }
    ops.push_back(*known);
    begin = end + 1;
  }
  return ops;
}

// Of nccl-tests: what a link of a ring would have to carry per second, in units of the bytes of the
// larger buffer per call.
double bus_factor(OpKind op, int ranks) {
  const double n = ranks;
  switch (op) {
    case OpKind::kAllReduce:
      return 2 * (n - 1) / n;
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
    case OpKind::kGather:
    case OpKind::kScatter:
      return (n - 1) / n;
    case OpKind::kBroadcast:
    case OpKind::kReduce:
    case OpKind::kExchange:
      return n > 1 ? 1 : 0;
    default:
      return 0;
  }
}

// One call of `op`; `bytes` are the larger of its buffers.
class Bench {
 public:
  Bench(Comm& comm, OpKind op, int64_t bytes, Kind kind)
      : comm_(comm),
        op_(op),
        count_(std::max<int64_t>(1, bytes / 4)),
        segments_(Segments::even(count_, comm.size())),
        in_(memory(kind)),
        out_(memory(kind)) {
    std::fill_n(in_.as<float>(), count_, 1.0F);
    std::fill_n(out_.as<float>(), count_, 0.0F);
  }

  void call() {
    const Buffer in = in_.buffer(count_, DType::kFloat32);
    const Buffer out = out_.buffer(count_, DType::kFloat32);
    const int64_t mine = segments_.count(comm_.rank());
    const Buffer in_part = in_.buffer(mine, DType::kFloat32);
    const Buffer out_part = out_.buffer(mine, DType::kFloat32);
    work(in, out, in_part, out_part).wait();
  }

 private:
  comm::Memory memory(Kind kind) const {
    return kind == Kind::kAllocated ? comm_.allocate(4 * count_)
                                    : comm::Memory::of_heap(4 * count_);
  }

  comm::Work work(const Buffer& in, const Buffer& out, const Buffer& in_part,
                  const Buffer& out_part) {
    switch (op_) {
      case OpKind::kAllReduce:
        return comm_.all_reduce(in, out, comm::ReduceOp::kSum);
      case OpKind::kReduce:
        return comm_.reduce(in, out, 0, comm::ReduceOp::kSum);
      case OpKind::kReduceScatter:
        return comm_.reduce_scatter_v(in, out_part, segments_, comm::ReduceOp::kSum);
      case OpKind::kAllGather:
        return comm_.all_gather_v(in_part, out, segments_);
      case OpKind::kAllToAll:
        return all_to_all(in, out);
      case OpKind::kGather:
        return comm_.gather_v(in_part, out, segments_, 0);
      case OpKind::kScatter:
        return comm_.scatter_v(in, out_part, segments_, 0);
      case OpKind::kBroadcast:
        return comm_.broadcast(out, 0);
      case OpKind::kExchange:
        return around(in, out);
      default:
        return comm_.barrier();
    }
  }

  // Every rank sends as much to each: what does not divide stays.
  comm::Work all_to_all(Buffer in, Buffer out) {
    const int64_t each = count_ / comm_.size();
    in.count = out.count = each * comm_.size();
    const Segments even = Segments::even(in.count, comm_.size());
    return comm_.all_to_all_v(in, even, out, even);
  }

  // Every rank sends to the next one and gets from the one before.
  comm::Work around(const Buffer& in, const Buffer& out) {
    using Direction = comm::P2P::Direction;
    const int n = comm_.size();
    const std::array<comm::P2P, 2> legs = {
        {{Direction::kSend, (comm_.rank() + 1) % n, in},
         {Direction::kReceive, (comm_.rank() + n - 1) % n, out}}};
    return comm_.exchange(legs);
  }

  Comm& comm_;
  const OpKind op_;
  const int64_t count_;
  const Segments segments_;
  const comm::Memory in_;
  const comm::Memory out_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Row measure(Comm& comm, OpKind op, int64_t bytes, Kind kind) {
  Bench bench(comm, op, bytes, kind);
  const auto timed = [&] {
    const auto start = Clock::now();
    bench.call();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  double slowest = 0;
  for (int i = 0; i < kFewest; ++i) slowest = timed();
  // How often: told by rank 0, so that all do the same.
  std::array<int64_t, 1> times = {std::clamp<int64_t>(
      static_cast<int64_t>(std::chrono::duration<double, std::micro>(kPerSize).count() / slowest),
      kFewest, kMost)};
  comm.broadcast({times.data(), 1, DType::kInt64}, 0).wait();
  std::vector<double> us;
  us.reserve(static_cast<size_t>(times[0]));
  for (int64_t i = 0; i < times[0]; ++i) us.push_back(timed());
  comm.barrier().wait();
  Row row{op, op == OpKind::kBarrier ? 0 : bytes, median(std::move(us)), 0, {}};
  row.bus_gb_s = bus_factor(op, comm.size()) * static_cast<double>(row.bytes) / row.median_us / 1e3;
  if (comm.capabilities().algorithm) row.algorithm = comm.capabilities().algorithm(op, bytes);
  return row;
}

std::vector<Row> measure_all(Comm& comm, const std::vector<OpKind>& ops,
                             const std::vector<int64_t>& sizes, Kind kind) {
  std::vector<Row> rows;
  for (const OpKind op : ops) {
    for (const int64_t bytes : sizes) {
      rows.push_back(measure(comm, op, bytes, kind));
      if (op == OpKind::kBarrier) break;
    }
  }
  return rows;
}

std::string_view name_of(Kind kind) { return kind == Kind::kHeap ? "heap" : "allocated"; }

void print(const std::vector<Row>& rows, int ranks, Kind kind, bool json, std::ostream& out) {
  auto array = nlohmann::ordered_json::array();
  for (const Row& r : rows) {
    if (json) {
      array.push_back({{"op", short_name(r.op)},
                       {"bytes", r.bytes},
                       {"ranks", ranks},
                       {"memory", name_of(kind)},
                       {"median_us", r.median_us},
                       {"bus_gb_s", r.bus_gb_s},
                       {"algorithm", r.algorithm}});
    } else {
      out << fmt::format("{:<15}{:>12}{:>12.2f} us{:>9.2f} GB/s  {}\n", short_name(r.op), r.bytes,
                         r.median_us, r.bus_gb_s, r.algorithm);
    }
  }
  if (json) out << array.dump() << "\n";
}

comm::Environment environment_of(const Options& options) {
  comm::Environment e = comm::read_environment(std::getenv);
  if (!e.launched) {
    throw UsageError(
        "no launcher started this process: dtensor run -n 2 --plain -- dtensor comm-bench ...");
  }
  if (options.has("comm")) e.comm = options.required("comm");
  return e;
}

// The sizes up to which an all-reduce is faster in one step, by two worlds of different choice.
void tune(const Options& options, Kind kind, bool json, std::ostream& out) {
  constexpr int64_t kLast = 4 << 20;
  std::array<std::vector<Row>, 2> rows;
  int rank = 0;
  int ranks = 0;
  for (const size_t one_step : {size_t{0}, size_t{1}}) {
    comm::Endpoint e = comm::endpoint_of(environment_of(options));
    e.generation = 2 * e.generation + static_cast<int64_t>(one_step);
    e.options["one_step"] = one_step == 1 ? std::to_string(kLast) : "0";
    const auto world = comm::create(e);
    rank = world->rank();
    ranks = world->size();
    std::vector<int64_t> sizes;
    for (int64_t n = 256; n <= kLast; n *= 2) sizes.push_back(n);
    rows[one_step] = measure_all(*world, {OpKind::kAllReduce}, sizes, kind);
    world->shutdown();
  }
  if (rank != 0) return;
  int64_t best = 0;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    if (rows[1][i].algorithm == rows[0][i].algorithm) break;  // the path has no such choice
    if (rows[1][i].median_us <= rows[0][i].median_us) best = rows[0][i].bytes;
  }
  if (json) {
    out << nlohmann::ordered_json{{"ranks", ranks}, {"one_step", best}}.dump() << "\n";
    return;
  }
  print(rows[1], ranks, kind, false, out);
  print(rows[0], ranks, kind, false, out);
  out << fmt::format("{} ranks: one_step={} (an option of the URL)\n", ranks, best);
}

}  // namespace

int comm_bench_command(Arguments arguments, std::ostream& out, std::ostream&) {
  const Options options(arguments, {.values = {"comm", "ops", "bytes", "memory"},
                                    .switches = {"capabilities", "json", "tune"}});
  const std::vector<OpKind> ops = read_ops(options.value_or("ops", "all_reduce"));
  const std::vector<int64_t> sizes = read_sizes(options.value_or("bytes", "1k:64m"));
  const std::string memory = options.value_or("memory", "allocated");
  if (memory != "allocated" && memory != "heap") {
    throw UsageError(fmt::format("--memory {}: give allocated or heap", memory));
  }
  const Kind kind = memory == "heap" ? Kind::kHeap : Kind::kAllocated;
  const bool json = options.has("json");
  comm::register_all();
  if (options.has("tune")) {
    tune(options, kind, json, out);
    return 0;
  }
  const auto world = comm::create(comm::endpoint_of(environment_of(options)));
  if (options.has("capabilities")) {
    const comm::Capabilities& c = world->capabilities();
    if (world->rank() == 0) {
      out << c.backend << " " << c.version << "\n\n" << comm::capabilities_table(c);
    }
    world->shutdown();
    return 0;
  }
  const std::vector<Row> rows = measure_all(*world, ops, sizes, kind);
  if (world->rank() == 0) print(rows, world->size(), kind, json, out);
  world->shutdown();
  return 0;
}

}  // namespace dtensor::tools

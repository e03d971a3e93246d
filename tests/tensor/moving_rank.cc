// One rank of processes_test: moves tensors in a world of processes, and exits with 1 where a value
// or a number of bytes is not what it should be.

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/block_source.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"

namespace dtensor {
namespace {

using Floats = std::vector<float>;

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("not so: %s\n", what.c_str());
}

Floats values(const DTensor& t) {
  return t.has_local() ? t.local_tensor().to_vector<float>() : Floats{};
}

// The payload bytes that all ranks sent since `before`.
int64_t sent_by_all(comm::Comm& world, int64_t before) {
  int64_t sent = world.counters().payload_bytes_sent - before;
  const comm::Buffer buffer{&sent, 1, DType::kInt64};
  world.all_reduce(buffer, buffer, comm::ReduceOp::kSum).wait();
  return sent;
}

// pytorch#180346: arange(5) from ranks 0, 1 to ranks 1, 2, 3, and its gradient back.
void move_to_another_mesh(comm::Comm& world) {
  const DeviceMesh two(world, {{"x", 2}}, {0, 1});
  const DeviceMesh three(world, {{"x", 3}}, {1, 2, 3});
  DTensor t = distribute(Tensor::arange(5), two, {Shard(0)});
  t.set_requires_grad(true);
  const int64_t before = world.counters().payload_bytes_sent;
  const DTensor moved = redistribute(t, three, {Shard(0)});
  expect(sent_by_all(world, before) == 20, "20 bytes move");
  const Floats pieces[] = {{}, {0, 1}, {2, 3}, {4}};
  expect(values(moved) == pieces[world.rank()], "2, 2, 1 elements");
  expect(moved.has_local() == (world.rank() > 0), "rank 0 has a handle");
  expect(t.has_local() == (world.rank() < 2), "ranks 2 and 3 have a handle");
  const DTensor back = redistribute(moved, two, {Replicate()});
  if (world.rank() < 2) expect(values(back) == Floats({0, 1, 2, 3, 4}), "the way back");
  const DTensor from_three =
      distribute(world.rank() == 3 ? Tensor::arange(5) : Tensor(), two, {Shard(0)},
                 {.from_rank = 3, .shape = Shape{5}, .dtype = DType::kFloat32});
  expect(values(from_three) == values(t), "a scatter from a rank outside");
}

// numpy#21218, pytorch#110898: by the one-step and by the chunked algorithms.
void keep_minus_zero(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
  for (const int64_t n : {int64_t{3}, int64_t{70001}}) {
    Tensor full = Tensor::arange(n);
    for (int64_t i = 0; i < n; i += 3) full.data<float>()[i] = -0.0F;
    for (const Placement to : {Replicate(), Shard(0)}) {
      const DTensor p = redistribute(distribute(full, mesh, {}), {Partial(), Partial()});
      const Tensor got = dtensor::full(redistribute(p, {to, Replicate()}));
      expect(std::memcmp(got.raw(), full.raw(), static_cast<size_t>(full.size_bytes())) == 0,
             "-0.0 comes back of " + std::to_string(n));
    }
  }
}

// pytorch#194457, autoparallel#462: rows 1,1,1,0 become columns 2,1,1,1 for 44 bytes.
void send_the_least(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"x", 4}});
  const DTensor rows = distribute(Tensor::arange(15).view({3, 5}), mesh, {Shard(0)});
  const int64_t before = world.counters().payload_bytes_sent;
  const DTensor columns = redistribute(rows, {Shard(1)});
  expect(sent_by_all(world, before) == 44, "44 bytes move");
  const Floats pieces[] = {{0, 1, 5, 6, 10, 11}, {2, 7, 12}, {3, 8, 13}, {4, 9, 14}};
  expect(values(columns) == pieces[world.rank()], "columns 2,1,1,1");
  const DTensor half = redistribute(rows, {Replicate()}, {.wire_dtype = DType::kBFloat16});
  expect(values(half) == Tensor::arange(15).to_vector<float>(), "bf16 on the wire");
}

// Values of which a sum depends on the order.
Tensor uneven_values(int64_t rows, int64_t columns, int rank) {
  Tensor t = Tensor::full({rows, columns}, 0);
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<float>()[i] = 1.0F / static_cast<float>(i % 9973 + 3 * rank + 1);
  }
  return t;
}

// What every redistribute of this kind gives on this rank, and the bytes that it read in place.
struct Moved {
  std::vector<Floats> values;
  std::vector<int64_t> in_place;
};

Moved move_all(comm::Comm& world, const DeviceMesh& mesh) {
  constexpr int64_t kRows = 1024;
  constexpr int64_t kColumns = 1024;
  const std::vector<std::pair<Placement, Placement>> pairs = {{Shard(0), Replicate()},
                                                              {Shard(0), Shard(1)},
                                                              {Shard(1), Shard(0)},
                                                              {Partial(), Replicate()},
                                                              {Partial(), Shard(0)}};
  Moved moved;
  for (const auto& [from, to] : pairs) {
    const Layout layout(mesh.layout(), {kRows, kColumns}, {from, Replicate()});
    const Shape local = from.is_partial()  ? Shape{kRows, kColumns}
                        : from == Shard(0) ? Shape{kRows / mesh.size("a"), kColumns}
                                           : Shape{kRows, kColumns / mesh.size("a")};
    const DTensor t(uneven_values(local[0], local[1], mesh.coordinate("a")), layout, mesh);
    const int64_t before = world.counters().bytes_read_in_place;
    moved.values.push_back(values(redistribute(t, {to, Replicate()})));
    moved.in_place.push_back(world.counters().bytes_read_in_place - before);
  }
  return moved;
}

// Tensors of the Context's allocator are read where they lie, also by groups of the world; the bits
// are those that tensors of the heap give.
void read_in_place(comm::Comm& world) {
  const DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
  const Moved moved = move_all(world, mesh);
  constexpr int64_t kHalf = 1024 * 1024 * 4 / 2;
  expect(moved.in_place == std::vector<int64_t>({kHalf, kHalf / 2, kHalf / 2, 2 * kHalf, kHalf}),
         "what other ranks hold is read in place");
  const ScopedSlot<LargeBlocks> heap({});
  const ScopedSlot<CurrentAllocator> fresh({make_heap_allocator()});
  const Moved plain = move_all(world, mesh);
  expect(plain.in_place == std::vector<int64_t>(5, 0), "the heap is not read in place");
  for (size_t i = 0; i < plain.values.size(); ++i) {
    const Floats& want = plain.values[i];
    expect(moved.values[i].size() == want.size() && !want.empty() &&
               std::memcmp(moved.values[i].data(), want.data(), 4 * want.size()) == 0,
           "the same bits");
  }
}

// Mappings of shared memory, and open descriptors.
int64_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t n = 0;
  for (std::string line; std::getline(maps, line);) {
    n += line.find("memfd:dtensor") != std::string::npos ? 1 : 0;
  }
  return n;
}

int64_t descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// A tensor outlives its world, and what it keeps goes with it.
void outlive_the_world(Tensor kept, int64_t descriptors_before) {
  Allocator& allocator = *Context::current().slot<CurrentAllocator>().allocator;
  expect(shared_mappings() == 1, "the memory of this rank is kept, that of the others is not");
  expect(kept.to_vector<float>() == Floats(1 << 20, 3), "its values are there");
  {
    const Tensor later = Tensor::full({1 << 20}, 1);
    expect(shared_mappings() == 1, "nothing more comes from there");
  }
  kept = Tensor();
  allocator.reset_peak();
  expect(shared_mappings() == 0, "no mapping is left");
  expect(descriptors() == descriptors_before, "no descriptor is left");
}

int run() {
  comm::gloo::register_backend();
  const int64_t descriptors_before = descriptors();
  auto world = comm::from_environment();
  move_to_another_mesh(*world);
  keep_minus_zero(*world);
  send_the_least(*world);
  read_in_place(*world);
  Tensor kept = Tensor::full({1 << 20}, 3);
  world->shutdown();
  world.reset();
  outlive_the_world(std::move(kept), descriptors_before);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dtensor

int main() {
  try {
    return dtensor::run();
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

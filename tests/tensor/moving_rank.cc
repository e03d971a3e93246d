// One rank of processes_test: moves tensors in a world of processes, and exits with 1 where a value
// or a number of bytes is not what it should be.

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

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

int run() {
  comm::gloo::register_backend();
  const auto world = comm::from_environment();
  move_to_another_mesh(*world);
  keep_minus_zero(*world);
  send_the_least(*world);
  world->shutdown();
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

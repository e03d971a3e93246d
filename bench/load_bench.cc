// Loading a checkpoint, beside a raw read of the same bytes, on two ranks (threads).
//   bazel run //bench:load_bench
// "warm" reads from the page cache; "cold" drops the files from it first, as far as the file system
// obliges. The directory is TEST_TMPDIR or /tmp.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/checkpoint/load.h"
#include "dtensor/checkpoint/save.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

constexpr int kRanks = 2;
constexpr int kLargeTensors = 141;  // of 4 MiB: 564 MiB
constexpr int kSmallTensors = 5000;

std::string base_directory() {
  const char* base = getenv("TEST_TMPDIR");
  return std::string(base != nullptr ? base : "/tmp") + "/dtensor-load-bench";
}

void add_tensors(testing::Bag& bag, const DeviceMesh& mesh, bool small, int dim) {
  const Shape shape = small ? Shape{8, 8} : Shape{1024, 1024};
  const Tensor whole = Tensor::full(shape, 1);
  for (int i = 0; i < (small ? kSmallTensors : kLargeTensors); ++i) {
    bag.add("layers." + std::to_string(i) + ".weight", distribute(whole, mesh, {Shard(dim)}));
  }
}

// Saved once for all benchmarks, cut along dim 0.
const std::string& run_directory(bool small) {
  static const std::string large_run = base_directory() + "/large";
  static const std::string small_run = base_directory() + "/small";
  static bool made[2] = {};
  const std::string& run = small ? small_run : large_run;
  if (!made[small ? 1 : 0]) {
    std::filesystem::remove_all(run);
    testing::run_ranks(kRanks, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", kRanks}});
      testing::Bag bag;
      add_tensors(bag, mesh, small, 0);
      checkpoint::save(run, 1, {.model = bag});
    });
    made[small ? 1 : 0] = true;
  }
  return run;
}

std::vector<std::string> data_files(const std::string& run) {
  std::vector<std::string> files;
  for (const auto& e : std::filesystem::recursive_directory_iterator(run)) {
    if (e.path().extension() == ".safetensors") files.push_back(e.path());
  }
  return files;
}

void drop_from_cache(const std::string& run) {
  for (const std::string& path : data_files(run)) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void raw_read(benchmark::State& state) {
  const std::string& run = run_directory(false);
  const auto files = data_files(run);
  std::vector<std::vector<char>> memory;
  for (const auto& f : files) memory.emplace_back(std::filesystem::file_size(f), 1);
  for (auto _ : state) {
    if (state.range(0) != 0) drop_from_cache(run);
    state.SetIterationTime(seconds_of([&] {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < files.size(); ++i) {
        threads.emplace_back([&, i] {
          const int fd = open(files[i].c_str(), O_RDONLY | O_CLOEXEC);
          constexpr size_t kAtOnce = 8 << 20;
          for (size_t at = 0; at < memory[i].size(); at += kAtOnce) {
            const size_t size = std::min(kAtOnce, memory[i].size() - at);
            if (pread(fd, memory[i].data() + at, size, static_cast<off_t>(at)) < 0) abort();
          }
          close(fd);
        });
      }
      for (std::thread& t : threads) t.join();
    }));
  }
}

void load(benchmark::State& state, bool small, int dim, checkpoint::LoadOptions options = {}) {
  const std::string& run = run_directory(small);
  double elapsed = 0;
  testing::run_ranks(kRanks, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", kRanks}});
    testing::Bag bag;
    add_tensors(bag, mesh, small, dim);
    const auto once = [&] {
      if (comm.rank() == 0 && state.range(0) != 0) drop_from_cache(run);
      comm.barrier().wait();
      elapsed = seconds_of([&] {
        checkpoint::load(run, {.model = bag}, options);
        comm.barrier().wait();
      });
    };
    if (comm.rank() != 0) {
      int64_t go = 1;
      const comm::Buffer buffer{&go, 1, DType::kInt64};
      while (comm.broadcast(buffer, 0).wait(), go == 1) once();
      return;
    }
    int64_t go = 1;
    const comm::Buffer buffer{&go, 1, DType::kInt64};
    for (auto _ : state) {
      comm.broadcast(buffer, 0).wait();
      once();
      state.SetIterationTime(elapsed);
    }
    go = 0;
    comm.broadcast(buffer, 0).wait();
  });
}

void load_same(benchmark::State& state) { load(state, false, 0); }
void load_other(benchmark::State& state) { load(state, false, 1); }
void load_small(benchmark::State& state) { load(state, true, 0); }

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  using namespace dtensor;  // NOLINT(google-build-using-namespace)
  // The argument: 0 warm, 1 cold.
  for (const auto& [name, f] : std::vector<std::pair<const char*, void (*)(benchmark::State&)>>{
           {"raw_read", raw_read},
           {"load_same_cut", load_same},
           {"load_other_cut", load_other},
           {"load_5000_tensors_of_256_bytes", load_small}}) {
    benchmark::RegisterBenchmark(name, f)->ArgName("cold")->Arg(0)->Arg(1)->UseManualTime()->Unit(
        benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all(base_directory());
  return 0;
}

// One rank of shared_load_processes_test: saves in a world of processes on one host, and loads with
// and without sharing what is read. Exits with 1 where a value is wrong, or where the ranks did not
// read what they should have. What is read is counted at the system's pread, not by the library:
// this binary's own stands before the system's.

#undef _FORTIFY_SOURCE  // its pread is inline
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"

namespace {

std::atomic<int64_t> bytes_of_preads = 0;  // of blocks; headers and records are read in less

}  // namespace

extern "C" ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  static const auto system = reinterpret_cast<decltype(&pread)>(dlsym(RTLD_NEXT, "pread"));
  const ssize_t got = system(fd, into, size, offset);
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  const bool is_data =
      length > 0 && std::string_view(path, static_cast<size_t>(length)).ends_with(".safetensors");
  if (is_data && got > 0 && size >= 1000) bytes_of_preads += got;
  return got;
}

namespace dtensor {
namespace {

constexpr int64_t kBlock = 1 << 20;

int failures = 0;

void expect_equal(int64_t found, int64_t want, const std::string& what) {
  if (found == want) return;
  ++failures;
  std::printf("%s: %lld, not %lld\n", what.c_str(), static_cast<long long>(found),
              static_cast<long long>(want));
}

int64_t sum(comm::Comm& world, int64_t value) {
  const comm::Buffer buffer{&value, 1, DType::kInt64};
  world.all_reduce(buffer, buffer, comm::ReduceOp::kSum).wait();
  return value;
}

// What all ranks together read.
int64_t load_all(comm::Comm& world, const std::string& run, checkpoint::Reading reading,
                 const std::string& host) {
  const DeviceMesh mesh(world, {{"x", world.size()}});
  testing::Bag bag;
  const auto w = bag.add("w", distribute(Tensor::zeros({3000, 1000}), mesh, {Replicate()}));
  checkpoint::LoadReport report;
  bytes_of_preads = 0;
  checkpoint::load(run, {.model = bag}, {.reading = reading, .host = host, .report = &report});
  expect_equal(bytes_of_preads, report.bytes_read, "bytes of the report");
  const Tensor& local = w.value().local_tensor();
  int64_t wrong = 0;
  for (int64_t i = 0; i < local.numel(); ++i) {
    wrong += local.data<float>()[i] == static_cast<float>(i) ? 0 : 1;
  }
  expect_equal(wrong, 0, "wrong elements");
  return sum(world, report.bytes_read);
}

int run(const std::string& dir) {
  comm::gloo::register_backend();
  const auto world = comm::from_environment();
  {
    const DeviceMesh mesh(*world, {{"x", world->size()}});
    testing::Bag bag;
    bag.add("w", distribute(Tensor::arange(3'000'000).view({3000, 1000}), mesh, {Shard(0)}));
    checkpoint::save(dir, 1, {.model = bag});
  }
  world->barrier().wait();
  int64_t bytes = 0;
  int64_t files = 0;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir)) {
    if (e.path().extension() != ".safetensors") continue;
    bytes += static_cast<int64_t>(e.file_size());
    ++files;
  }
  expect_equal(files, world->size(), "files");
  const int64_t headers = world->size() * files * kBlock;  // every rank looks at each
  using checkpoint::Reading;
  expect_equal(load_all(*world, dir, Reading::kByEachRank, ""), world->size() * bytes + headers,
               "read by each rank");
  // The ranks find out by the machine's name that they are on one host.
  expect_equal(load_all(*world, dir, Reading::kOncePerHost, ""), bytes + headers,
               "read once per host");
  expect_equal(load_all(*world, dir, Reading::kOncePerHost, world->rank() < 2 ? "a" : "b"),
               2 * bytes + headers, "read once by each of two hosts");
  world->barrier().wait();
  world->shutdown();
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  try {
    return argc == 2 ? dtensor::run(argv[1]) : 2;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

// A checkpoint of very many chunks: the time and memory to put its records together, to find the
// chunks in the files, and to plan a load of all of it on one rank and on one of eight.
//   bazel run //bench:chunks_bench -- [RANKS [TENSORS]]      1000 and 1000 where not given
// The last line is JSON. Every rank has one element of every tensor. The files are made in
// TEST_TMPDIR or /tmp first.

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/crc32c.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/record.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"

namespace dtensor::checkpoint {
namespace {

// By hand and without fsync: what is measured is reading.
void write_file(const std::string& path, const std::string& bytes) {
  FILE* file = fopen(path.c_str(), "wb");
  if (file == nullptr || fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) abort();
  fclose(file);
}

void make_attempt(const std::string& dir, const std::string& id, int ranks, int tensors) {
  std::filesystem::create_directories(dir);
  for (int r = 0; r < ranks; ++r) {
    Record record;
    record.id = id;
    record.step = 1;
    record.rank = r;
    record.world = ranks;
    std::vector<safetensors::Item> items;
    for (int t = 0; t < tensors; ++t) {
      const std::string name = "model.layers." + std::to_string(t) + ".weight";
      items.push_back({name, DType::kUInt8, {1}, nullptr});
      record.tensors.push_back({name, DType::kUInt8, {ranks}, {{0, name, {{r}, {1}}}}});
    }
    const std::string bytes =
        safetensors::header(safetensors::entries_of(items)) + std::string(items.size(), 'x');
    BlockCrcs crcs;
    crcs.update(bytes_of(bytes));
    record.files = {{data_file_name(r), crcs.bytes(), crcs.crcs()}};
    write_file(dir + "/" + data_file_name(r), bytes);
    write_file(dir + "/" + record_name(r), to_text(record));
  }
}

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const Attempt& attempt, int ranks) {
  const std::clock_t cpu = std::clock();
  Contents contents;
  const double merged = seconds_of([&] {
    Examined examined = examine(attempt);
    if (!examined.is_complete()) abort();
    contents = std::move(examined.contents);
  });
  const double found = seconds_of([&] { locate_chunks(contents); });
  int64_t chunks = 0;
  for (const auto& [name, tensor] : contents.tensors) chunks += std::ssize(tensor.chunks);
  fmt::print("{} chunks: records merged and checked in {:.2f} s, chunks found in {:.2f} s\n",
             chunks, merged, found);
  std::string plans;
  for (const int world : {1, 8}) {
    int64_t parts = 0;
    const double planned = seconds_of([&] {
      for (const auto& [name, tensor] : contents.tensors) {
        for_each_part(tensor, {{0}, {ranks / world}},
                      [&](const StoredChunk&, const Box&) { ++parts; });
      }
    });
    fmt::print("plan of one of {} ranks: {} parts in {:.2f} s\n", world, parts, planned);
    plans += fmt::format(",\"plan_{}\":{}", world, planned);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  // Of the processor as well: the machine may be shared.
  fmt::print("peak memory {:.0f} MiB, {:.2f} s of the processor\n",
             static_cast<double>(usage.ru_maxrss) / 1024,
             static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
  fmt::print("{{\"chunks\":{},\"merged\":{},\"found\":{}{},\"peak_bytes\":{}}}\n", chunks, merged,
             found, plans, int64_t{usage.ru_maxrss} * 1024);
}

}  // namespace
}  // namespace dtensor::checkpoint

int main(int argc, char** argv) {
  using namespace dtensor::checkpoint;  // NOLINT(google-build-using-namespace)
  const int ranks = argc > 1 ? atoi(argv[1]) : 1000;
  const int tensors = argc > 2 ? atoi(argv[2]) : 1000;
  const char* base = getenv("TEST_TMPDIR");
  const std::string run = std::string(base != nullptr ? base : "/tmp") + "/dtensor-chunks-bench";
  const std::string id = "20260301T101500Z-1f2e3d4c-g0-s0";
  const auto attempt = attempt_of(run, attempt_name(1, id));
  std::filesystem::remove_all(run);
  // Apart, so that its memory does not count.
  const pid_t child = fork();
  if (child == 0) {
    make_attempt(attempt->path, id, ranks, tensors);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return 1;
  measure(*attempt, ranks);
  std::filesystem::remove_all(run);
  return 0;
}

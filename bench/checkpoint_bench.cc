// Saving and loading 564 MiB and 5,000 tensors of 256 bytes on two ranks (threads), beside writing
// and reading the same bytes plainly, in one run. Prints one JSON object; bench/checkpoint runs it.
//   bazel run -c opt //bench:checkpoint_bench -- DIRECTORY

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/nn/module.h"
#include "dtensor/tensor/distribute.h"

namespace dtensor {
namespace {

constexpr int kRanks = 2;
constexpr int kRepeats = 5;
constexpr size_t kRawWriteBytes = size_t{64} << 20;

class Tensors : public nn::Module {
 public:
  std::string_view kind() const override { return "Tensors"; }
  void add(const std::string& name, const DTensor& value) {
    const nn::Parameter p = add_parameter(name, value.shape());
    p.value().set_requires_grad(false);
    p.value().replace(value);
  }

 protected:
  DTensor forward(const nn::Inputs& inputs) override { return inputs.at(0); }
};

DTensor made(const DeviceMesh& mesh, const Shape& shape, Placement placement, double value) {
  const Layout layout(mesh.layout(), shape, {placement});
  const Tensor local = Tensor::full(layout.box_of(mesh.rank()).size, value);
  return DTensor(local, layout, mesh);
}

void add_large(Tensors& to, const DeviceMesh& mesh, Placement placement, double value) {
  for (int i = 0; i < 24; ++i) {
    for (int j = 0; j < 6; ++j) {
      to.add(fmt::format("layer{}.w{}", i, j), made(mesh, {1024, 1000 + j}, placement, value + j));
    }
  }
}

void add_small(Tensors& to, const DeviceMesh& mesh, double value) {
  for (int i = 0; i < 5000; ++i) {
    to.add(fmt::format("t{}", i), made(mesh, {8, 8}, Shard(0), value));
  }
}

void check(bool ok, const std::string& what) {
  if (!ok) throw Error("checkpoint_bench: " + what);
}

class Rank {
 public:
  Rank(comm::Comm& comm, std::string directory)
      : comm_(comm), mesh_(comm, {{"x", kRanks}}), directory_(std::move(directory)) {}

  // The median of kRepeats.
  std::map<std::string, double> run() {
    Tensors large;
    add_large(large, mesh_, Shard(0), 1);
    const std::vector<std::byte> bytes = bytes_of(large);
    std::vector<std::byte> copy(bytes.size());
    measure(
        "raw_write", [&] { raw_write(bytes); }, [&] { start_afresh("large"); });
    measure(
        "save", [&] { checkpoint::save(name("large"), 1, {.model = large}); },
        [&] { start_afresh("large"); });
    measure("raw_read", [&] { raw_read(copy); });
    check(copy == bytes, "read other bytes than written");
    Tensors rows;
    add_large(rows, mesh_, Shard(0), 0);
    measure("load", [&] { checkpoint::load(name("large"), {.model = rows}); });
    Tensors columns;
    add_large(columns, mesh_, Shard(1), 0);
    measure("reshard", [&] { checkpoint::load(name("large"), {.model = columns}); });
    check(columns.parameters()[5].value().local_tensor().data<float>()[7] == 6, "loaded wrongly");
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    measure_alone("memcpy", [&] { std::memcpy(copy.data(), bytes.data(), bytes.size()); });
    checkpoint::save_async(name("async"), 0, {.model = large});
    int64_t step = 0;
    measure_alone(
        "async_pause", [&] { checkpoint::save_async(name("async"), ++step, {.model = large}); },
        [&] {
          checkpoint::wait_for_save();
          start_afresh("async");
        });
    checkpoint::wait_for_save();
    Tensors small;
    add_small(small, mesh_, 1);
    measure(
        "small_save", [&] { checkpoint::save(name("small"), 1, {.model = small}); },
        [&] { start_afresh("small"); });
    measure("small_load", [&] { checkpoint::load(name("small"), {.model = small}); });
    return times_;
  }

 private:
  std::string name(const std::string& part) const { return directory_ + "/" + part; }

  // Removes what the last call wrote, and lets the disk come to rest.
  void start_afresh(const std::string& part) {
    comm_.barrier().wait();
    if (comm_.rank() != 0) return;
    std::filesystem::remove_all(name(part));
    sync();
  }

  using Action = std::function<void()>;

  // Seconds until both ranks are done.
  void measure(
      const std::string& what, const Action& f, const Action& before = [] {}) {
    measure_alone(
        what,
        [&] {
          f();
          comm_.barrier().wait();
        },
        before);
  }

  // Seconds that rank 0 is in it.
  void measure_alone(
      const std::string& what, const Action& f, const Action& before = [] {}) {
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) {
      before();
      comm_.barrier().wait();
      const auto start = std::chrono::steady_clock::now();
      f();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds.push_back(took.count());
    }
    std::ranges::sort(seconds);
    times_[what] = seconds[kRepeats / 2];
  }

  static std::vector<std::byte> bytes_of(Tensors& tensors) {
    std::vector<std::byte> bytes;
    for (const nn::Parameter& p : tensors.parameters()) {
      const Tensor& t = p.value().local_tensor();
      const auto* begin = static_cast<const std::byte*>(t.raw());
      bytes.insert(bytes.end(), begin, begin + t.size_bytes());
    }
    return bytes;
  }

  std::string raw_name() const { return name(fmt::format("raw{}", comm_.rank())); }

  void raw_write(const std::vector<std::byte>& bytes) const {
    unlink(raw_name().c_str());
    const int fd = open(raw_name().c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t put = write(fd, &bytes[at], std::min(kRawWriteBytes, bytes.size() - at));
      check(put > 0, "cannot write " + raw_name());
      at += static_cast<size_t>(put);
    }
    check(fsync(fd) == 0 && close(fd) == 0, "cannot sync " + raw_name());
  }

  void raw_read(std::vector<std::byte>& into) const {
    const int fd = open(raw_name().c_str(), O_RDONLY);
    for (size_t at = 0; at < into.size();) {
      const ssize_t got = read(fd, &into[at], into.size() - at);
      check(got > 0, "cannot read " + raw_name());
      at += static_cast<size_t>(got);
    }
    close(fd);
  }

  comm::Comm& comm_;
  DeviceMesh mesh_;
  std::string directory_;
  std::map<std::string, double> times_;
};

int run(const std::string& directory) {
  std::filesystem::create_directories(directory);
  auto world = comm::local::make_world(kRanks);
  std::vector<std::thread> threads;
  std::map<std::string, double> times;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Context context;
      const ContextScope scope(context);
      auto mine = Rank(*world[static_cast<size_t>(r)], directory).run();
      if (r == 0) times = std::move(mine);
    });
  }
  for (std::thread& t : threads) t.join();
  std::string text;
  for (const auto& [what, seconds] : times) {
    text += fmt::format("{}\"{}\": {:.5f}", text.empty() ? "{" : ", ", what, seconds);
  }
  fmt::print("{}}}\n", text);
  return 0;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: checkpoint_bench DIRECTORY\n");
    return 2;
  }
  try {
    return dtensor::run(argv[1]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}

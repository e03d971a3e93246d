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
constexpr int kIoThreads = 1;  // a rank has one of the two cores
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

  // Medians of kRepeats.
  std::map<std::string, double> run() {
    Tensors large;
    add_large(large, mesh_, Shard(0), 1);
    const std::vector<std::byte> bytes = bytes_of(large);
    std::vector<std::byte> copy = bytes;
    Tensors rows;
    add_large(rows, mesh_, Shard(0), 0);
    Tensors columns;
    add_large(columns, mesh_, Shard(1), 0);
    Tensors small;
    add_small(small, mesh_, 1);
    checkpoint::save_async(name("large"), 0, {.model = large});  // makes the buffer
    checkpoint::wait_for_save();
    // What is compared is done in turn: the disk and the other programs of the machine vary.
    for (int i = 0; i < kRepeats; ++i) {
      start_afresh();
      together("raw_write", [&] { raw_write(bytes); });
      start_afresh();
      together("save", [&] { checkpoint::save(name("large"), 1, {.model = large}); });
      together("load", [&] {
        checkpoint::load(name("large"), {.model = rows}, {.io_threads = kIoThreads});
      });
      together("reshard", [&] {
        checkpoint::load(name("large"), {.model = columns}, {.io_threads = kIoThreads});
      });
      start_afresh();
      raw_write(bytes);
      together("raw_read", [&] { raw_read(copy); });
      alone("memcpy", [&] { std::memcpy(copy.data(), bytes.data(), bytes.size()); });
      start_afresh();
      alone("async_pause", [&] { checkpoint::save_async(name("large"), 1, {.model = large}); });
      checkpoint::wait_for_save();
      start_afresh();
      together("small_save", [&] { checkpoint::save(name("small"), 1, {.model = small}); });
      together("small_load", [&] {
        checkpoint::load(name("small"), {.model = small}, {.io_threads = kIoThreads});
      });
    }
    check(copy == bytes, "read other bytes than written");
    check(columns.parameters()[5].value().local_tensor().data<float>()[7] == 6, "loaded wrongly");
    std::map<std::string, double> medians;
    for (auto& [what, seconds] : seconds_) {
      std::ranges::sort(seconds);
      medians[what] = seconds[seconds.size() / 2];
    }
    return medians;
  }

 private:
  std::string name(const std::string& part) const { return directory_ + "/" + part; }

  // Removes what was written before, and lets the disk come to rest.
  void start_afresh() {
    comm_.barrier().wait();
    if (comm_.rank() == 0) {
      std::filesystem::remove_all(directory_);
      std::filesystem::create_directories(directory_);
      sync();
    }
    comm_.barrier().wait();
  }

  using Action = std::function<void()>;

  // Until both ranks are done.
  void together(const std::string& what, const Action& f) {
    alone(what, [&] {
      f();
      comm_.barrier().wait();
    });
  }

  // Until this rank is.
  void alone(const std::string& what, const Action& f) {
    comm_.barrier().wait();
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_[what].push_back(took.count());
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
  std::map<std::string, std::vector<double>> seconds_;
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

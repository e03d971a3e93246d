#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/launch.h"
#include "dtensor/comm/local/local.h"
#include "dtensor/tools/doctor_checks.h"

namespace dtensor::tools {
namespace {

namespace fs = std::filesystem;

struct Known {
  std::string_view scheme;
  bool gpu;              // needs one
  std::string_view get;  // how a build comes to have it
};
constexpr Known kBackends[] = {
    {"local", false, ""},
    {"gloo", false, "apt-get install libgloo-dev, and build again"},
    {"ucx", false, "apt-get install libucx-dev, and build again"},
    {"nccl", true, "install CUDA and NCCL (libnccl-dev), and build with --config=cuda"},
    {"hybrid", true, "install CUDA and NCCL (libnccl-dev), and build with --config=cuda"},
};
constexpr std::chrono::seconds kPatience{20};

// Throws where the world does not compute. One that takes no memory of the CPU connects its devices
// and moves nothing.
void compute(comm::Comm& world) {
  if (world.capabilities().support(comm::OpKind::kAllReduce, DType::kInt64, comm::ReduceOp::kSum,
                                   DeviceType::kCpu) == comm::Support::kNone) {
    world.barrier().wait();
    return world.shutdown();
  }
  int64_t value = world.rank() + 1;
  const comm::Buffer buffer{&value, 1, DType::kInt64};
  world.all_reduce(buffer, buffer, comm::ReduceOp::kSum).wait();
  const int64_t want = int64_t{world.size()} * (world.size() + 1) / 2;
  if (value != want) throw Error(fmt::format("the sum of the ranks is {}, not {}", value, want));
  world.shutdown();
}

void check_threads(Check& check) {
  auto world = comm::local::make_world(2);
  std::vector<std::string> errors(world.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < world.size(); ++r) {
    threads.emplace_back([&, r] {
      Context context;
      const ContextScope scope(context);
      try {
        compute(*world[r]);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  check.works = errors[0].empty() && errors[1].empty();
  check.why = check.works ? "two ranks as threads" : errors[0] + errors[1];
}

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void check_processes(Check& check, const std::string& program, int ranks) {
  std::string directory = (fs::temp_directory_path() / "dtensor-doctor.XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) throw Error("cannot make " + directory);
  comm::LaunchOptions o;
  o.argv = {"sh", "-c", "exec \"$0\" doctor --probe >\"$1/$DTENSOR_RANK\" 2>&1", program,
            directory};
  o.size = ranks;
  o.comm = check.name;
  o.timeout = kPatience;
  const int status = comm::launch_local(o);
  check.works = status == 0;
  check.why = first_line(fs::path(directory) / "0");
  if (!check.works && check.why.empty()) check.why = first_line(fs::path(directory) / "1");
  if (!check.works && check.why.empty()) {
    check.why = status == 124
                    ? fmt::format("the processes did not finish in {} s", kPatience.count())
                    : fmt::format("a process ended with status {}", status);
  }
  if (!check.works) {
    check.fix = "see DTENSOR_LOG=debug; DTENSOR_INTERFACE or DTENSOR_ADDRESS choose an address";
  }
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

}  // namespace

std::vector<Check> check_backends(const std::string& program) {
  comm::register_all();
  const int gpus = count_gpus();
  std::vector<Check> out;
  for (const Known& known : kBackends) {
    Check& check = out.emplace_back();
    check.kind = "backend";
    check.name = known.scheme;
    try {
      comm::check_backend(known.scheme);
    } catch (const ArgumentError&) {
      check.why = "this build does not have it";
      check.fix = known.get;
      continue;
    }
    if (known.gpu && gpus == 0) {
      check.why = "it needs a GPU, and this process sees none";
      check.fix = "run on a machine with an NVIDIA GPU and its driver";
      continue;
    }
    check.wanted = true;
    const int ranks = known.gpu ? std::min(gpus, 2) : 2;
    known.scheme == "local" ? check_threads(check) : check_processes(check, program, ranks);
    // What stands for a backend whose library was missing when this was built says so itself.
    if (!check.works && check.why.find("is not in this build") != std::string::npos) {
      check.wanted = false;
      check.fix = known.get;
    }
  }
  return out;
}

int probe_backend() {
  try {
    comm::register_all();
    const auto world = comm::from_environment();
    compute(*world);
    const comm::Capabilities& c = world->capabilities();
    std::printf("%s as processes, %s %s\n", world->size() == 1 ? "one rank" : "two ranks",
                c.backend.c_str(), c.version.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

}  // namespace dtensor::tools

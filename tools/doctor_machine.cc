#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/socket.h"
#include "dtensor/tools/doctor_checks.h"

namespace dtensor::tools {
namespace {

using comm::internal::Fd;
using comm::internal::HostPort;

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::chrono::seconds kPatience{3};

std::set<std::string> interfaces() {
  ifaddrs* list = nullptr;
  std::set<std::string> out;
  if (getifaddrs(&list) != 0) return out;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const bool has_address = i->ifa_addr != nullptr && (i->ifa_addr->sa_family == AF_INET ||
                                                        i->ifa_addr->sa_family == AF_INET6);
    if (has_address && (i->ifa_flags & IFF_UP) != 0) out.insert(i->ifa_name);
  }
  freeifaddrs(list);
  return out;
}

// Listens at the address and connects to itself.
Check check_address(const std::string& interface) {
  Check check{.kind = "address", .name = interface};
  try {
    const std::string address = comm::internal::address_of_interface(interface);
    const bool loopback = comm::internal::is_loopback(address);
    check.name = fmt::format("{} ({})", address, interface);
    check.wanted = loopback;
    const Fd listener = comm::internal::listen_on(address, 0);
    comm::internal::connect_to(comm::internal::local_address(listener), Deadline::after(kPatience));
    check.works = true;
    check.why = loopback ? "for the ranks of this machine only" : "ranks can be reached here";
  } catch (const Error& e) {
    check.why = e.what();
    check.fix = fmt::format("choose another by DTENSOR_INTERFACE or interface= in the URL");
  }
  return check;
}

// What CUDA_VISIBLE_DEVICES leaves of so many: it lists numbers or names, and what follows the
// first that is neither does not count (CUDA C++ Programming Guide, environment variables). Numbers
// are read as by strtol, so "0, 1" are two; that is PyTorch's account (torch/cuda/__init__.py).
int visible_of(int present) {
  const char* variable = getenv("CUDA_VISIBLE_DEVICES");
  if (variable == nullptr) return present;
  int count = 0;
  std::istringstream list(variable);
  for (std::string entry; std::getline(list, entry, ',');) {
    const bool named = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    char* end = nullptr;
    const int64_t number = std::strtol(entry.c_str(), &end, 10);
    const bool is_number = end != entry.c_str();
    if (!named && !(is_number && number >= 0 && number < present)) break;
    ++count;
  }
  return std::min(count, present);
}

}  // namespace

int count_gpus(const std::string& devices) {
  constexpr std::string_view kBegin = "nvidia";
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(devices, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kBegin) && name.size() > kBegin.size() &&
        name.find_first_not_of("0123456789", kBegin.size()) == std::string::npos) {
      ++count;
    }
  }
  return visible_of(count);
}

std::vector<Check> check_devices() {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  Check cpu{.kind = "device", .name = "cpu", .works = true, .wanted = true};
  cpu.why = fmt::format("{} cores, {:.1f} GiB", std::thread::hardware_concurrency(), memory / kGiB);
  Check cuda{.kind = "device", .name = "cuda"};
  const bool driver = std::filesystem::exists("/dev/nvidiactl");
  const int gpus = count_gpus();
  cuda.works = driver && gpus > 0;
  cuda.why = cuda.works ? fmt::format("a driver is loaded; GPUs: {}", gpus)
             : driver   ? "a driver is loaded, and this process sees no GPU"
                        : "no NVIDIA driver: /dev/nvidiactl is not there";
  if (!cuda.works)
    cuda.fix = driver ? "give the container a GPU; see CUDA_VISIBLE_DEVICES"
                      : "on a machine with an NVIDIA GPU: apt-get install nvidia-driver";
  return {cpu, cuda};
}

std::vector<Check> check_memory() {
  constexpr size_t kBytes = 1 << 20;
  Check shared{.kind = "memory", .name = "shared between processes", .wanted = true};
  const Fd fd(memfd_create("dtensor-doctor", MFD_CLOEXEC));
  void* mapped = MAP_FAILED;
  if (fd && ftruncate(fd.get(), kBytes) == 0) {
    mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  shared.works = mapped != MAP_FAILED;
  shared.why = shared.works ? "memfd_create and mmap" : fmt::format("memfd: {}", strerror(errno));
  if (shared.works) {
    munmap(mapped, kBytes);
  } else {
    shared.fix = "allow memfd_create (a seccomp profile forbids it), or turn shared memory off";
  }
  Check posix{.kind = "memory", .name = "/dev/shm"};  // ucx only
  struct statvfs info = {};
  if (statvfs("/dev/shm", &info) == 0) {
    const double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
    posix.works = bytes >= 64.0 * 1024 * 1024;
    posix.why = fmt::format("{:.2f} GiB free", bytes / kGiB);
  } else {
    posix.why = strerror(errno);
  }
  if (!posix.works) {
    posix.fix = "mount it larger: mount -o remount,size=2G /dev/shm (docker: --shm-size=2g)";
  }
  return {shared, posix};
}

std::vector<Check> check_addresses() {
  std::vector<Check> out;
  bool outside = false;
  for (const std::string& interface : interfaces()) {
    out.push_back(check_address(interface));
    outside = outside || (out.back().works && !out.back().wanted);
  }
  if (!outside) {
    out.push_back({.kind = "address",
                   .name = "of other machines",
                   .why = "this machine has no address but loopback: others cannot reach it",
                   .fix = "give it a network interface (docker: --network=host)"});
  }
  return out;
}

Check check_peer(const std::string& peer) {
  const HostPort at = comm::internal::parse_host_port(peer);
  Check check{.kind = "peer", .name = peer, .wanted = true};
  try {
    const auto began = std::chrono::steady_clock::now();
    const Fd fd = comm::internal::connect_to(at, Deadline::after(kPatience));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    check.works = true;
    check.why = fmt::format("reached from {} in {:.1f} ms", comm::internal::local_address(fd).host,
                            took.count());
  } catch (const Error& e) {
    check.why = e.what();
    check.fix = check.why.find("resolve") != std::string::npos ? "give its numeric address"
                : check.why.find("refused") != std::string::npos
                    ? "nobody listens there: start it first, and see that it listens on this "
                      "address and not on loopback"
                    : "a firewall or a missing route may be between: open the port, or choose an "
                      "interface that leads there";
  }
  return check;
}

}  // namespace dtensor::tools

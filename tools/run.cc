#include "dtensor/tools/run.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <ostream>

#include "dtensor/base/error.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/launch.h"

namespace dtensor::tools {
namespace {

constexpr const char* kUsage =
    "usage: dtensor run -n RANKS [--comm gloo] [--plain] [--timeout SECONDS] [--json] -- PROGRAM "
    "ARGS\n"
    "  -n         how many processes\n"
    "  --comm     a backend, or a comm URL without rank and size\n"
    "  --plain    the ranks write to the terminal themselves, without [rank]\n"
    "  --timeout  end the run after so long, with status 124\n"
    "  --json     a last line {\"status\":0,\"ranks\":4}\n";
constexpr int64_t kMostRanks = 4096;
constexpr int64_t kLongestSeconds = 30 * 24 * 3600;

struct Usage {
  comm::LaunchOptions launch;
  bool json = false;
  bool help = false;
};

// ArgumentError for what cannot be read.
Usage read(std::span<const std::string> args) {
  Usage u;
  bool has_size = false;
  size_t i = 0;
  const auto value = [&](const std::string& name) -> const std::string& {
    if (i + 1 >= args.size()) throw ArgumentError(fmt::format("{} has no value", name));
    return args[++i];
  };
  for (; i < args.size() && args[i] != "--"; ++i) {
    const std::string& a = args[i];
    if (a == "-n" || a == "--ranks") {
      u.launch.size = static_cast<int>(comm::parse_integer(a, value(a), 1, kMostRanks));
      has_size = true;
    } else if (a == "--comm") {
      u.launch.comm = value(a);
    } else if (a == "--plain") {
      u.launch.output = comm::LaunchOutput::kPlain;
    } else if (a == "--timeout") {
      u.launch.timeout = std::chrono::seconds(comm::parse_integer(a, value(a), 1, kLongestSeconds));
    } else if (a == "--json") {
      u.json = true;
    } else if (a == "-h" || a == "--help") {
      u.help = true;
      return u;
    } else {
      throw ArgumentError(fmt::format("no option \"{}\"; the program stands after --", a));
    }
  }
  if (i < args.size())
    u.launch.argv.assign(args.begin() + static_cast<ptrdiff_t>(i) + 1, args.end());
  if (!has_size) throw ArgumentError("how many ranks? give -n");
  if (u.launch.argv.empty()) throw ArgumentError("which program? it stands after --");
  return u;
}

}  // namespace

int run_command(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  Usage usage;
  try {
    usage = read(args);
  } catch (const ArgumentError& e) {
    err << "dtensor run: " << e.what() << "\n" << kUsage;
    return 2;
  }
  if (usage.help) {
    out << kUsage;
    return 0;
  }
  out.flush();
  int status = 0;
  try {
    status = comm::launch_local(usage.launch);
  } catch (const Error& e) {
    err << "dtensor run: " << e.what() << "\n";
    status = 1;
  }
  if (usage.json) {
    out << fmt::format("{{\"status\":{},\"ranks\":{}}}\n", status, usage.launch.size);
  }
  return status;
}

}  // namespace dtensor::tools

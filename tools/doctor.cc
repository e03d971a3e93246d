#include "dtensor/tools/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/tools/doctor_checks.h"

namespace dtensor::tools {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void print(const std::vector<Check>& checks, std::ostream& out) {
  for (const Check& c : checks) {
    const char* mark = c.works ? "ok" : c.wanted ? "FAILS" : "no";
    out << fmt::format("{:<5}  {:<7}  {}: {}\n", mark, c.kind, c.name, c.why);
    if (!c.fix.empty()) out << fmt::format("{:<16}to fix: {}\n", "", c.fix);
  }
}

void print_json(const std::vector<Check>& checks, std::ostream& out) {
  auto array = nlohmann::ordered_json::array();
  for (const Check& c : checks) {
    array.push_back({{c.kind, c.name}, {"works", c.works}, {"why", c.why}, {"fix", c.fix}});
  }
  out << array.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace

int doctor_command(Arguments arguments, std::ostream& out, std::ostream&) {
  bool json = false;
  std::vector<std::string> peers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--help") throw HelpRequest();
    if (a == "--probe" && arguments.size() == 1) return probe_backend();
    if (a == "--json") {
      json = true;
    } else if (a == "--peers" && i + 1 < arguments.size()) {
      peers = split(arguments[++i]);
    } else if (a.starts_with("--peers=")) {
      peers = split(a.substr(sizeof("--peers=") - 1));
    } else {
      throw UsageError("\"" + a + "\" is not an option of this command");
    }
  }
  std::vector<Check> checks;
  const auto add = [&](const std::vector<Check>& more) {
    checks.insert(checks.end(), more.begin(), more.end());
  };
  try {
    for (const std::string& peer : peers) add({check_peer(peer)});
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
  add(check_backends(std::filesystem::read_symlink("/proc/self/exe").string()));
  add(check_devices());
  add(check_memory());
  add(check_addresses());
  json ? print_json(checks, out) : print(checks, out);
  return std::ranges::any_of(checks, [](const Check& c) { return c.wanted && !c.works; }) ? 1 : 0;
}

}  // namespace dtensor::tools

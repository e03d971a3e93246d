#include "dtensor/tools/comm_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "dtensor/comm/call.h"
#include "dtensor/comm/trace.h"
#include "dtensor/tools/trace_merge.h"

namespace dtensor::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

comm::Trace read_trace(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw Error(fmt::format("{} cannot be read", path.string()));
  try {
    return comm::trace_of_json(text.str());
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", path.string(), e.what()));
  }
}

std::vector<comm::Trace> read_all(const std::vector<std::string>& paths) {
  std::vector<comm::Trace> out;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      out.push_back(read_trace(path));
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".json") out.push_back(read_trace(entry.path()));
    }
  }
  if (out.empty()) throw Error(fmt::format("no trace in {}", fmt::join(paths, ", ")));
  return out;
}

std::string call_text(const comm::CallRecord& c) {
  return fmt::format("#{} {}", c.sequence, comm::describe(c.key, c.label_text()));
}

std::string place_of(const RankRow& row) {
  if (!row.traced) return "no trace";
  if (!row.at) return "no call yet";
  return fmt::format("{} {}{}", row.inside ? "in" : "after", call_text(*row.at),
                     row.differs ? " (others: another call)" : "");
}

void print(const CommTable& table, std::ostream& out) {
  out << fmt::format("{} of run {}, generation {}: {} ranks\n", table.comm, table.run_id,
                     table.generation, table.rows.size());
  if (!table.error.empty()) out << "  ended: " << table.error << "\n";
  size_t width = 2;
  for (const RankRow& row : table.rows) width = std::max(width, place_of(row).size());
  out << fmt::format("  {:>4}  {:<{}}  {:>9}  {:>9}  {}\n", "rank", "at", width, "since", "late",
                     "waits for");
  for (const RankRow& row : table.rows) {
    const std::string since = row.at ? fmt::format("{:.3f} s", row.seconds) : "-";
    out << fmt::format(
        "  {:>4}  {:<{}}  {:>9}  {:>7.3f} s  {}\n", row.rank, place_of(row), width, since,
        row.late_seconds,
        row.waits_for.empty() ? "-" : fmt::format("{}", fmt::join(row.waits_for, ", ")));
  }
}

void print(const Origin& origin, std::ostream& out) {
  if (origin.ranks.empty()) {
    out << "Nobody waits for a rank that has not come.\n";
  } else if (origin.circle) {
    out << fmt::format(
        "Ranks {} wait for each other in a circle: they make the calls of several Comms in "
        "different orders.\n",
        fmt::join(origin.ranks, " -> "));
  } else {
    out << fmt::format("The others wait for rank {}, which waits for nobody.\n",
                       fmt::join(origin.ranks, ", "));
  }
}

Json json_of(const CommTable& table) {
  auto ranks = Json::array();
  for (const RankRow& row : table.rows) {
    Json j = {{"rank", row.rank}, {"traced", row.traced}, {"inside", row.inside}};
    if (row.at) {
      j["sequence"] = row.at->sequence;
      j["call"] = comm::describe(row.at->key, row.at->label_text());
      j["state"] = name_of(row.at->state);
    }
    j["differs"] = row.differs;
    j["seconds"] = row.seconds;
    j["late_seconds"] = row.late_seconds;
    j["waits_for"] = row.waits_for;
    ranks.push_back(std::move(j));
  }
  return {{"run", table.run_id},
          {"generation", table.generation},
          {"comm", table.comm},
          {"error", table.error},
          {"ranks", std::move(ranks)}};
}

}  // namespace

int comm_trace_command(Arguments arguments, std::ostream& out, std::ostream&) {
  bool json = false;
  std::vector<std::string> paths;
  for (const std::string& argument : arguments) {
    if (argument == "--help") throw HelpRequest();
    if (argument == "--json") {
      json = true;
    } else if (argument.starts_with("--")) {
      throw UsageError("\"" + argument + "\" is not an option of this command");
    } else {
      paths.push_back(argument);
    }
  }
  if (paths.empty()) throw UsageError("which traces? name files, or their directory");
  const std::vector<CommTable> tables = merge(read_all(paths));
  const Origin origin = origin_of(tables);
  if (json) {
    auto comms = Json::array();
    for (const CommTable& table : tables) comms.push_back(json_of(table));
    const Json all = {
        {"comms", std::move(comms)}, {"waited_for", origin.ranks}, {"circle", origin.circle}};
    out << all.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    for (const CommTable& table : tables) print(table, out);
    print(origin, out);
  }
  const bool differs = std::ranges::any_of(tables, [](const CommTable& table) {
    return std::ranges::any_of(table.rows, [](const RankRow& row) { return row.differs; });
  });
  return differs || !origin.ranks.empty() ? 1 : 0;
}

}  // namespace dtensor::tools

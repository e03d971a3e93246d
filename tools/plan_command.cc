#include "dtensor/tools/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/base/dtype.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tools/options.h"

namespace dtensor::tools {
namespace {

using Json = nlohmann::ordered_json;

// What is told of a plan, in elements.
struct Report {
  int64_t total = 0;
  int64_t minimum = 0;
  Json steps = Json::array();  // with payload_bytes
  std::vector<std::string> lines;
  std::vector<BoxMove> messages;
  std::map<int, RankTraffic> ranks;
};

// Every group of a step, in the order of its first rank in the mesh.
std::vector<std::vector<int>> groups_of(const MeshLayout& mesh, const std::vector<int>& dims) {
  std::vector<std::vector<int>> groups;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    if (std::ranges::any_of(dims, [&](int m) { return at[m] != 0; })) continue;
    groups.push_back(mesh.group(at, dims));
  }
  return groups;
}

void add_step(Report& report, const ReshardStep& step, int64_t element_bytes) {
  const MeshLayout& mesh = step.from.mesh();
  std::vector<std::string> names;
  for (const int m : step.mesh_dims) names.push_back(mesh.name(m));
  Json json = {{"kind", name_of(step.kind)}, {"mesh_dims", names}};
  if (step.op) json["op"] = name_of(*step.op);
  if (step.kind != StepKind::kLocal) {
    const auto groups = groups_of(mesh, step.mesh_dims);
    json["group"] = groups.front();
    json["groups"] = groups;
  }
  json["from"] = to_string(step.from);
  json["to"] = to_string(step.to);
  json["payload_bytes"] = checked_mul(step.payload, element_bytes);
  report.steps.push_back(std::move(json));
  report.lines.push_back(fmt::format("{:<15}{:<12}{:>14} B  {} -> {}", name_of(step.kind),
                                     fmt::join(names, ","), step.payload * element_bytes,
                                     to_string(step.from.spec()), to_string(step.to.spec())));
}

Report on_one_mesh(const Layout& from, const Layout& to, int64_t element_bytes) {
  const ReshardPlan made = plan(from, to);
  Report report;
  report.total = made.payload();
  report.minimum = made.payload_minimum();
  report.messages = made.messages();
  for (const ReshardStep& step : made.steps()) add_step(report, step, element_bytes);
  const auto traffic = made.traffic();
  for (size_t i = 0; i < traffic.size(); ++i) report.ranks[from.mesh().ranks()[i]] = traffic[i];
  return report;
}

// Between two meshes: one exchange over the ranks of both, every receiver taking from itself where
// it can. Without Partial, so that each element that is lacking is sent once: the least.
Report between_meshes(const Layout& from, const Layout& to, int64_t element_bytes) {
  if (from.spec().has_partial() || to.spec().has_partial()) {
    throw PlacementError(
        "plan: a Partial tensor does not move between two meshes; plan it to R or S on its own "
        "mesh first");
  }
  Report report;
  for (const int rank : from.mesh().ranks()) report.ranks[rank] = {};
  for (const int rank : to.mesh().ranks()) report.ranks[rank] = {};
  for (const BoxMove& move : moves(tiling_of(from), tiling_of(to))) {
    if (move.src == move.dst) continue;
    report.messages.push_back(move);
    report.total += move.box.numel();
    report.ranks[move.src].sent += move.box.numel();
    report.ranks[move.dst].received += move.box.numel();
  }
  report.minimum = report.total;
  std::vector<int> group;
  for (const auto& [rank, traffic] : report.ranks) group.push_back(rank);
  report.steps.push_back({{"kind", "exchange"},
                          {"mesh_dims", Json::array()},
                          {"group", group},
                          {"groups", {group}},
                          {"from", to_string(from)},
                          {"to", to_string(to)},
                          {"payload_bytes", checked_mul(report.total, element_bytes)}});
  report.lines.push_back(fmt::format("{:<15}{:<12}{:>14} B  {} -> {}", "exchange", "two meshes",
                                     report.total * element_bytes, to_string(from), to_string(to)));
  std::ranges::sort(report.messages, [](const BoxMove& a, const BoxMove& b) {
    return std::pair(a.src, a.dst) < std::pair(b.src, b.dst);
  });
  return report;
}

std::string json_text(const Report& report, int64_t element_bytes) {
  Json messages = Json::array();
  for (const BoxMove& move : report.messages) {
    messages.push_back(
        {{"src", move.src}, {"dst", move.dst}, {"bytes", move.box.numel() * element_bytes}});
  }
  Json ranks = Json::array();
  Json sent = Json::array();
  Json received = Json::array();
  for (const auto& [rank, traffic] : report.ranks) {
    ranks.push_back(rank);
    sent.push_back(traffic.sent * element_bytes);
    received.push_back(traffic.received * element_bytes);
  }
  return Json{{"bytes_total", checked_mul(report.total, element_bytes)},
              {"bytes_minimum", report.minimum * element_bytes},
              {"steps", report.steps},
              {"messages", messages},
              {"ranks", ranks},
              {"sent", sent},
              {"received", received}}
             .dump() +
         "\n";
}

std::string table(const Report& report, int64_t element_bytes) {
  std::string text;
  for (const std::string& line : report.lines) text += line + "\n";
  if (report.lines.empty()) text += "no steps: every rank holds what it will hold\n";
  text += fmt::format("\n{:>6}{:>16}{:>16}\n", "rank", "sent B", "received B");
  for (const auto& [rank, traffic] : report.ranks) {
    text += fmt::format("{:>6}{:>16}{:>16}\n", rank, traffic.sent * element_bytes,
                        traffic.received * element_bytes);
  }
  text += fmt::format("\n{} messages of boxes, {} B in all, least possible {} B\n",
                      report.messages.size(), checked_mul(report.total, element_bytes),
                      report.minimum * element_bytes);
  return text;
}

DType read_dtype(const std::string& name) {
  try {
    return dtype_from_name(name);
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
}

}  // namespace

int plan_command(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"shape", "dtype", "from", "to"}, .switches = {"json"}});
  const Shape shape = read_shape(options.required("shape"));
  const Layout from = read_layout(options.required("from"), shape);
  const Layout to = read_layout(options.required("to"), shape);
  const int64_t element_bytes = size_of(read_dtype(options.value_or("dtype", "f32")));
  const Report report = from.mesh() == to.mesh() ? on_one_mesh(from, to, element_bytes)
                                                 : between_meshes(from, to, element_bytes);
  out << (options.has("json") ? json_text(report, element_bytes) : table(report, element_bytes));
  return 0;
}

}  // namespace dtensor::tools

#include "dtensor/tools/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/base/checked.h"
#include "dtensor/base/dtype.h"
#include "dtensor/placement/plan_cost.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tools/options.h"
#include "dtensor/tools/plan_explain.h"

namespace dtensor::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMessages = 1 << 20;  // they may be the square of the ranks
constexpr size_t kMaxTableRanks = 64;

struct Request {
  ReshardPlan plan;
  int64_t element_bytes = 1;
  CostModel model;
  int64_t wire_element_bytes = 1;
  std::optional<int> rank;  // the one that is told of

  double seconds() const { return seconds_of(plan, model); }
  int64_t bytes(int64_t elements) const { return checked_mul(elements, element_bytes); }
  std::vector<int> ranks() const { return rank ? std::vector<int>{*rank} : plan.ranks(); }
};

std::vector<std::string> names_of(const ReshardStep& step) {
  std::vector<std::string> names;
  for (const int m : step.mesh_dims) names.push_back(step.from.mesh().name(m));
  return names;
}

// Every group of a step, in the order of its first rank; of one rank: its own.
std::vector<std::vector<int>> groups_of(const Request& request, const ReshardStep& step) {
  std::vector<std::vector<int>> groups;
  const auto add = [&](int rank) {
    if (auto group = group_of(step, rank); !group.empty()) groups.push_back(std::move(group));
  };
  if (request.rank || step.is_between_meshes()) {
    add(request.rank ? *request.rank : step.ranks->front());
    return groups;
  }
  const MeshLayout& mesh = step.from.mesh();
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    const bool is_first = std::ranges::all_of(step.mesh_dims, [&](int m) { return at[m] == 0; });
    if (is_first) add(mesh.ranks()[static_cast<size_t>(i)]);
  }
  return groups;
}

Json step_json(const Request& request, const ReshardStep& step) {
  Json json = {{"kind", name_of(step.kind)}, {"mesh_dims", names_of(step)}};
  if (step.op) json["op"] = name_of(*step.op);
  if (step.kind != StepKind::kLocal) {
    const auto groups = groups_of(request, step);
    json["group"] = groups.empty() ? Json::array() : Json(groups.front());
    json["groups"] = groups;
  }
  json["from"] = to_string(step.from);
  json["to"] = to_string(step.to);
  if (step.within) json["within"] = to_string(*step.within);
  json["payload_bytes"] = request.bytes(step.payload);
  json["seconds"] = seconds_of(step, request.model);
  return json;
}

std::vector<BoxMove> messages_of(const Request& request) {
  const auto moves = request.plan.messages(request.rank, kMaxMessages);
  if (!moves) {
    throw UsageError(
        request.rank
            ? fmt::format("--json lists every message of rank {}, and there are more than {}; "
                          "without --json they are counted",
                          *request.rank, kMaxMessages)
            : fmt::format("--json lists every message, and there are more than {}; --rank R lists "
                          "those of one rank",
                          kMaxMessages));
  }
  return *moves;
}

// How many there would be, without listing them.
size_t count_messages(const Request& request) {
  size_t count = 0;
  for (const ReshardStep& step : request.plan.steps()) {
    if (step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllReduce) continue;
    for (const int rank : request.ranks()) {
      const RankStep mine = rank_step(step, rank);
      count += mine.receive.size() + (request.rank ? mine.send.size() : 0);
    }
  }
  return count;
}

std::string json_text(const Request& request) {
  const ReshardPlan& plan = request.plan;
  const std::vector<int> ranks = request.ranks();
  Json json = {{"bytes_total", request.bytes(plan.payload())}};
  if (const auto least = plan.countable_minimum()) json["bytes_minimum"] = request.bytes(*least);
  json["wire_bytes"] = checked_mul(plan.payload(), request.wire_element_bytes);
  json["seconds"] = request.seconds();
  for (const char* list : {"steps", "messages", "ranks", "sent", "received", "peak_temporary"}) {
    json[list] = Json::array();
  }
  json["ranks"] = ranks;
  for (const ReshardStep& step : plan.steps()) json["steps"].push_back(step_json(request, step));
  for (const BoxMove& move : messages_of(request)) {
    json["messages"].push_back(
        {{"src", move.src}, {"dst", move.dst}, {"bytes", request.bytes(move.box.numel())}});
  }
  for (const int rank : ranks) {
    const RankTraffic traffic = plan.traffic(rank);
    json["sent"].push_back(request.bytes(traffic.sent));
    json["received"].push_back(request.bytes(traffic.received));
    json["peak_temporary"].push_back(request.bytes(peak_temporary(plan, rank)));
  }
  return json.dump() + "\n";
}

std::string table(const Request& request) {
  const ReshardPlan& plan = request.plan;
  std::string text;
  for (const ReshardStep& step : plan.steps()) {
    const bool crosses = step.is_between_meshes();
    text += fmt::format("{:<15}{:<12}{:>14} B  {} -> {}\n", name_of(step.kind),
                        crosses ? "two meshes" : fmt::format("{}", fmt::join(names_of(step), ",")),
                        request.bytes(step.payload),
                        crosses ? to_string(step.from) : to_string(step.from.spec()),
                        crosses ? to_string(step.to) : to_string(step.to.spec()));
  }
  if (plan.steps().empty()) text += "no steps: every rank holds what it will hold\n";
  text += fmt::format("\n{:>6}{:>16}{:>16}{:>16}\n", "rank", "sent B", "received B", "temporary B");
  const std::vector<int> ranks = request.ranks();
  const size_t shown = std::min(ranks.size(), kMaxTableRanks);
  for (size_t i = 0; i < shown; ++i) {
    const RankTraffic traffic = plan.traffic(ranks[i]);
    text +=
        fmt::format("{:>6}{:>16}{:>16}{:>16}\n", ranks[i], request.bytes(traffic.sent),
                    request.bytes(traffic.received), request.bytes(peak_temporary(plan, ranks[i])));
  }
  if (shown < ranks.size()) {
    text += fmt::format("and {} more ranks; --rank R tells of one\n", ranks.size() - shown);
  }
  text += "\n";
  if (ranks.size() <= kMaxTableRanks) {
    text += fmt::format("{} messages of boxes{}, ", count_messages(request),
                        request.rank ? " of this rank" : "");
  }
  text += fmt::format("{} B in all, {}", request.bytes(plan.payload()),
                      least_text(plan, request.element_bytes));
  if (request.wire_element_bytes != request.element_bytes) {
    text +=
        fmt::format(", {} B on the wire", checked_mul(plan.payload(), request.wire_element_bytes));
  }
  text += fmt::format("; {:.3g} s by the links\n", request.seconds());
  return text;
}

DType read_dtype(const std::string& name) {
  try {
    return dtype_from_name(name);
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
}

// No Comm sums them (dtensor/comm/capabilities.h).
void check_terms(const Layout& layout, DType dtype) {
  if (dtype != DType::kBool || !layout.spec().has_partial()) return;
  if (layout.spec().partial_op() != PartialOp::kSum) return;
  throw UsageError("\"" + to_string(layout) +
                   "\": bool has no P(sum); take P(max) for any, P(min) for all, or another dtype");
}

// The number times `unit`.
double read_positive(const std::string& text, double unit, const std::string& links) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end || !(value > 0) || !std::isnormal(value * unit)) {
    throw UsageError(
        fmt::format("--links \"{}\": \"{}\" is no positive number of a usual size", links, text));
  }
  return value * unit;
}

// "dp=25:5,between=1:20": GB/s and microseconds of a mesh dim of `from`, and between two meshes
// where no mesh dim has that name.
Topology read_links(const std::string& text, const MeshLayout& mesh) {
  Topology topology;
  std::vector<std::string> given;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t sign = part.find('=');
    const size_t colon = part.find(':');
    if (sign == std::string::npos || colon == std::string::npos || colon < sign) {
      throw UsageError(
          fmt::format("--links \"{}\": \"{}\" is not MESH DIM=GB/s:MICROSECONDS", text, part));
    }
    const std::string name = part.substr(0, sign);
    if (std::ranges::find(given, name) != given.end()) {
      throw UsageError(fmt::format("--links \"{}\": \"{}\" is given twice", text, name));
    }
    given.push_back(name);
    const Link link{read_positive(part.substr(sign + 1, colon - sign - 1), 1e9, text),
                    read_positive(part.substr(colon + 1), 1e-6, text)};
    int m = 0;
    while (m < mesh.ndim() && mesh.name(m) != name) ++m;
    if (m < mesh.ndim()) {
      topology.mesh_dims[static_cast<size_t>(m)] = link;
    } else if (name == "between") {
      topology.between_meshes = link;
    } else {
      throw UsageError(fmt::format("--links \"{}\": the mesh {} has no dim \"{}\"", text,
                                   to_string(mesh), name));
    }
  }
  return topology;
}

}  // namespace

int plan_command(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"shape", "dtype", "wire-dtype", "from", "to", "links", "rank"},
                         .switches = {"json", "explain"}});
  const Shape shape = read_shape(options.required("shape"));
  const Layout from = read_layout(options.required("from"), shape);
  const Layout to = read_layout(options.required("to"), shape);
  const DType dtype = read_dtype(options.value_or("dtype", "f32"));
  check_terms(from, dtype);
  check_terms(to, dtype);
  CostModel model{.element_bytes = size_of(dtype)};
  const bool by_time = options.has("links");
  if (by_time) model.topology = read_links(options.required("links"), from.mesh());
  Request request{by_time ? plan(from, to, model) : plan(from, to),
                  size_of(dtype),
                  model,
                  size_of(read_dtype(options.value_or("wire-dtype", name_of(dtype)))),
                  {}};
  if (!std::isfinite(request.seconds())) {
    throw UsageError("--links: this plan takes longer on them than a number can tell");
  }
  if (options.has("explain")) {
    if (options.has("json") || options.has("rank")) {
      throw UsageError("--explain is for people: it goes with neither --json nor --rank");
    }
    out << explain(request.plan, dtype, model);
    return 0;
  }
  if (options.has("rank")) {
    const int rank = read_rank(options.required("rank"));
    if (!from.mesh().contains(rank) && !to.mesh().contains(rank)) {
      throw UsageError(fmt::format("rank {} is in neither mesh", rank));
    }
    request.rank = rank;
  }
  out << (options.has("json") ? json_text(request) : table(request));
  return 0;
}

}  // namespace dtensor::tools

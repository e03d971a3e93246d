#include "dtensor/comm/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "dtensor/base/error.h"
#include "dtensor/comm/hash.h"

namespace dtensor::comm {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kOps = static_cast<int>(OpKind::kShutdown) + 1;
constexpr int kReductions = static_cast<int>(ReduceOp::kProd) + 1;
constexpr int kStates = static_cast<int>(CallState::kFailed) + 1;

// The number of a name, by the function that gives it; Error for another text.
template <class Enum>
uint8_t number_of(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<uint8_t>(i);
  }
  throw Error(fmt::format("a trace speaks of \"{}\"", name));
}

Json json_of(const CallRecord& r) {
  return {{"sequence", r.sequence},
          {"op", name_of(static_cast<OpKind>(r.key.op))},
          {"reduce", name_of(static_cast<ReduceOp>(r.key.reduce))},
          {"dtype", name_of(static_cast<DType>(r.key.dtype))},
          {"count", r.key.count},
          {"items", r.key.items},
          {"root", r.key.root},
          {"label", r.label_text()},
          {"bytes", r.bytes},
          {"state", name_of(r.state)},
          {"issued", r.issued},
          {"started", r.started},
          {"completed", r.completed},
          {"hash", r.hash}};
}

CallRecord record_of(const Json& j) {
  CallRecord r;
  r.sequence = j.at("sequence");
  r.key.op = number_of<OpKind>(j.at("op"), kOps);
  r.key.reduce = number_of<ReduceOp>(j.at("reduce"), kReductions);
  r.key.dtype = number_of<DType>(j.at("dtype"), kDTypes);
  r.key.count = j.at("count");
  r.key.items = j.at("items");
  r.key.root = j.at("root");
  const std::string label = j.at("label");
  std::copy_n(label.data(), std::min(label.size(), r.label.size()), r.label.data());
  r.bytes = j.at("bytes");
  r.state = static_cast<CallState>(number_of<CallState>(j.at("state"), kStates));
  r.issued = j.at("issued");
  r.started = j.at("started");
  r.completed = j.at("completed");
  r.hash = j.at("hash");
  return r;
}

// One file per rank and Comm: names may repeat, and have any characters.
std::string file_name(const Trace& t) {
  uint64_t h = internal::mix(0, t.comm);
  for (const int r : t.ranks) h = internal::mix(h, static_cast<uint64_t>(r));
  std::string name = t.comm.substr(0, 64);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return fmt::format("{}.g{}.{}.{:08x}.rank{}.json", t.run_id, t.generation, name,
                     static_cast<uint32_t>(h), t.ranks[static_cast<size_t>(t.rank)]);
}

}  // namespace

std::string_view name_of(CallState state) {
  constexpr std::string_view kNames[] = {"queued", "running", "done", "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view CallRecord::label_text() const {
  const auto end = std::ranges::find(label, '\0');
  return {label.data(), static_cast<size_t>(end - label.begin())};
}

std::string to_json(const Trace& t) {
  auto calls = Json::array();
  for (const CallRecord& r : t.calls) calls.push_back(json_of(r));
  const Json j = {{"run", t.run_id},  {"generation", t.generation},
                  {"comm", t.comm},   {"ranks", t.ranks},
                  {"rank", t.rank},   {"taken", t.taken},
                  {"error", t.error}, {"calls", std::move(calls)}};
  // A label cut in the middle of a character is no reason to fail.
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Trace trace_of_json(std::string_view text) {
  try {
    const Json j = Json::parse(text);
    Trace t;
    t.run_id = j.at("run");
    t.generation = j.at("generation");
    t.comm = j.at("comm");
    t.ranks = j.at("ranks").get<std::vector<int>>();
    t.rank = j.at("rank");
    t.taken = j.at("taken");
    t.error = j.at("error");
    for (const Json& call : j.at("calls")) t.calls.push_back(record_of(call));
    if (t.rank < 0 || t.rank >= static_cast<int>(t.ranks.size())) {
      throw Error(fmt::format("rank {} of {}", t.rank, t.ranks.size()));
    }
    return t;
  } catch (const std::exception& e) {
    throw Error(fmt::format("this is no trace of a Comm: {}", e.what()));
  }
}

std::string write_trace(const Trace& trace, const std::string& directory) {
  const fs::path path = fs::path(directory) / file_name(trace);
  const fs::path temporary = path.string() + fmt::format(".{}", getpid());
  std::error_code error;
  fs::create_directories(directory, error);
  {
    std::ofstream out(temporary, std::ios::binary);
    out << to_json(trace) << "\n";
    if (!out.flush()) throw Error(fmt::format("cannot write a trace to {}", temporary.string()));
  }
  fs::rename(temporary, path, error);
  if (error) throw Error(fmt::format("cannot write {}: {}", path.string(), error.message()));
  return path.string();
}

}  // namespace dtensor::comm

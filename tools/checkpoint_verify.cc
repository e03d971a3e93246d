// dtensor checkpoint verify: is a checkpoint complete, and with --deep, is its data what was saved?

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/tools/checkpoint_commands.h"
#include "dtensor/tools/checkpoint_options.h"
#include "dtensor/tools/progress.h"

namespace dtensor::tools {
namespace {

using checkpoint::Contents;
using checkpoint::Examined;
using checkpoint::Problem;
using Json = nlohmann::ordered_json;

struct Request {
  std::string path;
  bool deep = false;
  bool json = false;
  ShowProgress progress = ShowProgress::kOnTerminal;
};

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

struct Verdict {
  const checkpoint::Attempt* attempt = nullptr;
  int world = 0;
  std::vector<Problem> problems;  // why it is not complete, and damaged data
  // Of a complete one: damaged records that the manifest has whole, replicas that were not equal.
  std::vector<Problem> besides;
  std::vector<const Examined*> newer_incomplete;

  std::vector<Problem> all() const {
    std::vector<Problem> both = problems;
    both.insert(both.end(), besides.begin(), besides.end());
    return both;
  }
};

template <class T>
Json or_null(bool given, const T& value) {
  return given ? Json(value) : Json(nullptr);
}

void print(const Verdict& v, const Request& request, std::ostream& out) {
  const bool complete = v.problems.empty();
  if (!request.json) {
    const std::string what = v.attempt == nullptr ? request.path : v.attempt->name;
    out << what << (complete ? ": complete\n" : ": not complete\n");
    for (const Problem& p : v.all()) out << "  " << p.what << ": " << p.text << "\n";
    for (const Examined* e : v.newer_incomplete)
      out << "newer, not complete: " << e->reason() << "\n";
    return;
  }
  auto problems = Json::array();
  for (const Problem& p : v.all()) {
    problems.push_back({{"file", or_null(!p.file.empty(), p.file)},
                        {"tensor", or_null(!p.tensor.empty(), p.tensor)},
                        {"block", or_null(p.block >= 0, p.block)},
                        {"what", p.what},
                        {"text", p.text}});
  }
  auto newer = Json::array();
  for (const Examined* e : v.newer_incomplete) {
    newer.push_back({{"attempt", e->contents.attempt.name},
                     {"step", e->contents.attempt.step},
                     {"reason", e->reason()}});
  }
  const bool known = v.attempt != nullptr;
  const Json json = {{"complete", complete},
                     {"step", or_null(known, known ? v.attempt->step : 0)},
                     {"attempt", or_null(known, known ? v.attempt->name : "")},
                     {"world", or_null(v.world > 0, v.world)},
                     {"newer_incomplete", std::move(newer)},
                     {"problems", std::move(problems)}};
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

// Of a complete attempt: its records in their own files, and what they say of replicas.
void add_record_problems(const Contents& contents, Verdict& verdict) {
  for (Problem& p :
       checkpoint::examine(contents.attempt, checkpoint::Records::kOwnFiles).problems) {
    p.text += "; the manifest has it whole";
    verdict.besides.push_back(std::move(p));
  }
  verdict.besides.insert(verdict.besides.end(), contents.differing.begin(),
                         contents.differing.end());
}

void add_data_problems(const Contents& contents, const Request& request, Verdict& verdict,
                       std::ostream& err) {
  if (!request.deep) return;
  int64_t total = 0;
  for (const auto& file : contents.files) total += file.bytes;
  Progress progress(err, "verify", total, request.progress);
  const auto report = [&](int64_t bytes) { progress.add(bytes); };
  for (Problem& p : checkpoint::examine_data(contents, {}, report)) {
    verdict.problems.push_back(std::move(p));
  }
}

// A directory of others. Their files have no CRCs: there is nothing more to read.
bool opens_as_foreign(const std::string& path, Verdict& verdict) {
  try {
    if (!checkpoint::is_foreign_directory(path)) return false;
    checkpoint::open_stored(path);
  } catch (const CheckpointError& e) {
    verdict.problems.push_back({.what = "header", .text = e.what()});
  }
  return true;
}

int verify(const Request& request, std::ostream& out, std::ostream& err) {
  Verdict verdict;
  std::optional<Examined> examined;
  checkpoint::Found found;
  if (!std::filesystem::is_directory(request.path)) {
    try {
      const safetensors::File file(request.path);
    } catch (const CheckpointError& e) {
      verdict.problems.push_back(
          {.what = "header", .file = file_name(request.path), .text = e.what()});
    }
  } else if (const auto attempt = checkpoint::attempt_at(request.path)) {
    examined = checkpoint::examine(*attempt);
    verdict.attempt = &examined->contents.attempt;
    verdict.world = examined->contents.world;
    verdict.problems = examined->problems;
    if (examined->is_complete()) add_record_problems(examined->contents, verdict);
    if (examined->is_complete()) add_data_problems(examined->contents, request, verdict, err);
  } else if (!opens_as_foreign(request.path, verdict)) {
    found = checkpoint::find_complete(request.path);
    for (const Examined& e : found.passed_over) verdict.newer_incomplete.push_back(&e);
    if (found.complete) {
      verdict.attempt = &found.complete->attempt;
      verdict.world = found.complete->world;
      add_record_problems(*found.complete, verdict);
      add_data_problems(*found.complete, request, verdict, err);
    } else {
      verdict.problems.push_back(
          {.what = "missing", .text = request.path + " holds no complete checkpoint"});
    }
  }
  print(verdict, request, out);
  return verdict.all().empty() ? 0 : 1;
}

}  // namespace

int checkpoint_verify(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments, {.switches = {"deep", "json", "progress"}, .positional = 1});
  const Request request{existing_path(options, 0), options.has("deep"), options.has("json"),
                        show_progress(options)};
  return verify(request, out, err);
}

}  // namespace dtensor::tools

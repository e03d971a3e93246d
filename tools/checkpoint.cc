#include "dtensor/tools/checkpoint.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/checkpoint/tensor_index.h"

namespace dtensor::tools {
namespace {

using checkpoint::Contents;
using checkpoint::Examined;
using checkpoint::Problem;
using Json = nlohmann::ordered_json;

constexpr char kUsage[] =
    "usage: dtensor checkpoint ls PATH [--json]\n"
    "       dtensor checkpoint verify PATH [--deep] [--json]\n"
    "PATH is a run's directory (its newest complete step counts), an attempt's, a Hugging Face\n"
    "directory (ls), or one safetensors file.\n";

struct Command {
  std::string name;
  std::string path;
  bool deep = false;
  bool json = false;
};

std::optional<Command> parse(std::span<const std::string> args, std::ostream& err) {
  Command command;
  for (const std::string& arg : args) {
    if (arg == "--json") {
      command.json = true;
    } else if (arg == "--deep") {
      command.deep = true;
    } else if (arg.starts_with("--")) {
      err << "dtensor checkpoint: unknown option " << arg << "\n" << kUsage;
      return std::nullopt;
    } else if (command.name.empty()) {
      command.name = arg;
    } else if (command.path.empty()) {
      command.path = arg;
    } else {
      err << "dtensor checkpoint: one argument too many: " << arg << "\n" << kUsage;
      return std::nullopt;
    }
  }
  const bool known = command.name == "ls" || command.name == "verify";
  if (!known || command.path.empty() || (command.deep && command.name == "ls")) {
    err << kUsage;
    return std::nullopt;
  }
  std::error_code error;
  if (!std::filesystem::exists(command.path, error)) {
    err << "dtensor checkpoint: " << command.path << " is not there\n";
    return std::nullopt;
  }
  return command;
}

// The attempt that a path is the directory of.
std::optional<checkpoint::Attempt> attempt_at(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error) return std::nullopt;
  return checkpoint::attempt_of(whole.parent_path().string(), whole.filename().string());
}

// ---- ls

struct Listed {
  struct Chunk {
    std::string file;
    std::vector<int64_t> offset;
    std::vector<int64_t> size;
  };
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<Chunk> chunks;
};

Listed listed(const safetensors::Entry& e, const std::string& file) {
  return {e.name, e.dtype, e.shape, {{file, std::vector<int64_t>(e.shape.size(), 0), e.shape}}};
}

std::vector<int64_t> list_of(const Shape& s) { return {s.begin(), s.end()}; }

std::vector<Listed> listed(const Contents& contents) {
  std::vector<Listed> out;
  for (const auto& [name, tensor] : contents.tensors) {
    Listed item{name, tensor.dtype, list_of(tensor.shape), {}};
    for (const auto& c : tensor.chunks) {
      item.chunks.push_back({contents.files[static_cast<size_t>(c.file)].name,
                             list_of(c.box.offset), list_of(c.box.size)});
    }
    out.push_back(std::move(item));
  }
  return out;
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::vector<Listed> find_tensors(const std::string& path) {
  std::vector<Listed> out;
  if (!std::filesystem::is_directory(path)) {
    const safetensors::File file(path);
    for (const auto& e : file.entries()) out.push_back(listed(e, file_name(path)));
    return out;
  }
  if (const auto attempt = attempt_at(path)) return listed(checkpoint::examine(*attempt).contents);
  for (const char* name : {"/model.safetensors", "/model.safetensors.index.json"}) {
    if (!std::filesystem::exists(path + name)) continue;
    const auto index = checkpoint::read_tensor_index(path);
    for (const auto& [tensor, place] : index.tensors) {
      const auto& file = index.files[static_cast<size_t>(place.file)];
      out.push_back(listed(*place.entry, file_name(file.path())));
    }
    return out;
  }
  const auto found = checkpoint::find_complete(path);
  if (!found.complete) throw CheckpointError(path + " holds no complete checkpoint");
  return listed(*found.complete);
}

int run_ls(const Command& command, std::ostream& out) {
  const auto tensors = find_tensors(command.path);
  auto json = Json::array();
  for (const Listed& t : tensors) {
    auto chunks = Json::array();
    for (const auto& c : t.chunks) {
      chunks.push_back({{"file", c.file}, {"offset", c.offset}, {"size", c.size}});
    }
    json.push_back({{"name", t.name},
                    {"dtype", safetensors::format_name(t.dtype)},
                    {"shape", t.shape},
                    {"chunks", std::move(chunks)}});
    if (command.json) continue;
    out << fmt::format("{:<5} {:<16} {}", safetensors::format_name(t.dtype),
                       fmt::format("[{}]", fmt::join(t.shape, ",")), t.name);
    for (const auto& c : t.chunks) {
      out << fmt::format("  {}[{}+{}]", c.file, fmt::join(c.offset, ","), fmt::join(c.size, ","));
    }
    out << "\n";
  }
  if (command.json) out << json.dump() << "\n";
  return 0;
}

// ---- verify

struct Verdict {
  const checkpoint::Attempt* attempt = nullptr;
  int world = 0;
  std::vector<Problem> problems;
  std::vector<const Examined*> newer_incomplete;
};

template <class T>
Json or_null(bool given, const T& value) {
  return given ? Json(value) : Json(nullptr);
}

void print(const Verdict& v, const Command& command, std::ostream& out) {
  const bool complete = v.problems.empty();
  if (!command.json) {
    const std::string what = v.attempt == nullptr ? command.path : v.attempt->name;
    out << what << (complete ? ": complete\n" : ": not complete\n");
    for (const Problem& p : v.problems) out << "  " << p.what << ": " << p.text << "\n";
    for (const Examined* e : v.newer_incomplete)
      out << "newer, not complete: " << e->reason() << "\n";
    return;
  }
  auto problems = Json::array();
  for (const Problem& p : v.problems) {
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

void add_data_problems(const Contents& contents, const Command& command, Verdict& verdict) {
  if (!command.deep) return;
  for (Problem& p : checkpoint::examine_data(contents)) verdict.problems.push_back(std::move(p));
}

int run_verify(const Command& command, std::ostream& out) {
  Verdict verdict;
  std::optional<Examined> examined;
  checkpoint::Found found;
  if (!std::filesystem::is_directory(command.path)) {
    try {
      const safetensors::File file(command.path);
    } catch (const CheckpointError& e) {
      verdict.problems.push_back(
          {.what = "header", .file = file_name(command.path), .text = e.what()});
    }
  } else if (const auto attempt = attempt_at(command.path)) {
    examined = checkpoint::examine(*attempt);
    verdict.attempt = &examined->contents.attempt;
    verdict.world = examined->contents.world;
    verdict.problems = examined->problems;
    if (verdict.problems.empty()) add_data_problems(examined->contents, command, verdict);
  } else {
    found = checkpoint::find_complete(command.path);
    for (const Examined& e : found.passed_over) verdict.newer_incomplete.push_back(&e);
    if (found.complete) {
      verdict.attempt = &found.complete->attempt;
      verdict.world = found.complete->world;
      add_data_problems(*found.complete, command, verdict);
    } else {
      verdict.problems.push_back(
          {.what = "missing", .text = command.path + " holds no complete checkpoint"});
    }
  }
  print(verdict, command, out);
  return verdict.problems.empty() ? 0 : 1;
}

}  // namespace

int checkpoint_command(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  const auto command = parse(args, err);
  if (!command) return 2;
  try {
    return command->name == "ls" ? run_ls(*command, out) : run_verify(*command, out);
  } catch (const Error& e) {
    err << "dtensor checkpoint: " << e.what() << "\n";
    return 1;
  }
}

}  // namespace dtensor::tools

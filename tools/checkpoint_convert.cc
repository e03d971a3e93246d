// dtensor checkpoint merge, reshard, import, export: new files from those of a checkpoint.

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/convert.h"
#include "dtensor/checkpoint/file_io.h"
#include "dtensor/checkpoint/manifest.h"
#include "dtensor/checkpoint/open_stored.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/spec.h"
#include "dtensor/tools/checkpoint_commands.h"
#include "dtensor/tools/checkpoint_options.h"
#include "dtensor/tools/progress.h"

namespace dtensor::tools {
namespace {

using checkpoint::Contents;
using Json = nlohmann::ordered_json;

// How the new attempt is cut.
struct Target {
  int world = 1;
  Spec spec;  // of kMaxDims dims

  // A tensor that lacks the dim of a placement is replicated there.
  Layout layout_of(const Shape& shape) const {
    std::vector<std::vector<Level>> levels;
    for (int d = 0; d < shape.ndim(); ++d) {
      levels.emplace_back(spec.levels(d).begin(), spec.levels(d).end());
    }
    return Layout(Spec::from_levels(spec.mesh(), levels, {}), shape);
  }
};

Target read_target(const Options& options, const std::string& default_world) {
  constexpr int64_t kMostRanks = 1 << 20;
  if (options.has("layout") && options.has("world")) {
    throw UsageError("--layout and --world exclude each other");
  }
  if (!options.has("layout")) {
    const std::string text = default_world.empty() ? options.required("world")
                                                   : options.value_or("world", default_world);
    const int64_t world = read_count(text, "--world", 1);
    if (world > kMostRanks) throw UsageError("--world is too large");
    const MeshLayout mesh({{"world", static_cast<int>(world)}});
    return {static_cast<int>(world), Spec(mesh, kMaxDims, {})};
  }
  // Any shape of enough dims: only the spec is taken.
  const std::string& text = options.required("layout");
  std::string plain = text;
  std::erase(plain, ' ');
  if (plain.find("S(-") != std::string::npos) {
    throw UsageError(
        "--layout " + text +
        ": tensors have several numbers of dims; count a dim from 0, not from the end");
  }
  const Layout layout = read_layout(text, Shape::filled(kMaxDims, 1));
  Target target{0, layout.spec()};
  for (const int rank : layout.mesh().ranks()) {
    if (rank >= kMostRanks) {
      throw UsageError(fmt::format(
          "--layout: rank {} is beyond {}: each rank of the new checkpoint has a record", rank,
          kMostRanks - 1));
    }
    target.world = std::max(target.world, rank + 1);
  }
  if (layout.spec().has_partial()) throw UsageError("--layout: a Partial has no value to save");
  return target;
}

int write_new_attempt(const Options& options, const Contents& from, int64_t step,
                      const Target& target, std::ostream& out, std::ostream& err) {
  checkpoint::ConvertOptions convert = convert_options(options);
  checkpoint::Attempt attempt;
  {
    Progress progress(err, "write", bytes_of_tensors(from, convert), show_progress(options));
    convert.progress = [&](int64_t bytes) { progress.add(bytes); };
    attempt = checkpoint::write_attempt(
        from, argument(options, 1), step, target.world,
        [&](const Shape& shape) { return target.layout_of(shape); }, convert);
  }
  const auto tensors = checkpoint::selected(from, convert).size();
  if (options.has("json")) {
    out << Json{{"attempt", attempt.name},
                {"step", step},
                {"world", target.world},
                {"tensors", tensors}}
               .dump()
        << "\n";
  } else {
    out << fmt::format("{}: {} tensors of {} ranks\n", attempt.path, tensors, target.world);
  }
  return 0;
}

std::optional<DType> read_floating(const Options& options) {
  if (!options.has("dtype")) return std::nullopt;
  const std::string name = options.required("dtype");
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (is_floating(dtype) && name_of(dtype) == name) return dtype;
  }
  throw UsageError("--dtype: \"" + name + "\" is not one of f64, f32, f16 and bf16");
}

}  // namespace

int checkpoint_merge(Arguments arguments, std::ostream& out, std::ostream&) {
  const Options options(arguments, {.switches = {"json"}, .positional = 1});
  const std::string& path = existing_path(options, 0);
  std::optional<checkpoint::Attempt> attempt = checkpoint::attempt_at(path);
  if (!attempt) attempt = checkpoint::newest_complete(path).attempt;
  const auto examined = checkpoint::examine(*attempt);
  if (!examined.is_complete()) {
    throw CheckpointError(fmt::format("{} is not complete: {}", attempt->path, examined.reason()));
  }
  if (!checkpoint::write_manifest(*attempt, checkpoint::current_file_system())) {
    throw CheckpointError(attempt->path + ": a record is not there");
  }
  if (options.has("json")) {
    out << Json{{"attempt", attempt->name}, {"file", checkpoint::kManifestName}}.dump() << "\n";
  } else {
    out << attempt->path << "/" << checkpoint::kManifestName << "\n";
  }
  return 0;
}

int checkpoint_reshard(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"world", "layout", "step", "include", "exclude", "buffer"},
                         .switches = {"json", "progress"},
                         .positional = 2});
  const Target target = read_target(options, "");
  argument(options, 1);
  const Contents from = checkpoint::open_stored(existing_path(options, 0));
  const bool is_attempt = !from.attempt.name.empty();
  if (!is_attempt && !options.has("step")) throw UsageError("--step is missing: FROM has none");
  const int64_t step =
      options.has("step") ? read_count(options.required("step"), "--step", 0) : from.attempt.step;
  return write_new_attempt(options, from, step, target, out, err);
}

int checkpoint_import(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"world", "layout", "step", "include", "exclude", "buffer"},
                         .switches = {"json", "progress"},
                         .positional = 2});
  const Target target = read_target(options, "1");
  const int64_t step = read_count(options.required("step"), "--step", 0);
  argument(options, 1);
  return write_new_attempt(options, checkpoint::open_stored(existing_path(options, 0)), step,
                           target, out, err);
}

int checkpoint_export(Arguments arguments, std::ostream& out, std::ostream& err) {
  const Options options(arguments,
                        {.values = {"max-shard-size", "dtype", "include", "exclude", "buffer"},
                         .switches = {"json", "progress"},
                         .positional = 2});
  checkpoint::ConvertOptions convert = convert_options(options);
  const checkpoint::HuggingFaceOptions format{
      .max_file_bytes = read_bytes(options.value_or("max-shard-size", "5GB"), "--max-shard-size"),
      .floating = read_floating(options)};
  const std::string& dir = argument(options, 1);
  const Contents from = checkpoint::open_stored(existing_path(options, 0));
  std::vector<std::string> files;
  {
    Progress progress(err, "export", bytes_of_tensors(from, convert), show_progress(options));
    convert.progress = [&](int64_t bytes) { progress.add(bytes); };
    files = checkpoint::write_hugging_face(from, dir, format, convert);
  }
  if (options.has("json")) {
    out << Json{{"files", files}}.dump() << "\n";
  } else {
    for (const std::string& file : files) out << dir << "/" << file << "\n";
  }
  return 0;
}

}  // namespace dtensor::tools

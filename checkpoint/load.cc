#include "dtensor/checkpoint/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/checkpoint/choose.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/fill.h"
#include "dtensor/checkpoint/host_group.h"
#include "dtensor/checkpoint/name_glob.h"
#include "dtensor/checkpoint/names.h"
#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/checkpoint/shared_fill.h"
#include "dtensor/checkpoint/stored_data.h"
#include "dtensor/checkpoint/world.h"

namespace dtensor::checkpoint {
namespace {

class Loader {
 public:
  Loader(NamedState wanted, const State& state, const LoadOptions& options)
      : wanted_(std::move(wanted)), state_(state), options_(options) {
    check_renames();
    std::erase_if(wanted_.tensors, [this](const NamedTensor& t) {
      const bool asked = is_asked(t.name);
      if (!asked) left_alone_.push_back(t.name);
      return !asked;
    });
    for (const std::string& name : left_alone_) not_asked_.insert(stored_as(name));
  }

  // Everything that can be checked by the records alone.
  void plan(const Attempt& attempt, std::optional<Contents> contents) {
    if (!contents) {
      Examined examined = examine(attempt);
      if (!examined.is_complete()) {
        throw CheckpointError(
            fmt::format("{} is not complete: {}", attempt.path, examined.reason()));
      }
      contents = std::move(examined.contents);
    }
    contents_ = std::move(*contents);
    const auto names =
        match_names(wanted_, stored_names(), attempt.path,
                    {.converts = options_.dtypes == DTypeChange::kConvert,
                     .stored_as = [this](const std::string& name) { return stored_as(name); },
                     .optional = [this](const std::string& name) { return is_optional(name); }});
    check_numbers();
    for (size_t i = 0; i < names.size(); ++i) add(wanted_.tensors[i], names[i]);
  }

  // Where the chunks lie in their files, by the files' headers; one file is open at a time.
  void locate() {
    for (const auto& [index, places] : places_) {
      const safetensors::File file = open_checked(contents_.files[static_cast<size_t>(index)],
                                                  *places.front().name, bytes_read_);
      for (const Place& place : places) {
        const auto& entry = check_entry(file, *place.name, *place.tensor, *place.chunk);
        pieces_[place.piece].begin_bytes = file.data_offset_bytes() + entry.begin_bytes;
      }
    }
  }

  void read(comm::Comm* host) {
    std::vector<FillSource> sources;
    for (const StoredFile& f : contents_.files) sources.push_back({f.path, f.bytes, f.block_crcs});
    if (host != nullptr) {
      bytes_read_ +=
          shared_fill(*host, sources, targets_, std::move(pieces_), options_.buffer_bytes)
              .bytes_read;
      return;
    }
    const FillOptions options{.buffer_bytes = options_.buffer_bytes,
                              .threads = options_.io_threads};
    bytes_read_ += fill(sources, targets_, std::move(pieces_), options).bytes_read;
  }

  void set_numbers() {
    restore(state_, contents_.numbers, contents_.texts, [this](const std::string& name) {
      return is_asked(name) ? stored_as(name) : std::string();
    });
  }

  // Once, not by every rank.
  void warn() const {
    for (const Problem& p : contents_.differing) {
      log(LogLevel::kWarn, fmt::format("checkpoint: {}: {}", contents_.attempt.name, p.text));
    }
  }

  void report() const {
    if (options_.report == nullptr) return;
    options_.report->step = contents_.attempt.step;
    options_.report->attempt = contents_.attempt.name;
    options_.report->left_alone = left_alone_;
    for (const Problem& p : contents_.differing) options_.report->differing.push_back(p.text);
    options_.report->bytes_read = bytes_read_;
  }

 private:
  struct Place {
    const std::string* name;
    const StoredTensor* tensor;
    const StoredChunk* chunk;
    size_t piece;  // index into pieces_
  };

  void check_renames() const {
    for (const auto& rename : options_.stored_as) {
      const std::string& name = rename.first;
      const bool known =
          wanted_.aliases.contains(name) ||
          std::ranges::any_of(wanted_.tensors, [&](const auto& t) { return t.name == name; });
      if (known) continue;
      throw ArgumentError(
          fmt::format("checkpoint::load: .stored_as says that \"{}\" is stored as \"{}\", but the "
                      "state has no tensor of that name",
                      name, rename.second));
    }
  }

  bool is_asked(const std::string& name) const {
    return (options_.include.empty() || matches_any(options_.include, name)) &&
           !matches_any(options_.exclude, name);
  }

  std::string stored_as(const std::string& name) const {
    if (const auto it = options_.stored_as.find(name); it != options_.stored_as.end()) {
      return it->second;
    }
    constexpr std::string_view kPrefix = kOptimizerPrefix;
    if (!name.starts_with(kPrefix)) return name;
    const size_t dot = name.find('.', kPrefix.size());
    if (dot == std::string::npos) return name;
    const auto it = options_.stored_as.find(name.substr(dot + 1));
    return it == options_.stored_as.end() ? name : name.substr(0, dot + 1) + it->second;
  }

  StoredNames stored_names() const {
    StoredNames stored;
    for (const auto& [name, tensor] : contents_.tensors) {
      stored.tensors[name] = {tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}};
    }
    stored.aliases = contents_.aliases;
    return stored;
  }

  bool is_optional(const std::string& name) const {
    if (options_.unexpected == Unexpected::kIgnore || not_asked_.contains(name)) return true;
    if (name.starts_with(kEmaPrefix)) return state_.ema.ema == nullptr;
    const bool of_optimizer = name.starts_with(kOptimizerPrefix);
    return of_optimizer ? state_.optimizer.optimizer == nullptr : state_.model.module == nullptr;
  }

  void check_numbers() const {
    for (const auto& [name, number] : wanted_.numbers) {
      if (contents_.numbers.contains(name) || name.starts_with(kUpdatesPrefix)) continue;
      throw CheckpointError(fmt::format("{}: missing: the number \"{}\". Nothing was loaded",
                                        contents_.attempt.path, name));
    }
    // Of what is wanted; what is stored beside it is not used.
    std::map<std::string, int64_t> used;
    for (const auto& [name, number] : contents_.numbers) {
      const bool of_optimizer = state_.optimizer.optimizer != nullptr;
      const bool wanted =
          wanted_.numbers.contains(name) || (of_optimizer && name.starts_with(kUpdatesPrefix));
      if (wanted) used[name] = number;
    }
    if (const std::string name = negative_count(used); !name.empty()) {
      throw CheckpointError(
          fmt::format("{}: the number \"{}\" is {}, but counts. Nothing was loaded",
                      contents_.attempt.path, name, used.at(name)));
    }
    for (const auto& [name, text] : wanted_.texts) {
      if (contents_.texts.contains(name)) continue;
      throw CheckpointError(fmt::format("{}: missing: the document \"{}\". Nothing was loaded",
                                        contents_.attempt.path, name));
    }
  }

  // The chunks that this rank's piece of a tensor takes from.
  void add(const NamedTensor& t, const std::string& stored_name) {
    if (!t.value.has_local()) return;
    const auto it = contents_.tensors.find(stored_name);
    const std::string& name = it->first;
    const StoredTensor& stored = it->second;
    const bool plain = !t.value.mesh().defined();
    const Box whole{Shape::filled(t.value.ndim(), 0), t.value.shape()};
    const Box box = plain ? whole : t.value.layout().box_of(t.value.mesh().rank());
    const auto target = static_cast<int>(targets_.size());
    targets_.push_back({t.name, t.value.local_tensor(), box, stored.dtype});
    if (box.empty()) return;
    for_each_part(stored, box, [&](const StoredChunk& chunk, const Box& part) {
      places_[chunk.file].push_back({&name, &stored, &chunk, pieces_.size()});
      pieces_.push_back({chunk.file, target, 0, chunk.box, part});
    });
  }

  NamedState wanted_;
  const State& state_;
  const LoadOptions& options_;
  std::vector<std::string> left_alone_;
  std::set<std::string> not_asked_;  // what is stored for those
  Contents contents_;
  std::map<int, std::vector<Place>> places_;  // by file
  std::vector<FillTarget> targets_;
  std::vector<FillPiece> pieces_;
  int64_t bytes_read_ = 0;
};

}  // namespace

std::optional<int64_t> load(const std::string& run_dir, const State& state,
                            const LoadOptions& options) {
  const World world = World::of(state);
  std::optional<Loader> made;
  world.together_with_own([&] {
    check_io_threads("checkpoint::load", options.io_threads);
    NamedState wanted = named_state(state);
    World::of_tensors(wanted);  // refuses two root Comms
    refuse_partial(wanted);
    made.emplace(std::move(wanted), state, options);
  });
  Loader& loader = *made;
  const bool deep = options.check == DataCheck::kBeforeReading;
  Choice choice = choose_attempt(world, run_dir, options.step, deep);
  if (options.report != nullptr) options.report->passed_over = choice.passed_over;
  if (!choice.attempt) return std::nullopt;
  world.together([&] { loader.plan(*choice.attempt, std::move(choice.contents)); });
  try {
    world.together([&] { loader.locate(); });
    const auto host =
        options.reading == Reading::kOncePerHost ? host_group(world, options.host) : nullptr;
    world.together([&] { loader.read(host.get()); });
  } catch (const CheckpointError& e) {
    // The same words on every rank: rank 0 looks, and tells.
    throw CheckpointError(
        e.what() + world.told_by_first(world.rank() == 0 ? advice(run_dir, *choice.attempt) : ""));
  }
  loader.set_numbers();
  if (world.rank() == 0) loader.warn();
  loader.report();
  return choice.attempt->step;
}

}  // namespace dtensor::checkpoint

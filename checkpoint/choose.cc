#include "dtensor/checkpoint/choose.h"

#include <fmt/core.h>

#include <exception>
#include <set>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/base/logging.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/stored_data.h"

namespace dtensor::checkpoint {
namespace {

// What rank 0 tells the others: a letter, then the name of an attempt or a text.
constexpr char kNothing = 'n';
constexpr char kChosen = 'c';
constexpr char kFailed = 'f';

// Rank 0's look at one attempt after the other.
class Search {
 public:
  Search(std::string run_dir, std::optional<int64_t> step)
      : run_dir_(std::move(run_dir)), step_(step) {}

  std::string next() {
    try {
      if (!listed_) attempts_ = list_attempts(run_dir_);
      listed_ = true;
      while (at_ < attempts_.size()) {
        const Attempt& attempt = attempts_[at_++];
        if (step_ && attempt.step != *step_) continue;
        Examined examined = examine(attempt);
        if (examined.is_complete()) {
          contents_ = std::move(examined.contents);
          return kChosen + attempt.name;
        }
        if (examined.is_unreadable() && unreadable_.empty()) unreadable_ = examined.reason();
        pass_over(examined.reason());
      }
    } catch (const std::exception& e) {  // memory may be out; the others wait for this word
      return kFailed + std::string(e.what());
    }
    if (!step_ && !unreadable_.empty()) {
      return fmt::format(
          "{}{} has no checkpoint that is known to be complete, but one that cannot be read: {}. "
          "Nothing was loaded, and it is no first start: let this process read it, or move it away "
          "to begin anew",
          kFailed, run_dir_, unreadable_);
    }
    if (!step_) return std::string(1, kNothing);
    std::string reasons;
    for (const std::string& r : passed_over_) reasons += (reasons.empty() ? ": " : "; ") + r;
    return fmt::format("{}{} has no complete checkpoint of step {}{}", kFailed, run_dir_, *step_,
                       reasons);
  }

  void pass_over(std::string reason) {
    log(LogLevel::kWarn, fmt::format("checkpoint: passed over {}", reason));
    passed_over_.push_back(std::move(reason));
  }

  Choice choice(std::optional<Attempt> attempt) {
    return {std::move(attempt), std::move(passed_over_), std::move(contents_)};
  }

 private:
  std::string run_dir_;
  std::optional<int64_t> step_;
  std::vector<Attempt> attempts_;
  size_t at_ = 0;
  bool listed_ = false;
  std::optional<Contents> contents_;  // of what next() gave
  std::vector<std::string> passed_over_;
  std::string unreadable_;  // the first attempt that the system does not give, and why
};

// Reads the data of an attempt that rank 0 found complete, this rank its share of the files. Why it
// is damaged; nullopt where it is not.
std::optional<std::string> find_damage(const World& world, const Attempt& attempt) {
  Examined examined;
  // A rank that does not see what rank 0 sees is an error, not a reason to start anew.
  world.together([&] {
    examined = examine(attempt);
    if (examined.is_complete()) return;
    throw CheckpointError(fmt::format("{} is not complete: {}", attempt.path, examined.reason()));
  });
  try {
    world.together([&] {
      examined.problems = examine_data(examined.contents, {world.rank(), world.size()});
      if (!examined.is_complete()) throw CheckpointError(examined.reason());
    });
  } catch (const CheckpointError& e) {
    return e.what();
  }
  return std::nullopt;
}

// Rank 0 has found nothing. Where another rank sees a checkpoint, that is no first start: starting
// anew there would lose the run. `damaged`: what all have passed over.
void check_first_start(const World& world, const std::string& run_dir,
                       const std::set<std::string>& damaged) {
  world.together([&] {
    if (world.rank() == 0) return;
    for (const Attempt& attempt : list_attempts(run_dir)) {
      if (damaged.contains(attempt.name) || !examine(attempt).is_complete()) continue;
      throw CheckpointError(
          fmt::format("{} is a complete checkpoint, but rank 0 sees none in the directory that it "
                      "was given. Nothing was loaded: give all ranks one directory that all see",
                      attempt.path));
    }
  });
}

}  // namespace

Choice choose_attempt(const World& world, const std::string& run_dir, std::optional<int64_t> step,
                      bool deep) {
  Search search(run_dir, step);
  std::set<std::string> damaged;
  while (true) {
    const std::string told = world.told_by_first(world.rank() == 0 ? search.next() : "");
    const char answer = told.empty() ? kFailed : told[0];
    const std::string rest = told.empty() ? "" : told.substr(1);
    if (answer == kFailed) throw CheckpointError(rest);
    if (answer == kNothing) {
      check_first_start(world, run_dir, damaged);
      return search.choice(std::nullopt);
    }
    auto attempt = attempt_of(run_dir, rest);
    if (!attempt) throw CheckpointError(fmt::format("\"{}\" is no attempt's name", rest));
    if (!deep) return search.choice(std::move(attempt));
    const auto damage = find_damage(world, *attempt);
    if (!damage) return search.choice(std::move(attempt));
    damaged.insert(attempt->name);
    if (world.rank() == 0) search.pass_over(*damage);
  }
}

std::string advice(const std::string& run_dir, const Attempt& damaged) {
  try {
    bool is_older = false;
    for (const Attempt& attempt : list_attempts(run_dir)) {
      if (is_older && examine(attempt).is_complete()) {
        return fmt::format(
            ". {} is complete: load with {{.step = {}}}, or with {{.check = "
            "checkpoint::DataCheck::kBeforeReading}}, which passes damaged ones over",
            attempt.name, attempt.step);
      }
      is_older = is_older || attempt.name == damaged.name;
    }
  } catch (const std::exception&) {
    // The damage is what the caller has to hear of.
    return "";
  }
  return ". No older checkpoint is complete";
}

}  // namespace dtensor::checkpoint

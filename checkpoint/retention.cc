#include "dtensor/checkpoint/retention.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/checkpoint/file_io.h"

namespace dtensor::checkpoint {
namespace {

namespace fs = std::filesystem;

// An attempt on its way out; nobody takes it for one.
constexpr std::string_view kRemoved = "removed.";

struct Entry {
  std::string path;
  fs::file_time_type changed;
};

std::vector<std::string> paths_in(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path().string());
  }
  return paths;
}

// What is in a directory; an entry that vanishes meanwhile is left out.
std::vector<Entry> entries_in(const std::string& directory) {
  std::vector<Entry> entries;
  for (std::string& path : paths_in(directory)) {
    std::error_code gone;
    const auto changed = fs::last_write_time(path, gone);
    if (!gone) entries.push_back({std::move(path), changed});
  }
  return entries;
}

// Not where a link leads to one: what lies behind it belongs to somebody else.
bool is_own_directory(const std::string& path) {
  std::error_code gone;
  return fs::symlink_status(path, gone).type() == fs::file_type::directory;
}

std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }

struct Candidate {
  Attempt attempt;
  bool is_complete = false;
  bool is_unreadable = false;  // whether it is complete is not known
  fs::file_time_type changed;  // when its newest file was
};

class Clearing {
 public:
  Clearing(const std::string& run_dir, const Retention& retention, const ClearOptions& options)
      : run_dir_(run_dir),
        retention_(retention),
        id_(options.id),
        system_(options.system == nullptr ? current_file_system() : options.system),
        known_(options.known) {}

  std::vector<std::string> run() {
    find_candidates();
    remove_leftovers();
    const auto newest = std::ranges::find_if(candidates_, &Candidate::is_complete);
    if (newest == candidates_.end()) return {};
    // Other ranks' records may be seen before they are on the disk, and the older ones must not go
    // before them.
    sync_directory(*system_, newest->attempt.path);
    sync_directory(*system_, run_dir_);
    const std::set<std::string> kept = names_kept(newest->attempt);
    std::vector<std::string> removed;
    for (const Candidate& c : candidates_) {
      const bool goes =
          c.is_complete ? !kept.contains(c.attempt.name) : is_dead(c, newest->attempt);
      if (goes && remove_attempt(c.attempt)) removed.push_back(c.attempt.name);
      if (!goes) remove_temporaries(c.attempt.path);
    }
    return removed;
  }

 private:
  void find_candidates() {
    KnownComplete found;
    bool is_newest = true;  // of the complete ones
    for (Attempt& attempt : list_attempts(run_dir_)) {
      Candidate c{.attempt = std::move(attempt), .changed = fs::file_time_type::min()};
      std::error_code gone;
      const auto directory_changed = fs::last_write_time(c.attempt.path, gone);
      c.changed = std::max(c.changed, directory_changed);
      for (const Entry& e : entries_in(c.attempt.path)) c.changed = std::max(c.changed, e.changed);
      newest_change_ = std::max(newest_change_, c.changed);
      c.is_complete = !is_newest && is_known(c.attempt.path, directory_changed);
      if (!c.is_complete) {
        const Examined examined = examine(c.attempt);
        c.is_complete = examined.is_complete();
        c.is_unreadable = examined.is_unreadable();
      }
      if (c.is_complete) found.changed.emplace(c.attempt.path, directory_changed);
      is_newest = is_newest && !c.is_complete;
      candidates_.push_back(std::move(c));
    }
    if (known_ != nullptr) *known_ = std::move(found);
  }

  bool is_known(const std::string& path, fs::file_time_type changed) const {
    if (known_ == nullptr) return false;
    const auto it = known_->changed.find(path);
    return it != known_->changed.end() && it->second == changed;
  }

  bool is_stale(fs::file_time_type changed) const {
    return newest_change_ - changed > retention_.stale_after;
  }

  std::set<std::string> names_kept(const Attempt& newest) const {
    std::set<std::string> kept = {newest.name};
    std::vector<const Candidate*> complete;
    for (const Candidate& c : candidates_) {
      if (c.is_complete) complete.push_back(&c);
    }
    std::ranges::sort(complete, [](const Candidate* a, const Candidate* b) {
      return id_is_earlier(b->attempt.id, a->attempt.id);
    });
    int last = 0;
    bool own = false;
    for (const Candidate* c : complete) {
      const bool every = retention_.keep_every > 0 && c->attempt.step % retention_.keep_every == 0;
      const bool young =
          retention_.keep_for.count() > 0 && newest_change_ - c->changed <= retention_.keep_for;
      const bool last_of_own = !own && is_of_one_run(c->attempt.id, id_);
      own = own || last_of_own;
      if (retention_.keeps_all() || last++ < retention_.keep_last || every || young || last_of_own)
        kept.insert(c->attempt.name);
    }
    return kept;
  }

  // Nobody can be writing it any more.
  bool is_dead(const Candidate& c, const Attempt& newest) const {
    if (c.attempt.id == id_ || c.is_unreadable) return false;
    // Every rank makes the saves of a run in order, and has made one that is complete.
    for (const Candidate& other : candidates_) {
      if (other.is_complete && is_of_one_run(c.attempt.id, other.attempt.id) &&
          id_is_earlier(c.attempt.id, other.attempt.id)) {
        return true;
      }
    }
    return id_is_earlier(c.attempt.id, newest.id) && is_stale(c.changed);
  }

  // Under another name first: it is no checkpoint any more, at once and whole.
  bool remove_attempt(const Attempt& attempt) {
    const std::string path = (fs::path(run_dir_) / (std::string(kRemoved) + attempt.name)).string();
    const int error = system_->rename(attempt.path, path, Existing::kRefuse);
    if (error == ENOENT) return false;  // another process was first
    if (error != 0) {
      throw CheckpointError(fmt::format("cannot remove {}: {}", attempt.path,
                                        std::generic_category().message(error)));
    }
    remove_directory(path);
    return true;
  }

  void remove_directory(const std::string& path) {
    if (is_own_directory(path)) {
      for (const std::string& file : paths_in(path)) system_->remove(file);
    }
    system_->remove(path);
  }

  // Of attempts only: other things that lie in the run's directory are not ours.
  void remove_leftovers() {
    for (const std::string& path : paths_in(run_dir_)) {
      const std::string name = name_of(path);
      if (!name.starts_with(kRemoved)) continue;
      if (attempt_of(run_dir_, std::string_view(name).substr(kRemoved.size()))) {
        remove_directory(path);
      }
    }
  }

  void remove_temporaries(const std::string& path) {
    if (!is_own_directory(path)) return;
    for (const Entry& e : entries_in(path)) {
      if (is_temporary_name(name_of(e.path)) && is_stale(e.changed)) system_->remove(e.path);
    }
  }

  std::string run_dir_;
  Retention retention_;
  std::string id_;
  std::shared_ptr<FileSystem> system_;
  KnownComplete* known_;
  std::vector<Candidate> candidates_;  // the newest first, by step
  fs::file_time_type newest_change_ = fs::file_time_type::min();
};

}  // namespace

void Retention::check() const {
  if (keep_last >= 0 && keep_every >= 0 && keep_for.count() >= 0 && stale_after.count() >= 0)
    return;
  throw ArgumentError(fmt::format(
      "checkpoint::Retention: keep_last {}, keep_every {}, keep_for {} s and stale_after {} s must "
      "not be negative",
      keep_last, keep_every, keep_for.count(), stale_after.count()));
}

std::vector<std::string> clear_old(const std::string& run_dir, const Retention& retention,
                                   const ClearOptions& options) {
  retention.check();
  return Clearing(run_dir, retention, options).run();
}

}  // namespace dtensor::checkpoint

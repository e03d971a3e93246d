// Retention: which checkpoints of a run's directory are kept, and what is cleared away.

#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/checkpoint/file_system.h"

namespace dtensor::checkpoint {

// A checkpoint that any of the rules names is kept. Always kept are the newest complete one (what
// load takes) and, for who calls with an attempt of its own, the last complete one of its run.
struct Retention {
  int keep_last = 0;                 // the complete ones that were begun last; 0 keeps all
  int64_t keep_every = 0;            // those whose step is a multiple of this; 0: none
  std::chrono::seconds keep_for{0};  // those at most so much older than the newest file of the run
  // Another job may be writing what is not complete: it is cleared away once it is older than the
  // newest complete one and nothing of it has changed for so long before the newest file of the
  // run. What the same run began before its last complete one needs no such wait.
  // One that the system does not let be read stays.
  std::chrono::seconds stale_after = std::chrono::hours(24);

  bool keeps_all() const { return keep_last == 0; }
  void check() const;  // ArgumentError for a negative number
};

// Attempts that were found complete, so that a job which saves again and again reads the records of
// new ones only: by path, when the directory had changed last. One that has changed since is read
// anew, and the newest complete one, for which the others go, every time.
struct KnownComplete {
  std::map<std::string, std::filesystem::file_time_type> changed;
};

struct ClearOptions {
  std::string id = {};  // of an attempt of the calling job, which is not touched; may be empty
  std::shared_ptr<FileSystem> system = nullptr;  // where not given, the Context's
  KnownComplete* known = nullptr;                // used and brought up to date where given
};

// Clears away what `retention` does not keep: complete ones, incomplete ones, and the temporaries
// in those that stay. Nothing where keep_last is 0 but what is incomplete or temporary. Of a
// symbolic link only the link goes, never what it leads to; other files of the directory stay.
// Returns the names of the attempts that are gone, the newest first. Any process may call it at any
// time; jobs may call it at one time. A job that loads an older step while it is cleared away gets
// a CheckpointError that names the file.
std::vector<std::string> clear_old(const std::string& run_dir, const Retention& retention,
                                   const ClearOptions& options = {});

}  // namespace dtensor::checkpoint

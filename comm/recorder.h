// Recorder: keeps the last calls of one Comm and adds up what they took. The first call takes its
// memory, 128 KiB; later ones take none, unless more calls are under way at one time than it keeps.
// Where it was given a directory, it writes its trace there when the Comm ends by an error, once,
// by a thread of its own: who finds the error must not wait for a disk.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/call.h"
#include "dtensor/comm/trace.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

inline constexpr int64_t kRecordedCalls = 1024;

// Of one kind of operation.
struct OpTotals {
  int64_t calls = 0;                    // that have ended
  int64_t failures = 0;                 // of these
  int64_t bytes = 0;                    // of this rank's buffers
  std::chrono::nanoseconds queued{0};   // from issue to start
  std::chrono::nanoseconds running{0};  // from start to the end: moving data, waiting for others
};
using Totals = std::array<OpTotals, static_cast<size_t>(OpKind::kShutdown) + 1>;  // by OpKind

// Thread-safe.
class Recorder {
 public:
  // `about` is a Trace without calls: whose Comm this is.
  explicit Recorder(Trace about) : about_(std::move(about)) {}
  ~Recorder() { flush(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  const Trace& about() const { return about_; }

  void issue(const Call& call, int64_t bytes);
  void start(int64_t sequence);
  void end(int64_t sequence, bool failed);

  Trace trace() const;
  Totals totals() const;
  // "": write nothing. The first one that is given to a Comm that has ended gets its trace.
  void set_directory(std::string directory);
  std::string directory() const;
  // The Comm has ended. The first call counts, and begins to write the trace. What cannot be
  // written is logged.
  void ended(std::string_view why);
  // Returns when nothing is being written. Who throws the error calls it, so that the process does
  // not end before.
  void flush();

 private:
  CallRecord* find(int64_t sequence);
  void write_locked();  // begins to
  int64_t now() const;
  Trace trace_locked() const;

  // The steady clock, set to the system's once: times of one Comm never go back.
  const std::chrono::nanoseconds offset_ = std::chrono::system_clock::now().time_since_epoch() -
                                           std::chrono::steady_clock::now().time_since_epoch();
  const Trace about_;
  std::mutex flushing_;  // held while the writer is waited for
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::thread writer_;
  std::string error_;
  std::string directory_;
  bool written_ = false;                     // or about to be
  std::vector<CallRecord> ring_;             // by sequence modulo its size
  std::map<int64_t, CallRecord> under_way_;  // that the ring has no more room for, by sequence
  int64_t next_ = 0;                         // sequence of the next call
  Totals totals_ = {};
};

}  // namespace dtensor::comm

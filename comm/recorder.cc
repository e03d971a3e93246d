#include "dtensor/comm/recorder.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "dtensor/base/logging.h"

namespace dtensor::comm {

int64_t Recorder::now() const {
  return (offset_ + std::chrono::steady_clock::now().time_since_epoch()).count();
}

CallRecord* Recorder::find(int64_t sequence) {
  CallRecord& r = ring_[static_cast<size_t>(sequence % kRecordedCalls)];
  return r.sequence == sequence ? &r : nullptr;  // more calls may wait than are kept
}

void Recorder::issue(const Call& call, int64_t bytes) {
  const int64_t at = now();
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) ring_.resize(kRecordedCalls);
  CallRecord& r = ring_[static_cast<size_t>(call.sequence % kRecordedCalls)];
  r.sequence = call.sequence;
  r.state = CallState::kQueued;
  r.key = call.key;
  r.bytes = bytes;
  r.issued = at;
  r.started = 0;
  r.completed = 0;
  const size_t shown = std::min(call.label.size(), r.label.size());
  std::copy_n(call.label.data(), shown, r.label.data());
  std::fill(r.label.begin() + static_cast<ptrdiff_t>(shown), r.label.end(), '\0');
  next_ = call.sequence + 1;
}

void Recorder::start(int64_t sequence) {
  const int64_t at = now();
  const std::lock_guard lock(mutex_);
  CallRecord* r = find(sequence);
  if (r == nullptr) return;
  r->state = CallState::kRunning;
  r->started = at;
}

void Recorder::end(int64_t sequence, bool failed) {
  const int64_t at = now();
  const std::lock_guard lock(mutex_);
  CallRecord* r = find(sequence);
  if (r == nullptr) return;
  r->state = failed ? CallState::kFailed : CallState::kDone;
  r->completed = at;
  if (r->started == 0) r->started = at;  // failed before it began
  OpTotals& t = totals_[r->key.op];
  ++t.calls;
  t.failures += failed ? 1 : 0;
  t.bytes += r->bytes;
  t.queued += std::chrono::nanoseconds(r->started - r->issued);
  t.running += std::chrono::nanoseconds(r->completed - r->started);
}

Trace Recorder::trace_locked() const {
  Trace trace = about_;
  trace.taken = now();
  trace.error = error_;
  for (int64_t s = std::max(int64_t{0}, next_ - kRecordedCalls); s < next_; ++s) {
    trace.calls.push_back(ring_[static_cast<size_t>(s % kRecordedCalls)]);
    trace.calls.back().hash = trace.calls.back().key.hash();
  }
  return trace;
}

Trace Recorder::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_locked();
}

Totals Recorder::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void Recorder::set_directory(std::string directory) {
  const std::lock_guard lock(mutex_);
  directory_ = std::move(directory);
}

std::string Recorder::directory() const {
  const std::lock_guard lock(mutex_);
  return directory_;
}

void Recorder::ended(std::string_view why) {
  // Held while it is written: who throws the error waits, so that the process does not end before.
  const std::lock_guard writing(writing_);
  Trace trace;
  std::string directory;
  {
    const std::lock_guard lock(mutex_);
    if (!error_.empty()) return;
    error_ = why;
    directory = directory_;
    if (directory.empty()) return;
    trace = trace_locked();
  }
  try {
    write_trace(trace, directory);
  } catch (const std::exception& e) {
    log(LogLevel::kWarn, e.what());
  }
}

}  // namespace dtensor::comm

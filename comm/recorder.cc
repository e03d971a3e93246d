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
  if (r.sequence == sequence) return &r;
  const auto it = under_way_.find(sequence);
  return it == under_way_.end() ? nullptr : &it->second;
}

void Recorder::issue(const Call& call, int64_t bytes) {
  const int64_t at = now();
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) ring_.resize(kRecordedCalls);
  CallRecord& r = ring_[static_cast<size_t>(call.sequence % kRecordedCalls)];
  const bool ended = r.state == CallState::kDone || r.state == CallState::kFailed;
  if (call.sequence >= kRecordedCalls && !ended) under_way_[r.sequence] = r;
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
  under_way_.erase(sequence);
}

Trace Recorder::trace_locked() const {
  Trace trace = about_;
  trace.taken = now();
  trace.error = error_;
  for (const auto& [sequence, record] : under_way_) trace.calls.push_back(record);
  for (int64_t s = std::max(int64_t{0}, next_ - kRecordedCalls); s < next_; ++s) {
    trace.calls.push_back(ring_[static_cast<size_t>(s % kRecordedCalls)]);
  }
  for (CallRecord& r : trace.calls) r.hash = r.key.hash();
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
  if (!error_.empty()) write_locked();
}

std::string Recorder::directory() const {
  const std::lock_guard lock(mutex_);
  return directory_;
}

void Recorder::ended(std::string_view why) {
  const std::lock_guard lock(mutex_);
  if (!error_.empty()) return;
  error_ = why;
  write_locked();
}

void Recorder::write_locked() {
  if (directory_.empty() || written_) return;
  written_ = true;
  const auto write = [trace = trace_locked(), directory = directory_] {
    try {
      write_trace(trace, directory);
    } catch (const std::exception& e) {
      log(LogLevel::kWarn, e.what());
    }
  };
  try {
    writer_ = std::thread(write);
  } catch (const std::exception& e) {
    log(LogLevel::kWarn, std::string("no thread to write a trace: ") + e.what());
  }
}

void Recorder::flush() {
  const std::lock_guard flushing(flushing_);
  std::thread writer;
  {
    const std::lock_guard lock(mutex_);
    writer = std::move(writer_);
  }
  if (writer.joinable()) writer.join();
}

}  // namespace dtensor::comm

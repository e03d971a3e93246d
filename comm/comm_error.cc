#include "dtensor/comm/comm_error.h"

#include <fmt/format.h>

namespace dtensor::comm {
namespace {

std::string message_of(const CommError::Fields& f) {
  std::string text = fmt::format("{} #{}", name_of(f.op.op), f.op.sequence);
  if (!f.op.label.empty()) text += fmt::format(" \"{}\"", f.op.label);
  text += fmt::format(" on \"{}\" ({} ranks, {} bytes here): {}", f.comm, f.size, f.op.bytes,
                      name_of(f.kind));
  if (f.culprit >= 0) {
    const bool other_number = f.culprit_in_world >= 0 && f.comm != "world";
    text +=
        fmt::format(", rank {}{} ({})", f.culprit,
                    other_number ? fmt::format(", rank {} of the world", f.culprit_in_world) : "",
                    f.proved ? "proved" : "suspected");
  }
  const double seconds = std::chrono::duration<double>(f.elapsed).count();
  text += fmt::format(" after {:.2f} s: {}; this Comm is closed.", seconds, f.detail);
  if (f.kind == CommErrorKind::kMismatch) {
    return text + " Make every rank issue the same calls in the same order.";
  }
  return text + " Form a new one of the ranks that live, or restart from the last checkpoint.";
}

}  // namespace

std::string_view name_of(CommErrorKind kind) {
  constexpr std::string_view kNames[] = {"PeerLost", "Timeout", "Mismatch", "Aborted"};
  return kNames[static_cast<size_t>(kind)];
}

CommError::CommError(Fields fields) : Error(message_of(fields)), fields_(std::move(fields)) {}

}  // namespace dtensor::comm

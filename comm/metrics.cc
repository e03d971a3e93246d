#include "dtensor/comm/metrics.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <string_view>

namespace dtensor::comm {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

double seconds(std::chrono::nanoseconds d) { return std::chrono::duration<double>(d).count(); }

class Text {
 public:
  Text(const std::string& comm, int rank)
      : labels_(fmt::format("comm=\"{}\",rank=\"{}\"", escaped(comm), rank)) {}

  void family(std::string_view name, std::string_view help) {
    name_ = fmt::format("dtensor_comm_{}_total", name);
    out_ += fmt::format("# HELP {} {}\n# TYPE {} counter\n", name_, help, name_);
  }
  template <class T>
  void line(T value) {
    out_ += fmt::format("{}{{{}}} {}\n", name_, labels_, value);
  }
  // One line for each operation that was called.
  template <class F>
  void per_op(const Totals& totals, F&& value) {
    for (size_t op = 0; op < totals.size(); ++op) {
      if (totals[op].calls == 0) continue;
      out_ += fmt::format("{}{{{},op=\"{}\"}} {}\n", name_, labels_,
                          name_of(static_cast<OpKind>(op)), value(totals[op]));
    }
  }
  const std::string& out() const { return out_; }

 private:
  const std::string labels_;
  std::string name_;
  std::string out_;
};

}  // namespace

std::string metrics_text(const std::string& comm, int rank, const Totals& totals,
                         const Counters& counters) {
  Text text(comm, rank);
  text.family("calls", "Calls that have ended.");
  text.per_op(totals, [](const OpTotals& t) { return t.calls; });
  text.family("failures", "Calls that have failed.");
  text.per_op(totals, [](const OpTotals& t) { return t.failures; });
  text.family("buffer_bytes", "Bytes of this rank's buffers in these calls.");
  text.per_op(totals, [](const OpTotals& t) { return t.bytes; });
  text.family("queued_seconds", "Time from a call to its start.");
  text.per_op(totals, [](const OpTotals& t) { return seconds(t.queued); });
  text.family("running_seconds", "Time from its start to its end: moving data, and waiting.");
  text.per_op(totals, [](const OpTotals& t) { return seconds(t.running); });
  text.family("payload_bytes_sent", "Data sent, of this Comm and its groups.");
  text.line(counters.payload_bytes_sent);
  text.family("wire_bytes_sent", "Data and headers sent, of this Comm and its groups.");
  text.line(counters.wire_bytes_sent);
  return text.out();
}

}  // namespace dtensor::comm

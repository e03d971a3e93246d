#include "dtensor/comm/algorithms/frame.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtensor::comm {
namespace {

std::string call_text(const Header& h) {
  return fmt::format("rank {} is in #{} {}", h.rank, h.sequence, describe(h.key, h.label_text()));
}

// The header came over a wire: its enumerators and sizes are looked at before they are used.
bool is_sound(const Header& h) {
  return h.key.op <= static_cast<uint8_t>(OpKind::kShutdown) &&
         h.key.reduce <= static_cast<uint8_t>(ReduceOp::kProd) && h.key.dtype < kDTypes &&
         h.label_size <= h.label.size();
}

}  // namespace

Header make_header(const Call& call, uint64_t comm, int rank) {
  Header h;
  h.comm = comm;
  h.sequence = call.sequence;
  h.history = call.history;
  h.key = call.key;
  h.rank = rank;
  h.label_size = static_cast<uint32_t>(std::min(call.label.size(), h.label.size()));
  std::copy_n(call.label.data(), h.label_size, h.label.data());
  return h;
}

std::string difference(const Header& mine, int peer, const Header& theirs) {
  if (theirs.comm != mine.comm || !is_sound(theirs)) {
    return fmt::format("{}, rank {} sent what is no message of this Comm", call_text(mine), peer);
  }
  const bool same_call = theirs.sequence == mine.sequence && theirs.key.hash() == mine.key.hash();
  const bool receives = theirs.sends == mine.expects;
  const bool sends = theirs.expects == mine.sends;
  if (same_call && theirs.history == mine.history && receives && sends) return {};
  const std::string both = fmt::format("{}, {}", call_text(mine), call_text(theirs));
  if (!same_call) return both;
  if (theirs.history != mine.history) {
    return fmt::format("{}, but the calls before it were not the same", both);
  }
  const Header& from = receives ? mine : theirs;
  const Header& to = receives ? theirs : mine;
  return fmt::format("{}: rank {} sends {} bytes to rank {}, which expects {} or other dtypes",
                     both, from.rank, from.sent_bytes, to.rank, to.expected_bytes);
}

}  // namespace dtensor::comm

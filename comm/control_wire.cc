#include "dtensor/comm/control_wire.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "dtensor/base/error.h"

namespace dtensor::comm::internal {
namespace {

constexpr size_t kMaxFrameBytes = 1 << 20;
constexpr size_t kMaxTextBytes = 4096;

class Writer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_text(std::string_view text) {
    text = text.substr(0, kMaxTextBytes);
    put(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  const std::string& out() const { return out_; }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  bool get_bool() { return get<uint8_t>() != 0; }
  std::string get_text() { return std::string(take(get<uint32_t>())); }
  size_t left() const { return in_.size(); }

 private:
  std::string_view take(size_t bytes) {
    if (bytes > in_.size()) throw Error("a control message is cut short");
    const std::string_view out = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return out;
  }
  std::string_view in_;
};

bool has_comm(ControlKind k) {
  return k != ControlKind::kPing && k != ControlKind::kPong && k != ControlKind::kGoodbye;
}
bool has_nonce(ControlKind k) { return k == ControlKind::kAsk || k == ControlKind::kAnswer; }
bool has_position(ControlKind k) { return k == ControlKind::kAnswer || k == ControlKind::kClosed; }
bool has_verdict(ControlKind k) { return k == ControlKind::kPropose || k == ControlKind::kDecide; }

void put_position(Writer& w, const Position& p) {
  w.put(p.sequence);
  w.put(static_cast<uint8_t>(p.inside));
  w.put(static_cast<uint8_t>(p.closed));
  w.put(p.history);
  w.put_text(p.call);
}

Position get_position(Reader& r) {
  Position p;
  p.sequence = r.get<int64_t>();
  p.inside = r.get_bool();
  p.closed = r.get_bool();
  p.history = r.get<uint64_t>();
  p.call = r.get_text();
  return p;
}

void put_verdict(Writer& w, const ControlMessage& m) {
  w.put(static_cast<uint32_t>(m.members.size()));
  for (const int member : m.members) w.put(static_cast<int32_t>(member));
  w.put(static_cast<uint8_t>(m.verdict.kind));
  w.put(static_cast<int32_t>(m.verdict.culprit));
  w.put(static_cast<uint8_t>(m.verdict.proved));
  w.put(static_cast<uint8_t>(m.verdict.unheard));
  w.put_text(m.verdict.detail);
}

void get_verdict(Reader& r, ControlMessage& m) {
  const auto members = r.get<uint32_t>();
  if (members > r.left() / sizeof(int32_t)) throw Error("a control message is cut short");
  for (uint32_t i = 0; i < members; ++i) m.members.push_back(r.get<int32_t>());
  const auto kind = r.get<uint8_t>();
  if (kind > static_cast<uint8_t>(CommErrorKind::kAborted)) throw Error("no such verdict");
  m.verdict.kind = static_cast<CommErrorKind>(kind);
  m.verdict.culprit = r.get<int32_t>();
  m.verdict.proved = r.get_bool();
  m.verdict.unheard = r.get_bool();
  m.verdict.detail = r.get_text();
}

}  // namespace

std::string encode(const ControlMessage& m) {
  Writer w;
  w.put(static_cast<uint8_t>(m.kind));
  if (has_nonce(m.kind)) w.put(m.nonce);
  if (has_comm(m.kind)) w.put(m.comm);
  if (has_position(m.kind)) put_position(w, m.position);
  if (has_verdict(m.kind)) put_verdict(w, m);
  Writer frame;
  frame.put(static_cast<uint32_t>(w.out().size()));
  return frame.out() + w.out();
}

std::optional<ControlMessage> take_message(std::string& stream) {
  uint32_t bytes = 0;
  if (stream.size() < sizeof(bytes)) return std::nullopt;
  std::memcpy(&bytes, stream.data(), sizeof(bytes));
  if (bytes == 0 || bytes > kMaxFrameBytes) throw Error("no control message has this length");
  if (stream.size() < sizeof(bytes) + bytes) return std::nullopt;
  const std::string frame = stream.substr(sizeof(bytes), bytes);
  stream.erase(0, sizeof(bytes) + bytes);
  Reader r(frame);
  const auto kind = r.get<uint8_t>();
  if (kind > static_cast<uint8_t>(ControlKind::kDecide)) throw Error("no such control message");
  ControlMessage m;
  m.kind = static_cast<ControlKind>(kind);
  if (has_nonce(m.kind)) m.nonce = r.get<uint64_t>();
  if (has_comm(m.kind)) m.comm = r.get<uint64_t>();
  if (has_position(m.kind)) m.position = get_position(r);
  if (has_verdict(m.kind)) get_verdict(r, m);
  if (r.left() != 0) throw Error("a control message is too long");
  return m;
}

}  // namespace dtensor::comm::internal

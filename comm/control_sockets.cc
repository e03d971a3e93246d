#include "dtensor/comm/control_sockets.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/comm/control_wire.h"

namespace dtensor::comm {
namespace {

using internal::ControlKind;
using internal::ControlMessage;
using internal::Fd;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long an accusation is doubted by who still hears the accused.
constexpr milliseconds kDoubt{300};
constexpr milliseconds kFarewell{500};  // for the last words when a Control goes

// One other rank.
struct Peer {
  // Of the thread.
  Fd fd;
  std::string in;
  Clock::time_point heard;
  // Guarded by SocketControl::mutex_.
  std::string out;
  std::optional<Control::Loss> loss;
  bool left = false;  // said goodbye
  std::map<uint64_t, Position> closed;

  bool living() const { return !loss && !left; }
};

struct Question {
  std::vector<std::optional<Position>> answers;  // by rank
};

struct Proposal {
  uint64_t comm = 0;
  std::vector<int> members;
  Verdict verdict;
  int coordinator = 0;
};

// A proposal or a decision that is doubted.
struct Doubted {
  int from = -1;
  ControlMessage message;
  Clock::time_point until;
};

// What this rank answers on the Comms that it has or had.
class Answers {
 public:
  void serve(uint64_t comm, std::function<Position()> where) {
    const std::lock_guard lock(mutex_);
    served_[comm] = {std::move(where), {}};
  }
  void close(uint64_t comm) {
    const std::lock_guard lock(mutex_);
    Served& s = served_[comm];
    s.last = s.where();
    s.last.closed = true;
    s.last.inside = false;
    s.where = nullptr;
  }
  Position at(uint64_t comm) const {
    const std::lock_guard lock(mutex_);
    const auto it = served_.find(comm);
    if (it == served_.end()) return {};
    return it->second.where ? it->second.where() : it->second.last;
  }
  std::vector<std::pair<uint64_t, Position>> closed() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<uint64_t, Position>> out;
    for (const auto& [comm, s] : served_) {
      if (!s.where) out.emplace_back(comm, s.last);
    }
    return out;
  }

 private:
  struct Served {
    std::function<Position()> where;
    Position last;
  };
  // Held over where(), which is short, so that closing waits for an answer under way.
  mutable std::mutex mutex_;
  std::map<uint64_t, Served> served_;  // guarded by mutex_
};

class Subscribers {
 public:
  int64_t add(std::function<void()> f) {
    const std::lock_guard lock(mutex_);
    subscribers_[++last_] = std::move(f);
    return last_;
  }
  void remove(int64_t id) {
    const std::lock_guard lock(mutex_);
    subscribers_.erase(id);
  }
  void tell() {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, f] : subscribers_) f();
  }

 private:
  std::mutex mutex_;  // held over the calls, so that removing waits for one under way
  std::map<int64_t, std::function<void()>> subscribers_;  // guarded by mutex_
  int64_t last_ = 0;                                      // guarded by mutex_
};

class SocketControl : public Control {
 public:
  SocketControl(std::vector<Fd> peers, const ControlSocketsOptions& options)
      : rank_(options.rank),
        liveness_(options.liveness),
        tick_(std::clamp(options.liveness / 10, milliseconds(10), milliseconds(500))),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        peers_(peers.size()) {
    internal_check(static_cast<bool>(wake_), "an eventfd can be made");
    for (size_t r = 0; r < peers.size(); ++r) {
      peers_[r].fd = std::move(peers[r]);
      peers_[r].heard = Clock::now();
    }
    thread_ = std::thread([this] { loop(); });
  }

  ~SocketControl() override {
    stop_ = true;
    wake();
    thread_.join();
  }
  SocketControl(const SocketControl&) = delete;
  SocketControl& operator=(const SocketControl&) = delete;

  std::shared_ptr<void> serve(uint64_t comm, std::function<Position()> where) override {
    answers_->serve(comm, std::move(where));
    return {nullptr, [answers = answers_, comm](void*) { answers->close(comm); }};
  }

  std::vector<std::optional<Position>> ask(uint64_t comm, std::span<const int> ranks,
                                           std::chrono::nanoseconds wait) override;
  Verdict settle(uint64_t comm, std::span<const int> members, const Verdict& proposal,
                 std::chrono::nanoseconds wait) override;

  std::optional<Verdict> verdict(uint64_t comm) override {
    const std::lock_guard lock(mutex_);
    const auto it = verdicts_.find(comm);
    if (it == verdicts_.end()) return std::nullopt;
    return it->second;
  }

  std::optional<Loss> lost(int rank) override {
    const std::lock_guard lock(mutex_);
    return peers_[static_cast<size_t>(rank)].loss;
  }

  std::shared_ptr<void> subscribe(std::function<void()> on_event) override {
    const int64_t id = subscribers_->add(std::move(on_event));
    return {nullptr, [subscribers = subscribers_, id](void*) { subscribers->remove(id); }};
  }

 private:
  void wake() { eventfd_write(wake_.get(), 1); }
  int size() const { return static_cast<int>(peers_.size()); }
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  // Of the calling threads, with mutex_ held.
  int coordinator_of(std::span<const int> members, const Verdict& proposal,
                     const std::vector<int>& silent);

  // Of the thread.
  void loop();
  void wait_for_events();
  void read_all(Clock::time_point now);
  bool read(Peer& p, Clock::time_point now);
  void handle(int from, ControlMessage message);
  void lose(Peer& p, bool proved, const std::string& detail);
  void take_proposals();
  void weigh_doubted(Clock::time_point now);
  void look_for_silence(Clock::time_point now);
  void flush();
  void say_goodbye();
  // With mutex_ held.
  bool is_doubtful(const Verdict& verdict, Clock::time_point now);
  void take_verdict(int from, const ControlMessage& message);
  void send(int to, const ControlMessage& message);
  void decide(uint64_t comm, std::span<const int> members, const Verdict& verdict, int except);

  const int rank_;
  const milliseconds liveness_;
  const milliseconds tick_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();
  const std::shared_ptr<Subscribers> subscribers_ = std::make_shared<Subscribers>();
  Fd wake_;
  std::atomic<bool> stop_{false};
  bool news_ = false;  // of the thread: a verdict or a loss to tell of
  Clock::time_point next_ping_;
  std::vector<Doubted> doubted_;  // of the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;                 // parts of it guarded by mutex_
  std::map<uint64_t, Verdict> verdicts_;    // guarded by mutex_
  std::map<uint64_t, Question> questions_;  // by nonce; guarded by mutex_
  uint64_t last_nonce_ = 0;                 // guarded by mutex_
  std::deque<Proposal> proposals_;          // guarded by mutex_
  // Comms whose verdict this rank, the lowest, has left to another; guarded by mutex_.
  std::set<uint64_t> handed_on_;
  std::thread thread_;
};

std::vector<std::optional<Position>> SocketControl::ask(uint64_t comm, std::span<const int> ranks,
                                                        std::chrono::nanoseconds wait) {
  const auto until = Clock::now() + wait;
  const Position mine = answers_->at(comm);
  std::unique_lock lock(mutex_);
  const uint64_t nonce = ++last_nonce_;
  Question& question = questions_[nonce];
  question.answers.resize(peers_.size());
  for (const int r : ranks) {
    if (r == rank_) {
      question.answers[static_cast<size_t>(r)] = mine;
    } else if (peer(r).living()) {
      send(r, {.kind = ControlKind::kAsk, .nonce = nonce, .comm = comm});
    }
  }
  wake();
  const auto all_there = [&] {
    return std::ranges::all_of(ranks, [&](int r) {
      return question.answers[static_cast<size_t>(r)].has_value() || !peer(r).living();
    });
  };
  changed_.wait_until(lock, until, all_there);
  std::vector<std::optional<Position>> out;
  for (const int r : ranks) {
    auto& answer = question.answers[static_cast<size_t>(r)];
    if (!answer && peer(r).left) {  // before the question, or meanwhile
      answer = peer(r).closed[comm];
      answer->closed = true;
    }
    out.push_back(answer);
  }
  questions_.erase(nonce);
  return out;
}

int SocketControl::coordinator_of(std::span<const int> members, const Verdict& proposal,
                                  const std::vector<int>& silent) {
  // Of two that blame each other for a connection, and are both heard, the lower one decides.
  const bool accuses = proposal.kind == CommErrorKind::kTimeout ||
                       (proposal.kind == CommErrorKind::kPeerLost && proposal.unheard);
  const int none = size();
  int other = none;
  for (const int r : members) {
    const bool fit = r != rank_ && peer(r).living() && !(accuses && r == proposal.culprit) &&
                     std::ranges::find(silent, r) == silent.end();
    if (fit) other = std::min(other, r);
  }
  // That it does not hear a rank, nobody decides alone where a third one can tell: where only the
  // connection between two is gone, each of them would decide that it is the other.
  if (other != none && proposal.unheard) return other;
  return std::min(rank_, other);
}

Verdict SocketControl::settle(uint64_t comm, std::span<const int> members, const Verdict& proposal,
                              std::chrono::nanoseconds wait) {
  const auto end = Clock::now() + wait;
  // With one coordinator: it may be stopped, or doubt what it is told.
  const auto patience = wait / 4 + (proposal.unheard ? kDoubt : milliseconds(0));
  std::vector<int> silent;
  int asked = -1;
  auto until = Clock::now() + patience;
  std::unique_lock lock(mutex_);
  while (!verdicts_.contains(comm)) {
    int coordinator = coordinator_of(members, proposal, silent);
    const auto now = Clock::now();
    if (coordinator == asked && now >= until) {
      silent.push_back(asked);
      coordinator = coordinator_of(members, proposal, silent);
    }
    if (now >= end) coordinator = rank_;  // nobody answers: what this rank saw is all there is
    if (coordinator > rank_) handed_on_.insert(comm);
    if (coordinator != asked) {
      proposals_.push_back({comm, {members.begin(), members.end()}, proposal, coordinator});
      asked = coordinator;
      until = now + patience;
      wake();
    }
    changed_.wait_until(lock, until);
  }
  return verdicts_[comm];
}

void SocketControl::loop() {
  auto last = Clock::now();
  while (!stop_) {
    wait_for_events();
    const auto now = Clock::now();
    // This process itself was stopped, not all the others.
    if (now - last > tick_ + liveness_ / 2) {
      for (Peer& p : peers_) p.heard = now;
    }
    last = now;
    read_all(now);
    weigh_doubted(now);
    // Only now, so that a verdict that waited in a socket comes before what this rank believes.
    take_proposals();
    look_for_silence(now);
    flush();
    changed_.notify_all();
    if (std::exchange(news_, false)) subscribers_->tell();
  }
  say_goodbye();
}

void SocketControl::wait_for_events() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Peer& p : peers_) {
      const int events = p.out.empty() ? POLLIN : POLLIN | POLLOUT;
      polled.push_back({p.fd.get(), static_cast<short>(events), 0});  // -1 is passed over
    }
  }
  const milliseconds wait = doubted_.empty() ? tick_ : milliseconds(10);
  poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
}

void SocketControl::read_all(Clock::time_point now) {
  for (int r = 0; r < size(); ++r) {
    Peer& p = peer(r);
    if (!p.fd) continue;
    const bool open = read(p, now);
    const int error = errno;
    try {
      while (auto message = internal::take_message(p.in)) handle(r, std::move(*message));
    } catch (const Error& e) {
      lose(p, true, fmt::format("it sent what is no control message: {}", e.what()));
    }
    if (!open && p.fd) {
      const std::string how = error == 0 ? "connection closed" : strerror(error);
      // With a third rank the two are told apart by whom that one hears.
      lose(p, true,
           fmt::format("{}; its process has ended{}", how,
                       size() == 2 ? ", or only the connection between the two has" : ""));
    }
  }
}

// Takes all that is there; false at the end of the stream, with errno 0, or of an error.
bool SocketControl::read(Peer& p, Clock::time_point now) {
  char block[16384];
  for (;;) {
    const ssize_t n = recv(p.fd.get(), block, sizeof(block), 0);
    if (n > 0) {
      p.heard = now;
      p.in.append(block, static_cast<size_t>(n));
    } else if (n == 0) {
      errno = 0;
      return false;
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
}

void SocketControl::handle(int from, ControlMessage m) {
  switch (m.kind) {
    case ControlKind::kPing: {
      const std::lock_guard lock(mutex_);
      return send(from, {.kind = ControlKind::kPong});
    }
    case ControlKind::kPong:
      return;
    case ControlKind::kAsk: {
      const Position mine = answers_->at(m.comm);
      const std::lock_guard lock(mutex_);
      return send(from, {ControlKind::kAnswer, m.nonce, m.comm, mine, {}, {}});
    }
    case ControlKind::kAnswer: {
      const std::lock_guard lock(mutex_);
      const auto it = questions_.find(m.nonce);
      if (it == questions_.end()) return;
      it->second.answers[static_cast<size_t>(from)] = std::move(m.position);
      return;
    }
    case ControlKind::kClosed: {
      const std::lock_guard lock(mutex_);
      peer(from).closed[m.comm] = std::move(m.position);
      return;
    }
    case ControlKind::kGoodbye: {
      const std::lock_guard lock(mutex_);
      peer(from).left = true;
      return;
    }
    case ControlKind::kPropose:
    case ControlKind::kDecide: {
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      if (!verdicts_.contains(m.comm) && is_doubtful(m.verdict, now)) {
        doubted_.push_back({from, std::move(m), now + kDoubt});
        return;
      }
      return take_verdict(from, m);
    }
  }
}

// Pings come several times in half the limit: who was heard in that time lives.
bool SocketControl::is_doubtful(const Verdict& verdict, Clock::time_point now) {
  const int r = verdict.culprit;
  return verdict.unheard && r >= 0 && r < size() && r != rank_ && peer(r).living() &&
         now - peer(r).heard < liveness_ / 2;
}

void SocketControl::take_verdict(int from, const ControlMessage& m) {
  const auto it = verdicts_.find(m.comm);
  if (it == verdicts_.end()) {
    // Who decides is another one now; it will tell the sender, too.
    if (m.kind == ControlKind::kPropose && handed_on_.contains(m.comm)) return;
    decide(m.comm, m.members, m.verdict, m.kind == ControlKind::kDecide ? from : -1);
  } else if (m.kind == ControlKind::kPropose) {
    send(from, {ControlKind::kDecide, 0, m.comm, {}, m.members, it->second});
  }
}

void SocketControl::weigh_doubted(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  std::vector<Doubted> doubted = std::exchange(doubted_, {});
  for (Doubted& d : doubted) {
    const auto& accuser = peer(d.from).loss;
    if (verdicts_.contains(d.message.comm) || !is_doubtful(d.message.verdict, now)) {
      take_verdict(d.from, d.message);
    } else if (accuser && accuser->proved) {
      continue;  // it was the one that was cut off
    } else if (now >= d.until) {
      d.message.verdict.proved = false;
      take_verdict(d.from, d.message);
    } else {
      doubted_.push_back(std::move(d));
    }
  }
}

void SocketControl::send(int to, const ControlMessage& message) {
  if (to < 0 || to >= size() || to == rank_) return;
  Peer& p = peer(to);
  if (!p.left && !(p.loss && p.loss->proved)) p.out += internal::encode(message);
}

void SocketControl::decide(uint64_t comm, std::span<const int> members, const Verdict& verdict,
                           int except) {
  verdicts_[comm] = verdict;
  news_ = true;
  for (const int r : members) {
    if (r != except) {
      send(r, {ControlKind::kDecide, 0, comm, {}, {members.begin(), members.end()}, verdict});
    }
  }
}

void SocketControl::take_proposals() {
  const std::lock_guard lock(mutex_);
  while (!proposals_.empty()) {
    const Proposal p = std::move(proposals_.front());
    proposals_.pop_front();
    if (verdicts_.contains(p.comm)) continue;
    if (p.coordinator == rank_) {
      decide(p.comm, p.members, p.verdict, -1);
    } else {
      send(p.coordinator, {ControlKind::kPropose, 0, p.comm, {}, p.members, p.verdict});
    }
  }
}

void SocketControl::lose(Peer& p, bool proved, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  if (proved) p.fd.reset();
  if (p.left || (p.loss && (p.loss->proved || !proved))) return;
  p.loss = Loss{proved, detail};
  news_ = true;
}

void SocketControl::look_for_silence(Clock::time_point now) {
  const bool ping = now >= next_ping_;
  if (ping) next_ping_ = now + liveness_ / 5;
  for (int r = 0; r < size(); ++r) {
    Peer& p = peer(r);
    if (!p.fd) continue;
    if (now - p.heard > liveness_) {
      lose(p, false,
           fmt::format("it has not answered for {:.1f} s",
                       std::chrono::duration<double>(now - p.heard).count()));
    }
    const std::lock_guard lock(mutex_);
    if (ping && p.out.empty()) send(r, {.kind = ControlKind::kPing});
  }
}

void SocketControl::flush() {
  const std::lock_guard lock(mutex_);
  for (Peer& p : peers_) {
    while (p.fd && !p.out.empty()) {
      const ssize_t n = ::send(p.fd.get(), p.out.data(), p.out.size(), MSG_NOSIGNAL);
      if (n > 0) {
        p.out.erase(0, static_cast<size_t>(n));
      } else if (errno != EINTR) {
        // Full, or broken; then reading tells, after what the peer said last.
        if (errno != EAGAIN) p.out.clear();
        break;
      }
    }
  }
}

void SocketControl::say_goodbye() {
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size(); ++r) {
      for (const auto& [comm, position] : answers_->closed()) {
        send(r, {ControlKind::kClosed, 0, comm, position, {}, {}});
      }
      send(r, {.kind = ControlKind::kGoodbye});
    }
  }
  const auto until = Clock::now() + kFarewell;
  const auto unsent = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(peers_, [](const Peer& p) { return p.fd && !p.out.empty(); });
  };
  for (flush(); unsent() && Clock::now() < until; flush()) {
    wait_for_events();
    read_all(Clock::now());
  }
  for (Peer& p : peers_) {
    if (p.fd) shutdown(p.fd.get(), SHUT_WR);
  }
}

}  // namespace

std::shared_ptr<Control> make_control_sockets(std::vector<Fd> peers,
                                              const ControlSocketsOptions& options) {
  return std::make_shared<SocketControl>(std::move(peers), options);
}

}  // namespace dtensor::comm

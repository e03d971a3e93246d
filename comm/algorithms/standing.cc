#include "dtensor/comm/algorithms/standing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dtensor/comm/hash.h"

namespace dtensor::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{50};
// How much later than the operation's deadline a transfer gives up by itself.
constexpr std::chrono::seconds kBackstop{60};

std::string place_of(const Position& p) {
  if (p.sequence < 0) return p.closed ? "closed its Comm before any call" : "has made no call yet";
  return fmt::format("{} #{} {}",
                     p.inside   ? "is in"
                     : p.closed ? "closed its Comm after"
                                : "is after",
                     p.sequence, p.call);
}

}  // namespace

// The Watch brings a verdict soon, and this asks for one that is there now.
void Standing::check_ended() {
  if (auto verdict = setting_.control->verdict(setting_.comm)) end(std::move(*verdict));
  const std::lock_guard lock(mutex_);
  if (verdict_ || abort_reason_) {
    throw TransportError(TransportError::Kind::kInterrupted, -1, "the Comm has ended");
  }
}

void Standing::enter(const Call& call) {
  check_ended();
  const std::lock_guard lock(mutex_);
  position_.sequence = call.sequence;
  position_.inside = true;
  position_.history = internal::mix(call.history, call.key.hash());
  key_ = call.key;
  label_ = call.label;
  deadline_ = call.deadline;
  next_look_ = Clock::now() + setting_.stall;
}

void Standing::leave() {
  check_ended();
  const std::lock_guard lock(mutex_);
  position_.inside = false;
}

void Standing::wait(Transfer& transfer, int peer) {
  if (transfer.ready()) return transfer.wait(Deadline::after(kBackstop));
  Deadline backstop;
  {
    const std::lock_guard lock(mutex_);
    if (verdict_ || abort_reason_) transfer.interrupt();
    waiting_ = &transfer;
    waiting_for_ = peer;
    backstop = Deadline::after(deadline_.left() + kBackstop);
  }
  try {
    transfer.wait(backstop);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
    throw;
  }
  const std::lock_guard lock(mutex_);
  waiting_ = nullptr;
}

Position Standing::where() const {
  const std::lock_guard lock(mutex_);
  Position position = position_;
  if (position.sequence >= 0) position.call = describe(key_, label_);
  return position;
}

void Standing::request_abort(std::string reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_) abort_reason_ = std::move(reason);
  if (waiting_ != nullptr) waiting_->interrupt();
}

Verdict Standing::own_abort(std::string reason) const {
  return {.kind = CommErrorKind::kAborted,
          .culprit = setting_.members[static_cast<size_t>(setting_.rank)],
          .proved = true,
          .detail = std::move(reason)};
}

void Standing::finish_abort() noexcept {
  try {
    std::string reason;
    {
      const std::lock_guard lock(mutex_);
      if (!abort_reason_ || verdict_) return;
      reason = *abort_reason_;
    }
    conclude(own_abort(std::move(reason)));
  } catch (...) {  // NOLINT(bugprone-empty-catch): then the others see that this rank has left
  }
}

std::optional<Verdict> Standing::ended() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

void Standing::end(Verdict verdict) {
  std::function<void(const Verdict&)> told;
  {
    const std::lock_guard lock(mutex_);
    if (verdict_) return;
    verdict_ = verdict;
    if (waiting_ != nullptr) waiting_->interrupt();
    ended_changed_.notify_all();
    told = std::move(told_);
  }
  if (told) told(verdict);
}

void Standing::on_end(std::function<void(const Verdict&)> told) {
  std::optional<Verdict> verdict;
  {
    const std::lock_guard lock(mutex_);
    verdict = verdict_;
    if (!verdict) told_ = std::move(told);
  }
  if (verdict) told(*verdict);
}

Verdict Standing::conclude(const Verdict& proposal) {
  Verdict standing =
      setting_.control->settle(setting_.comm, setting_.members, proposal, setting_.answer);
  end(standing);
  return *ended();
}

// A header that differs shows one pair. Who of the two is wrong, the others tell: the culprit is
// the first rank whose calls so far are not those of most.
Verdict Standing::conclude_mismatch(int peer, const std::string& detail) {
  if (auto verdict = setting_.control->verdict(setting_.comm)) {
    end(*verdict);
    return *ended();
  }
  const Position mine = where();
  const auto answers = setting_.control->ask(setting_.comm, setting_.members, setting_.answer);
  std::vector<int> differ;
  int alike = 0;
  for (size_t r = 0; r < answers.size(); ++r) {
    const auto& p = answers[r];
    if (static_cast<int>(r) == setting_.rank ||
        (p && p->sequence == mine.sequence && p->history == mine.history)) {
      ++alike;
    } else if (static_cast<int>(r) == peer || (p && p->sequence == mine.sequence)) {
      differ.push_back(static_cast<int>(r));
    }
  }
  Verdict proposal{.kind = CommErrorKind::kMismatch, .proved = true, .detail = detail};
  const int size = static_cast<int>(setting_.members.size());
  if (2 * alike > size && !differ.empty()) {
    proposal.culprit = setting_.members[static_cast<size_t>(differ.front())];
  } else if (alike == 1 && size > 2 && 2 * static_cast<int>(differ.size()) > size) {
    proposal.culprit = setting_.members[static_cast<size_t>(setting_.rank)];
  }
  return conclude(proposal);
}

// The connection may have gone because the peer left after a fault elsewhere: what the Control
// knows counts more than what this rank saw.
Verdict Standing::conclude_transport(const TransportError& error) {
  {
    std::unique_lock lock(mutex_);
    const auto patience =
        error.kind == TransportError::Kind::kInterrupted ? setting_.answer * 10 : setting_.answer;
    ended_changed_.wait_for(lock, patience, [&] { return verdict_.has_value(); });
    if (verdict_) return *verdict_;
  }
  return conclude({.kind = error.kind == TransportError::Kind::kTimeout ? CommErrorKind::kTimeout
                                                                        : CommErrorKind::kPeerLost,
                   .culprit = error.peer,
                   .detail = error.what()});
}

void Standing::look() {
  if (ended()) return;
  if (auto verdict = setting_.control->verdict(setting_.comm)) return end(std::move(*verdict));
  bool overdue = false;
  bool stalls = false;
  std::optional<std::string> abort_reason;
  {
    const std::lock_guard lock(mutex_);
    abort_reason = abort_reason_;
    overdue = position_.inside && deadline_.expired();
    stalls = position_.inside && Clock::now() >= next_look_;
    if (stalls) next_look_ = Clock::now() + setting_.stall;
  }
  if (abort_reason) {
    conclude(own_abort(*std::move(abort_reason)));
    return;
  }
  if (const auto verdict = ended_above()) {
    conclude(*verdict);
    return;
  }
  for (const int member : setting_.members) {
    if (const auto loss = setting_.control->lost(member)) {
      conclude({CommErrorKind::kPeerLost, member, loss->proved, loss->detail, true});
      return;
    }
  }
  if (!overdue && !stalls) return;
  if (auto fault = find_fault(overdue)) conclude(*fault);
}

// A rank that aborted the Comm above, or was lost there, makes no calls here either; where it is no
// member, this Comm goes on.
std::optional<Verdict> Standing::ended_above() const {
  for (const uint64_t ancestor : setting_.ancestors) {
    auto verdict = setting_.control->verdict(ancestor);
    if (verdict &&
        (verdict->kind == CommErrorKind::kAborted || verdict->kind == CommErrorKind::kPeerLost) &&
        std::ranges::find(setting_.members, verdict->culprit) != setting_.members.end()) {
      return verdict;
    }
  }
  return std::nullopt;
}

// Asks everybody. A rank at the same call with another history made other calls; one that closed
// its Comm before this call will not come. Past the deadline, whoever is furthest behind is blamed.
std::optional<Verdict> Standing::find_fault(bool overdue) const {
  const Position mine = where();
  const auto answers = setting_.control->ask(setting_.comm, setting_.members, setting_.answer);
  const auto world_rank = [&](size_t r) { return setting_.members[r]; };
  for (size_t r = 0; r < answers.size(); ++r) {
    const auto& p = answers[r];
    if (!p || static_cast<int>(r) == setting_.rank) continue;
    if (p->sequence == mine.sequence && p->history != mine.history) {
      return Verdict{
          CommErrorKind::kMismatch, -1, true,
          fmt::format("rank {} {}, rank {} {}", r, place_of(*p), setting_.rank, place_of(mine))};
    }
    if (p->closed && p->sequence < mine.sequence) {
      return Verdict{CommErrorKind::kPeerLost, world_rank(r), true,
                     fmt::format("it {}{}", place_of(*p), losses_elsewhere())};
    }
  }
  if (!overdue) return std::nullopt;
  const auto progress = [](const std::optional<Position>& p) {
    return !p ? int64_t{-2} : 2 * p->sequence + (p->inside ? 0 : 1);
  };
  // Where all are in this call, the one that this rank waits for.
  size_t behind = static_cast<size_t>(std::max(0, waiting_for()));
  for (size_t r = 0; r < answers.size(); ++r) {
    if (static_cast<int>(r) == setting_.rank) continue;
    if (progress(answers[r]) < progress(answers[behind])) behind = r;
  }
  const auto& p = answers[behind];
  return Verdict{CommErrorKind::kTimeout, world_rank(behind), false,
                 p ? fmt::format("the deadline passed; it {}, rank {} {}", place_of(*p),
                                 setting_.rank, place_of(mine))
                   : "the deadline passed; it does not answer"};
}

// A rank that left may have done so because of another, which is no member of this Comm.
std::string Standing::losses_elsewhere() const {
  std::string text;
  for (int r = 0; r < setting_.world_size; ++r) {
    if (const auto loss = setting_.control->lost(r)) {
      text += fmt::format("; rank {} of the world was lost before: {}", r, loss->detail);
    }
  }
  return text;
}

int Standing::waiting_for() const {
  const std::lock_guard lock(mutex_);
  return waiting_for_;
}

Watch::Watch(std::shared_ptr<Control> control)
    : subscription_(control->subscribe([this] { wake(); })), thread_([this] { loop(); }) {}

Watch::~Watch() {
  subscription_.reset();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watch::add(std::weak_ptr<Standing> standing) {
  {
    const std::lock_guard lock(mutex_);
    standings_.push_back(std::move(standing));
  }
  wake();
}

void Watch::wake() noexcept {
  const std::lock_guard lock(mutex_);
  news_ = true;
  changed_.notify_all();
}

void Watch::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, kTick, [&] { return stop_ || news_; });
    if (stop_) return;
    news_ = false;
    std::erase_if(standings_, [](const auto& weak) { return weak.expired(); });
    const auto standings = standings_;
    lock.unlock();
    for (const auto& weak : standings) {
      if (const auto standing = weak.lock()) standing->look();
    }
    lock.lock();
  }
}

}  // namespace dtensor::comm

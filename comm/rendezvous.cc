#include "dtensor/comm/rendezvous.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/endpoint.h"
#include "dtensor/comm/socket.h"

namespace dtensor::comm {
namespace {

using Clock = Deadline::Clock;
// Generations before this one that are marked as over.
constexpr int64_t kMarked = 256;

std::string random_hex() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// A participant as lines "name=value"; `nonce` tells two processes of one rank apart.
std::string encode(const Participant& p) {
  return fmt::format(
      "size={}\nbackend={}\nbackend_version={}\nlibrary_version={}\nhost={}\n"
      "address={}\nnonce={}",
      p.size, p.backend, p.backend_version, p.library_version, p.host, p.address, random_hex());
}

Participant decode(int rank, int64_t generation, std::string_view text) {
  std::map<std::string, std::string, std::less<>> values;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    values.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  Participant p;
  p.rank = rank;
  p.generation = generation;
  p.size = static_cast<int>(parse_integer("size", values["size"], 0, INT32_MAX));
  p.backend = values["backend"];
  p.backend_version = values["backend_version"];
  p.library_version = values["library_version"];
  p.host = values["host"];
  p.address = values["address"];
  return p;
}

class Rendezvous {
 public:
  Rendezvous(Store& store, const Participant& me, Deadline deadline)
      : store_(store),
        me_(me),
        deadline_(deadline.resolved()),
        prefix_(fmt::format("world/{}/", me.generation)) {}

  Meeting run() {
    refuse_if_over();
    if (me_.rank == 0) mark_older_as_over();
    introduce();
    Meeting meeting;
    meeting.participants = wait_for_all();
    meeting.key_prefix = prefix_;
    if (me_.rank == 0) store_.set(prefix_ + "run", new_run_id());
    meeting.run_id = store_.get(prefix_ + "run", deadline_);
    return meeting;
  }

 private:
  [[noreturn]] void fail(CommErrorKind kind, int culprit, const std::string& detail) const {
    CommError::Fields f;
    f.kind = kind;
    f.culprit = culprit;
    f.proved = kind == CommErrorKind::kMismatch;
    f.op.label = "rendezvous";
    f.elapsed = Clock::now() - began_;
    f.comm = "world";
    f.size = me_.size;
    f.detail = detail;
    throw CommError(std::move(f));
  }

  static std::string new_run_id() {
    return fmt::format("{:%Y%m%dT%H%M%SZ}-{}", fmt::gmtime(std::time(nullptr)),
                       random_hex().substr(0, 8));
  }

  static std::string over_key(int64_t generation) { return fmt::format("over/{}", generation); }

  void refuse_if_over() {
    if (!store_.has(over_key(me_.generation))) return;
    fail(CommErrorKind::kMismatch, me_.rank,
         fmt::format("rank {} comes with generation {}, which is over: a later one has formed",
                     me_.rank, me_.generation));
  }

  void mark_older_as_over() {
    const int64_t oldest = std::max(int64_t{0}, me_.generation - kMarked);
    for (int64_t g = me_.generation - 1; g >= oldest; --g) {
      if (store_.has(over_key(g))) break;
      store_.set(over_key(g), "1");
    }
  }

  void introduce() {
    const std::string key = hello_key(me_.rank);
    try {
      store_.set(key, encode(me_));
    } catch (const ArgumentError&) {
      throw;
    } catch (const Error& e) {
      if (!store_.has(key)) throw;
      fail(CommErrorKind::kMismatch, me_.rank,
           fmt::format("a rank {} of generation {} has come to this store before: two processes "
                       "have one rank, or the store is of an earlier run ({})",
                       me_.rank, me_.generation, e.what()));
    }
  }

  std::string hello_key(int rank) const { return fmt::format("{}hello/{}", prefix_, rank); }

  // Looks at all of them again and again, so that one who is there and does not fit is found even
  // where another never comes.
  std::vector<Participant> wait_for_all() {
    std::vector<std::optional<Participant>> found(static_cast<size_t>(me_.size));
    auto pause = std::chrono::milliseconds(1);
    for (;;) {
      look_for(found);
      const std::vector<int> absent = absent_of(found);
      if (absent.empty()) break;
      if (deadline_.expired()) fail_without(absent, "");
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline_.left()));
      pause = std::min(pause * 2, std::chrono::milliseconds(20));
    }
    std::vector<Participant> out;
    for (auto& p : found) out.push_back(std::move(*p));
    return out;
  }

  void look_for(std::vector<std::optional<Participant>>& found) {
    try {
      for (int r = 0; r < me_.size; ++r) {
        auto& slot = found[static_cast<size_t>(r)];
        if (slot || !store_.has(hello_key(r))) continue;
        slot = decode(r, me_.generation, store_.get(hello_key(r), deadline_));
        compare(*slot);
      }
      if (!absent_of(found).empty()) refuse_if_over();
    } catch (const CommError&) {
      throw;
    } catch (const ArgumentError&) {
      throw;
    } catch (const Error& e) {
      // Who serves the store may have come to its deadline a moment before this rank.
      const std::vector<int> absent = absent_of(found);
      if (absent.empty()) throw;
      fail_without(absent, fmt::format("; then {}", e.what()));
    }
  }

  static std::vector<int> absent_of(const std::vector<std::optional<Participant>>& found) {
    std::vector<int> absent;
    for (size_t r = 0; r < found.size(); ++r) {
      if (!found[r]) absent.push_back(static_cast<int>(r));
    }
    return absent;
  }

  [[noreturn]] void fail_without(const std::vector<int>& absent, const std::string& more) const {
    fail(CommErrorKind::kTimeout, absent.front(),
         fmt::format("of {} ranks, rank {} did not come to the rendezvous (generation {}){}",
                     me_.size, fmt::join(absent, ", "), me_.generation, more));
  }

  void compare(const Participant& other) const {
    const auto differ = [&](std::string_view what, const auto& theirs, const auto& mine) {
      if (theirs == mine) return;
      fail(CommErrorKind::kMismatch, other.rank,
           fmt::format("rank {} has {} {}, rank {} has {}", other.rank, what, theirs, me_.rank,
                       mine));
    };
    differ("world size", other.size, me_.size);
    differ("dtensor version", other.library_version, me_.library_version);
    differ("backend", other.backend, me_.backend);
    differ(me_.backend + " version", other.backend_version, me_.backend_version);
    if (other.host == me_.host) return;
    for (const Participant* p : {&other, &me_}) {
      if (!internal::is_loopback(p->address)) continue;
      fail(CommErrorKind::kMismatch, p->rank,
           fmt::format("rank {} gives the loopback address {}, which the other machine of rank {} "
                       "cannot reach; say interface= or address= in the comm URL",
                       p->rank, p->address, p == &me_ ? other.rank : me_.rank));
    }
  }

  Store& store_;
  const Participant& me_;
  const Deadline deadline_;
  const std::string prefix_;
  const Clock::time_point began_ = Clock::now();
};

}  // namespace

std::string Participant::this_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return fmt::format("{}/{}", name.data(), boot);
}

Meeting meet(Store& store, const Participant& me, Deadline deadline) {
  return Rendezvous(store, me, deadline).run();
}

}  // namespace dtensor::comm

#include "dtensor/comm/greeting.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::comm::internal {
namespace {

constexpr uint64_t kTag = 0x6772656574ULL;

// Sends of(r) to every other rank r, and returns what each sent; all have one size.
std::vector<std::string> swap(Transport& transport, const std::function<std::string(int)>& of,
                              Deadline deadline) {
  const auto size = static_cast<size_t>(transport.size());
  std::vector<std::string> sent(size);
  std::vector<std::string> got(size);
  std::vector<std::unique_ptr<Transfer>> transfers;  // last: they use the memory above
  for (int r = 0; r < transport.size(); ++r) {
    if (r == transport.rank()) continue;
    std::string& out = sent[static_cast<size_t>(r)] = of(r);
    std::string& in = got[static_cast<size_t>(r)];
    in.resize(out.size());
    const auto bytes = static_cast<int64_t>(out.size());
    transfers.push_back(transport.receive(r, kTag, in.data(), bytes));
    transfers.push_back(transport.send(r, kTag, out.data(), bytes));
  }
  for (const auto& t : transfers) t->wait(deadline);
  return got;
}

}  // namespace

void greet_all(Transport& transport, const std::string& backend, const std::string& token,
               Deadline deadline) {
  const int rank = transport.rank();
  const auto greeting = [&](int of) { return fmt::format("{:<64.64}{:08}", token, of); };
  std::vector<std::string> got;
  try {
    got = swap(
        transport, [&](int) { return greeting(rank); }, deadline);
  } catch (const TransportError& e) {
    throw Error(fmt::format("{}: rank {} got no greeting from rank {}: {}", backend, rank, e.peer,
                            e.what()));
  }
  for (int r = 0; r < transport.size(); ++r) {
    if (r != rank && got[static_cast<size_t>(r)] != greeting(r)) {
      throw Error(fmt::format("{}: rank {} is connected to a stranger in the place of rank {}",
                              backend, rank, r));
    }
  }
}

void challenge_all(Transport& transport, const std::string& token, const Secret& secret,
                   Deadline deadline) {
  const int rank = transport.rank();
  const std::string mine = Secret::nonce();
  // What `from` answers to `to`: it holds for these two and this run only.
  const auto answer = [&](int from, int to, const std::string& challenge) {
    const Secret::Mac mac =
        secret.mac("peer", fmt::format("{}/{}/{}/{}", token, from, to, challenge));
    return std::string(mac.data(), mac.size());
  };
  try {
    const auto theirs = swap(
        transport, [&](int) { return mine; }, deadline);
    const auto answers = swap(
        transport, [&](int r) { return answer(rank, r, theirs[static_cast<size_t>(r)]); },
        deadline);
    for (int r = 0; r < transport.size(); ++r) {
      if (r == rank) continue;
      Secret::Mac given;
      std::memcpy(given.data(), answers[static_cast<size_t>(r)].data(), given.size());
      if (!secret.verifies("peer", fmt::format("{}/{}/{}/{}", token, r, rank, mine), given)) {
        throw Error(
            fmt::format("who is connected in the place of rank {} does not know the secret", r));
      }
    }
  } catch (const TransportError& e) {
    throw Error(fmt::format("rank {} got no answer to its challenge from rank {}: {}", rank, e.peer,
                            e.what()));
  }
}

}  // namespace dtensor::comm::internal

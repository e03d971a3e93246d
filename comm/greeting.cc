#include "dtensor/comm/greeting.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor::comm::internal {

void greet_all(Transport& transport, const std::string& backend, const std::string& token,
               Deadline deadline) {
  constexpr uint64_t kTag = 0x6772656574ULL;
  const int rank = transport.rank();
  const int size = transport.size();
  const auto greeting = [&](int of) { return fmt::format("{:<64.64}{:08}", token, of); };
  const std::string mine = greeting(rank);
  const auto bytes = static_cast<int64_t>(mine.size());
  std::vector<std::string> got(static_cast<size_t>(size), std::string(mine.size(), '\0'));
  std::vector<std::unique_ptr<Transfer>> transfers;  // last: they use the memory above
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    transfers.push_back(transport.receive(r, kTag, got[static_cast<size_t>(r)].data(), bytes));
    transfers.push_back(transport.send(r, kTag, mine.data(), bytes));
  }
  for (const auto& t : transfers) {
    try {
      t->wait(deadline);
    } catch (const TransportError& e) {
      throw Error(fmt::format("{}: rank {} got no greeting from rank {}: {}", backend, rank, e.peer,
                              e.what()));
    }
  }
  for (int r = 0; r < size; ++r) {
    if (r != rank && got[static_cast<size_t>(r)] != greeting(r)) {
      throw Error(fmt::format("{}: rank {} is connected to a stranger in the place of rank {}",
                              backend, rank, r));
    }
  }
}

}  // namespace dtensor::comm::internal

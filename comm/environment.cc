#include "dtensor/comm/environment.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "dtensor/base/error.h"
#include "dtensor/comm/endpoint.h"

namespace dtensor::comm {
namespace {

using Get = std::function<const char*(const char*)>;

struct Launcher {
  const char* what;
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr Launcher kLaunchers[] = {
    {"dtensor run", "DTENSOR_RANK", "DTENSOR_WORLD_SIZE", "DTENSOR_LOCAL_RANK"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
};
constexpr size_t kFirstOfCluster = 2;  // Slurm and MPI see the same processes; torchrun does not
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

struct Place {
  const Launcher* launcher;
  int rank;
  int size;
};

std::optional<Place> place_by(const Launcher& launcher, const Get& get) {
  const char* rank = get(launcher.rank);
  const char* size = get(launcher.size);
  if (rank == nullptr && size == nullptr) return std::nullopt;
  if (rank == nullptr || size == nullptr) {
    throw ArgumentError(fmt::format(
        "{} is set and {} is not ({} sets both): start every rank by a launcher, or set both",
        rank != nullptr ? launcher.rank : launcher.size,
        rank != nullptr ? launcher.size : launcher.rank, launcher.what));
  }
  const int64_t n = parse_integer(launcher.size, size, 1, kMaxInt);
  const int64_t r = parse_integer(launcher.rank, rank, 0, kMaxInt);
  if (r >= n) {
    throw ArgumentError(fmt::format("{}={} is outside {}={}", launcher.rank, r, launcher.size, n));
  }
  return Place{&launcher, static_cast<int>(r), static_cast<int>(n)};
}

std::optional<Place> find_place(const Get& get) {
  std::optional<Place> found;
  for (size_t i = 0; i < std::size(kLaunchers); ++i) {
    if (found && found->launcher < kLaunchers + kFirstOfCluster) break;
    const auto place = place_by(kLaunchers[i], get);
    if (!place) continue;
    if (!found) {
      found = place;
    } else if (found->rank != place->rank || found->size != place->size) {
      // mpirun inside a Slurm step, for example: taking either could make many worlds of one.
      throw ArgumentError(fmt::format(
          "{}={} of {}={} and {}={} of {}={} disagree; set DTENSOR_RANK and DTENSOR_WORLD_SIZE to "
          "say which holds",
          found->launcher->rank, found->rank, found->launcher->size, found->size,
          place->launcher->rank, place->rank, place->launcher->size, place->size));
    }
  }
  return found;
}

// Variables that only a rank of a larger world needs: without a rank they are half of something,
// and a world of one would train alone.
void refuse_rest_of_a_launch(const Get& get) {
  for (const char* name : {"DTENSOR_STORE", "DTENSOR_LOCAL_RANK", "LOCAL_RANK", "MASTER_ADDR",
                           "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}) {
    if (get(name) == nullptr) continue;
    throw ArgumentError(fmt::format(
        "{} is set, and nothing says which rank this is: set DTENSOR_RANK and DTENSOR_WORLD_SIZE "
        "(or start it by a launcher), or unset {}",
        name, name));
  }
}

bool is_true(const char* value) {
  if (value == nullptr) return false;
  const std::string_view v = value;
  return v == "1" || v == "True" || v == "true" || v == "TRUE";
}

std::string find_store(const Get& get) {
  if (const char* store = get("DTENSOR_STORE"); store != nullptr && *store != '\0') return store;
  const char* host = get("MASTER_ADDR");
  const char* port = get("MASTER_PORT");
  if (host == nullptr && port == nullptr) return {};
  if (host == nullptr || port == nullptr) {
    throw ArgumentError(
        fmt::format("{} is set and {} is not; the store of rank 0 needs both, or DTENSOR_STORE",
                    host != nullptr ? "MASTER_ADDR" : "MASTER_PORT",
                    host != nullptr ? "MASTER_PORT" : "MASTER_ADDR"));
  }
  const int64_t agent = is_true(get("TORCHELASTIC_USE_AGENT_STORE")) ? 1 : 0;
  const int64_t number = parse_integer("MASTER_PORT", port, 1, 65535 - agent) + agent;
  const bool v6 = std::string_view(host).find(':') != std::string_view::npos;
  return v6 ? fmt::format("[{}]:{}", host, number) : fmt::format("{}:{}", host, number);
}

}  // namespace

Environment read_environment(const Get& get) {
  Environment e;
  if (const char* comm = get("DTENSOR_COMM"); comm != nullptr) e.comm = comm;
  if (const char* name = get("DTENSOR_INTERFACE"); name != nullptr) e.interface = name;
  if (const char* address = get("DTENSOR_ADDRESS"); address != nullptr) e.address = address;
  if (!e.interface.empty() && !e.address.empty()) {
    throw ArgumentError(fmt::format(
        "DTENSOR_INTERFACE={} and DTENSOR_ADDRESS={} are both set; say where this rank is reached "
        "by one of them",
        e.interface, e.address));
  }
  const auto place = find_place(get);
  if (!place) {
    refuse_rest_of_a_launch(get);
    return e;
  }
  e.launched = true;
  e.rank = place->rank;
  e.size = place->size;
  e.local_rank = e.rank;
  if (const char* local = get(place->launcher->local_rank); local != nullptr) {
    e.local_rank =
        static_cast<int>(parse_integer(place->launcher->local_rank, local, 0, int64_t{e.size} - 1));
  }
  if (const char* count = get("TORCHELASTIC_RESTART_COUNT"); count != nullptr) {
    e.generation =
        parse_integer("TORCHELASTIC_RESTART_COUNT", count, 0, std::numeric_limits<int64_t>::max());
  }
  e.store = find_store(get);
  return e;
}

}  // namespace dtensor::comm

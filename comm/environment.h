// Environment: who this process is in its world, as its launcher's variables say it.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace dtensor::comm {

struct Environment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int64_t generation = 0;  // how often the launcher has restarted the world
  std::string store;       // "host:port" or "file:PATH"; empty where no variable names one
  std::string comm;        // DTENSOR_COMM: a scheme or a URL; empty where not set
  std::string interface;   // DTENSOR_INTERFACE, or
  std::string address;     // DTENSOR_ADDRESS: where the others reach this rank; empty where not set
  bool launched = false;   // some launcher's variables were there
};

// Reads, in this order: DTENSOR_RANK/DTENSOR_WORLD_SIZE (dtensor run), RANK/WORLD_SIZE (torchrun),
// SLURM_PROCID/SLURM_STEP_NUM_TASKS (SLURM_NTASKS is the allocation's, not the step's),
// OMPI_COMM_WORLD_RANK/OMPI_COMM_WORLD_SIZE, PMI_RANK/PMI_SIZE. The store is DTENSOR_STORE, else
// MASTER_ADDR with MASTER_PORT, plus one where torchrun's agent serves its own store there
// (TORCHELASTIC_USE_AGENT_STORE). The generation is TORCHELASTIC_RESTART_COUNT.
// Half of a pair, a store without a rank, a value that cannot be, Slurm and MPI in disagreement, or
// both of DTENSOR_INTERFACE and DTENSOR_ADDRESS: ArgumentError naming the variables. `get` reads a
// variable, nullptr where it is not set.
Environment read_environment(const std::function<const char*(const char*)>& get);

}  // namespace dtensor::comm

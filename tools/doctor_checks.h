// The checks of `dtensor doctor`. Each tries the thing itself.

#pragma once

#include <string>
#include <vector>

namespace dtensor::tools {

struct Check {
  std::string kind;  // "backend", "device", "memory", "address", "peer"
  std::string name;  // "gloo"
  bool works = false;
  bool wanted = false;   // is it a finding where it does not work?
  std::string why = {};  // what was found
  std::string fix = {};  // what to do; empty where it works
};

// Two ranks form a world over each backend of this build and compute: threads over `local`, else
// processes that run `program` with the arguments "doctor --probe"; one where there is one GPU, and
// a backend that needs a GPU each. What is absent, a library or a GPU, is no finding.
std::vector<Check> check_backends(const std::string& program);
// What such a process does: 0, or 1 with the reason on stdout.
int probe_backend();

// NVIDIA GPUs that this process can see, by their files in `devices` and CUDA_VISIBLE_DEVICES; a
// driver alone is none.
int count_gpus(const std::string& devices = "/dev");

std::vector<Check> check_devices();
std::vector<Check> check_memory();
// Every address of this machine: can one listen there, and connect?
std::vector<Check> check_addresses();
// `peer` is host:port; ArgumentError where it is not.
Check check_peer(const std::string& peer);

}  // namespace dtensor::tools

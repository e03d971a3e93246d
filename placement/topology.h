// Topology: what the links cost that a mesh communicates over, as data; CostModel: what a plan is
// to be cheapest by.

#pragma once

#include <array>
#include <cstdint>

#include "dtensor/mesh/mesh_layout.h"

namespace dtensor {

// What a rank can send at a time, and what each of its messages takes besides.
struct Link {
  double bytes_per_second = 10e9;
  double latency_seconds = 10e-6;
};

struct Topology {
  std::array<Link, kMaxMeshDims> mesh_dims{};  // by number; a collective over several goes over the
                                               // slowest of them
  Link between_meshes{};
};

struct CostModel {
  Topology topology = {};
  int64_t element_bytes = 4;
};

}  // namespace dtensor

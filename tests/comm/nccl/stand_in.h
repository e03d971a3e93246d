// A stand-in for NCCL and the CUDA runtime, with the symbols that comm/nccl calls: ranks are
// threads, device memory is memory, a stream is a thread that works off a queue. Beyond moving the
// data it checks what NCCL leaves to chance or to a hang: calls of one place that differ between
// ranks, sends and receives that do not pair up, calls without elements.

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace dtensor::testing::stand_in {

// One call of NCCL.
struct Issued {
  std::string name;  // "AllGather"
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = -1;  // or root
  friend bool operator==(const Issued&, const Issued&) = default;
};

// The groups that a rank made since the last question, in order.
std::vector<std::vector<Issued>> take_groups(int rank);

// What was wrong so far, over all ranks and threads; and forgets it.
std::vector<std::string> take_faults();

// Puts work of the test on a stream.
void run_on(cudaStream_t stream, std::function<void()> work);

// From now on data does not move (until false), as though a peer were gone.
void hold(bool held);
// From now on communicators report an asynchronous error (until false).
void fail(bool failing);
// From now on communicators do not finish what they are asked to finish (until false).
void linger(bool lingering);
// How many devices there are from now on; 1 at first.
void set_devices(int count);
// Communicators that were made and neither destroyed nor aborted; and aborted so far.
int alive();
int aborted();

}  // namespace dtensor::testing::stand_in

// DeviceMover: moves and reduces memory that the CPU cannot reach, for ranks that have found out
// over their Transport that they are in one call. A Comm that has one takes buffers of its device
// as well as, or instead of, those on the CPU; order, numbers and failures are those of the Comm.

#pragma once

#include <memory>
#include <string>

#include "dtensor/comm/call.h"
#include "dtensor/comm/capabilities.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

// The part of a DeviceMover that belongs to one Comm. Used by one thread at a time.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // Until the ranks of the group have found each other. All of them call it.
  virtual std::unique_ptr<Transfer> connect() = 0;
  // The data of one call, once connected. Destroying a Transfer that is not complete ends the
  // group: nothing is written after that.
  virtual std::unique_ptr<Transfer> start(const Call& call) = 0;
};

// Thread-safe.
class DeviceMover {
 public:
  virtual ~DeviceMover() = default;
  // What it does; kNone for devices that are not its own. It completes its Comm's Capabilities.
  virtual Capabilities capabilities() const = 0;
  // On the thread that makes a call, before it is queued: takes down what was put on the call's
  // stream before it.
  virtual void issue(Call& call) = 0;
  // Bytes by which the ranks of one group find each other: made by one of them, told to all.
  virtual std::string new_identity() = 0;
  virtual std::unique_ptr<DeviceGroup> group(const std::string& identity, int rank, int size) = 0;
};

inline constexpr size_t kIdentityBytes = 128;

}  // namespace dtensor::comm

#include "dtensor/comm/capabilities.h"

namespace dtensor::comm {

Support transport_support(OpKind op, DType dtype, ReduceOp reduce, DeviceType device) {
  if (device != DeviceType::kCpu) return Support::kNone;
  const bool reduces =
      op == OpKind::kAllReduce || op == OpKind::kReduce || op == OpKind::kReduceScatter;
  if (!reduces) return Support::kNative;
  if (reduce == ReduceOp::kAvg && !is_floating(dtype)) return Support::kNone;
  if (reduce == ReduceOp::kSum && dtype == DType::kBool) return Support::kNone;
  return Support::kNative;
}

}  // namespace dtensor::comm

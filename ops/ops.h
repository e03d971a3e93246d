// The operations. Shapes are global; a leading "..." stands for any dims. Every op throws
// ArgumentError where shapes or dtypes do not fit and PlacementError where no row of its rule
// takes the placements (dtensor/placement/rule.h). Floating ops take f32, f64, bf16 and, where
// their headers do not say otherwise, f16 (16-bit types are computed in f32, rounded once at the
// end).

#pragma once

#include "dtensor/ops/arg_extreme.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/binary_cross_entropy.h"
#include "dtensor/ops/conv.h"
#include "dtensor/ops/cross_entropy.h"
#include "dtensor/ops/dims.h"
#include "dtensor/ops/dropout.h"
#include "dtensor/ops/einsum.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/in_place.h"
#include "dtensor/ops/index.h"
#include "dtensor/ops/layer_norm.h"
#include "dtensor/ops/like.h"
#include "dtensor/ops/logsumexp.h"
#include "dtensor/ops/loss_reduction.h"
#include "dtensor/ops/matmul.h"
#include "dtensor/ops/mse_loss.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/parts.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/rearrange.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rms_norm.h"
#include "dtensor/ops/rope.h"
#include "dtensor/ops/scan.h"
#include "dtensor/ops/slice.h"
#include "dtensor/ops/softmax.h"
#include "dtensor/ops/sort.h"
#include "dtensor/ops/triangle.h"
#include "dtensor/ops/variance.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/policy.h"

// The operations. Shapes are global; a leading "..." stands for any dims. Every op throws
// ArgumentError where shapes or dtypes do not fit and PlacementError where no row of its rule
// takes the placements (dtensor/placement/rule.h). Floating ops take f32, f64 and bf16 (computed
// in f32, rounded once at the end).

#pragma once

#include "dtensor/ops/attention.h"
#include "dtensor/ops/conv.h"
#include "dtensor/ops/cross_entropy.h"
#include "dtensor/ops/einsum.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/index.h"
#include "dtensor/ops/like.h"
#include "dtensor/ops/log_softmax.h"
#include "dtensor/ops/matmul.h"
#include "dtensor/ops/parts.h"
#include "dtensor/ops/policy.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/rearrange.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rms_norm.h"
#include "dtensor/ops/rope.h"
#include "dtensor/ops/scan.h"
#include "dtensor/ops/slice.h"
#include "dtensor/ops/sort.h"
#include "dtensor/ops/triangle.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"

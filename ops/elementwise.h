// Elementwise ops, all of them.

#pragma once

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cast.h"
#include "dtensor/ops/compare.h"
#include "dtensor/ops/silu_mul.h"
#include "dtensor/ops/unary.h"
#include "dtensor/ops/where.h"

// Checkpoints: saved without a message, loaded on any mesh.
// A checkpoint is a directory per attempt under the run's directory, step-<step>.<id>, with one
// safetensors file and one commit record per rank (docs/checkpoint.md).
//   save, save_async, load  State{.model = model, .optimizer = optimizer}
//   latest, Retention       which checkpoint is the newest, and which ones are kept
//   SaveTimer, DataPosition when to save, and where the run is in its data
//   import_hugging_face,    the tensors of a Hugging Face directory
//   export_hugging_face

#pragma once

#include "dtensor/checkpoint/data_position.h"
#include "dtensor/checkpoint/hugging_face.h"
#include "dtensor/checkpoint/latest.h"
#include "dtensor/checkpoint/load.h"
#include "dtensor/checkpoint/retention.h"
#include "dtensor/checkpoint/save.h"
#include "dtensor/checkpoint/save_timer.h"
#include "dtensor/checkpoint/state.h"

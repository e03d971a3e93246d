// Settings of UCX that hold for the whole process. As loaded, UCX takes the signals of crashes and
// prints to stdout; a library must do neither. (It also patches mmap, when it is loaded and before
// any code of ours: only UCX_MEM_MMAP_HOOK_MODE=none in the environment stops that.)

#pragma once

namespace dtensor::comm::ucx {

// Puts the signal handlers of before back, and sends UCX's messages to dtensor/base/logging.h.
// Thread-safe; only the first call does something. Done before main where this is linked.
void settle_process();

}  // namespace dtensor::comm::ucx

// Replaces io_worker_uring.cpp in a build without liburing.
#include "offload/io_worker.h"

namespace zeroth::offload {

UringWorker make_uring_worker(const IoWorkerOptions&) {
  return {nullptr, false, "this build has no liburing", {}};
}

}  // namespace zeroth::offload

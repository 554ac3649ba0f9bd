// A UCX worker with its context: everything of UCX that is not about one peer.
#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include "transports/ucx/library.h"

namespace ropewalk::ucx {

/// Reads UCX's own settings (UCX_TLS, UCX_NET_DEVICES, ...) from the environment.
/// Threads: one at a time.
class Worker {
 public:
  /// For jobs of so many ranks. Throws Error(unavailable) with what UCX says.
  explicit Worker(int ranks);

  ucp_context_h context() const { return context_.get(); }
  ucp_worker_h get() const { return worker_.get(); }
  /// Leaves all to the end of the process.
  void abandon() {
    std::ignore = worker_.release();
    std::ignore = context_.release();
  }
  /// By which peers reach it.
  std::vector<std::byte> address() const;
  /// Readable, once `arm` has said true, when there is something to progress.
  int event_fd() const { return event_fd_; }
  /// False: there is something to progress already.
  bool arm() { return lib().ucp_worker_arm(get()) == UCS_OK; }
  /// Moves what can be moved; false where that was nothing.
  bool progress() { return lib().ucp_worker_progress(get()) != 0; }

 private:
  Owned<ucp_context_h, &Library::ucp_cleanup> context_;
  Owned<ucp_worker_h, &Library::ucp_worker_destroy> worker_;
  int event_fd_ = -1;
};

}  // namespace ropewalk::ucx

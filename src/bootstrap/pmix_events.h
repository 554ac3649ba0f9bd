// What PMIx tells of ranks that end. Launchers send these events where they are asked to
// (`prterun --rtos recoverable,notifyerrors`); others end the whole job, or say nothing. PRRTE at
// times loses that of a process that ends while others are still being started: then the time to
// join tells.
#pragma once

#include <cstddef>
#include <memory>

#include "bootstrap/ended_ranks.h"
#include "bootstrap/pmix_library.h"

namespace ropewalk::bootstrap::pmix {

/// From its construction to `close` the process takes these events. The library runs the handler in
/// a thread of its own, where nothing may wait. What the handler uses is the process's and never
/// freed, as it may run until `close` returns, and after that where the library does not answer.
/// One at a time.
///
/// A joined job does not look at them. Its ranks watch each other (death_watch.h, tree.h), and know
/// as soon; the launcher's word does not tell those that have left in order from others, nor one
/// epoch from the next.
class EndEvents {
 public:
  /// `library` has been initialized. Does not wait until the handler is registered. Logs where the
  /// library is too old.
  explicit EndEvents(const Library& library);
  /// Not in a forked child. Returns once no handler runs any more; after a second at most.
  void close();

  EndedRanks& ended_ranks();
  /// All ranks have come to a fence. Logs where the launcher has refused the handler. Until then
  /// ranks pass on to others of their host what they hear as they register: the server tells those
  /// that register after an end of it, but of several only the first.
  void note_met();

 private:
  std::shared_ptr<PendingCall> registration_;  // null: there is none
};

}  // namespace ropewalk::bootstrap::pmix

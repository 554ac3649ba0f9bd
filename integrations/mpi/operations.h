// The collectives that have a request of the MPI: each until it has ended, or, where it has failed,
// until the program has been told.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "channel.h"
#include "error_handler.h"
#include "functions.h"
#include "prepared.h"

namespace ropewalk::mpi {

/// A nonblocking one is owned by the MPI's request from its start on. A persistent one until the
/// program frees it. Threads: that which holds the request, as MPI wants; the end is seen by one
/// at a time, `has_ended`.
struct Operation {
  enum class Phase : uint8_t { idle, under_way, looked_at };  // the last: under way, too

  std::unique_ptr<Prepared> prepared;
  Work work;
  std::shared_ptr<ErrorHandler> errors;
  int ranks = 0;
  bool is_persistent = false;
  Channel* channel = nullptr;  // of a persistent one
  size_t communicator = 0;     // its number there
  MPI_Request request{};
  // With the lock of all:
  Phase phase = Phase::idle;
  bool is_freed = false;     // by the program, while it was under way
  int failed = MPI_SUCCESS;  // its class, of which the program has not been told
};

/// Between two looks at what the MPI has to move, while a thread waits for one of these.
constexpr std::chrono::microseconds kPause{100};

/// Whether any request may be one of these.
bool knows_any();
/// One that can be started; else null.
Operation* find_idle_persistent(MPI_Request request);
/// It is the request's then: the MPI, or Request_free, frees it.
void add_operation(MPI_Request request, std::unique_ptr<Operation> operation);
/// What the MPI calls as it frees the request of a nonblocking one.
int free_operation(void* operation);
/// It has been started.
void be_under_way(Operation& operation);

/// False: it goes on, after `pause` at most, or another thread looks. Else the MPI has been told of
/// its end, where it is one of these.
bool has_ended(MPI_Request request, std::chrono::nanoseconds pause);
void wait_for(MPI_Request request);
/// As MPI_Request_free. False: it is the MPI's to free.
bool free_request(MPI_Request request);
/// Has those end that the program has freed: nobody else waits for them.
void look_after_freed();
/// The same for all of them, however long it takes.
void wait_for_freed_requests();
/// In MPI_Finalize: its persistent requests cannot be started any more.
void forget_channel(const Channel& channel);

/// Of the requests that a call of the program looks at: which of them have failed, and end by this
/// call. Made when they have ended, before the MPI has seen that.
class Failures {
 public:
  Failures(int count, const MPI_Request* requests);

  /// The requests at these `indices` (null: the first `ended`) are the program's again, and the MPI
  /// gives `error`: tells of what has failed here, as MPI_Waitall does. Gives what it returns.
  int report(int error, int ended, const int* indices, MPI_Status* statuses) const;
  /// The same of one, as MPI_Wait does.
  int report(int error, int index) const;

 private:
  struct Failed {
    int index;
    int error_class;
    MPI_Request persistent;  // or null
    std::shared_ptr<ErrorHandler> errors;
  };
  const Failed* at(int index) const;

  std::vector<Failed> failed_;
};

}  // namespace ropewalk::mpi

// The ranks of an MPI communicator, linked by Ropewalk.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "error_handler.h"
#include "prepared.h"
#include "report.h"
#include "ropewalk/communicator.h"

namespace ropewalk::mpi {

/// Of one MPI communicator: its cached attribute, made by the first call that may be taken.
/// Threads: one at a time, as MPI wants of the collectives of a communicator.
class Channel {
 public:
  explicit Channel(Left left) : left_(left) {}
  /// `communicator` outlives this. Collective of its ranks. Throws Error.
  explicit Channel(Communicator& communicator);
  /// That communicator, which goes with this.
  void own(std::unique_ptr<Communicator> communicator) { owned_ = std::move(communicator); }

  /// `none`: its calls can be taken. The same on all ranks.
  Left left() const { return left_; }
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }
  /// Meanwhile the MPI goes on, too: others may wait for what it has still to send. Changes `call`.
  /// Throws Error.
  void run(Call&& call);
  /// Ends the calls of all ranks, as this one cannot take part. Throws nothing.
  void abort(const char* why) noexcept;
  /// `prepared` must outlive it. As in other MPIs, what is started here does not wait for its turn
  /// among what runs. Throws Error.
  Work start(Prepared& prepared) {
    starts_later_calls_ = true;
    return prepared.start(*started_);
  }
  /// The same of a persistent call. Each has a communicator of its own, by number, as ranks may
  /// start them in any order.
  Work start(Prepared& prepared, size_t index) { return prepared.start(*persistent_at(index)); }
  /// Collective, once the job has lost processes that are none of these ranks: no call is taken any
  /// more. Where all ranks have ended as many calls, and have begun no others, the MPI serves those
  /// that follow; else they go on to fail.
  void hand_over(MPI_Comm comm);
  /// A collective of the program begins, or has ended here, whatever it came to; or it was none.
  void note_begun() { ++begun_; }
  void note_ended(Left left = Left::none) { left == Left::none ? ++ended_ : --begun_; }
  /// Collective: the number of one that no rank uses. Throws Error.
  size_t acquire_persistent();
  /// Threads: any. Whether that was the last that was used, of a channel that is retired.
  bool release_persistent(size_t index);
  /// The program frees the MPI communicator. Whether no persistent call is left.
  bool retire();
  const Communicator& communicator() const { return *communicator_; }
  void be_of(MPI_Comm comm) { errors_ = std::make_shared<ErrorHandler>(comm); }
  /// Of what ends later, perhaps after this.
  const std::shared_ptr<ErrorHandler>& errors() const { return errors_; }

 private:
  struct Persistent {
    std::unique_ptr<Communicator> communicator;
    bool is_free = false;
  };

  void run_staged(Call& call, size_t in_bytes, size_t out_bytes);
  Communicator* persistent_at(size_t index);
  bool is_unused() const;  // with mutex_

  Left left_;
  long begun_ = 0, ended_ = 0;       // blocking collectives of the program
  bool starts_later_calls_ = false;  // nonblocking or persistent ones
  bool is_lost_ = false;             // all ranks know that they could not hand over
  std::unique_ptr<Communicator> owned_;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<Communicator> started_;  // for nonblocking calls
  std::shared_ptr<ErrorHandler> errors_;
  // Short calls go through it, and plain memory: what is prepared for one serves the next.
  Buffer<uint8_t> stage_;
  std::mutex mutex_;  // guards what follows
  std::vector<Persistent> persistent_;
  bool is_retired_ = false;
};

/// A duplicate of MPI_COMM_SELF, of the session, where errors are returned.
MPI_Comm own_self();
/// Lets the MPI move what it has to.
void progress_mpi();

/// Collective over MPI_COMM_WORLD, after MPI_Init: links its ranks.
void open_session();
/// Before MPI_Finalize. Returns once all ranks have left.
void close_session();
/// Whether MPI_Alloc_mem has given it out. Threads: any.
bool is_registered(const void* data);
/// The communicator of the whole job; null where there is none.
Communicator* session();

/// Frees it in a thread of its own: MPI_Comm_free need not wait for the other ranks.
void free_channel(Channel* channel);
/// The channel of `comm`; null where it has none yet.
Channel* find_channel(MPI_Comm comm);
/// Makes it where there is none: a collective call of all its ranks. Null where the MPI is to say
/// what is wrong with `comm`.
Channel* find_or_make_channel(MPI_Comm comm);

}  // namespace ropewalk::mpi

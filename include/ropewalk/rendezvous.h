// Where ranks meet that can tell each other a line of text in some other way: through a key-value
// store, a file system, an older communicator.
//
//   using namespace ropewalk;
//   Rendezvous rendezvous;                          // on rank 0
//   store.set("ropewalk", rendezvous.unique_id());
//   auto comm = Communicator::create(rendezvous.options(0, size));
//
//   auto unique_id = store.get("ropewalk");         // on every other rank
//   auto comm = Communicator::create(Rendezvous::options(unique_id, rank, size));
#pragma once

#include <string>
#include <string_view>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// Rank 0's side. Must live until rank 0's `create` has returned; may then go. Movable.
class Rendezvous {
 public:
  /// Listens on a free port: of every interface (ROPEWALK_SOCKET_IFNAME names one), or of
  /// loopback where all ranks are on `this_host_only`. `common.key`, or else ROPEWALK_JOB_KEY, is
  /// what the job's key is made of; without one it is drawn. Throws Error.
  explicit Rendezvous(const Options& common = {}, bool this_host_only = false);
  ~Rendezvous();
  Rendezvous(Rendezvous&& other) noexcept;
  Rendezvous& operator=(Rendezvous&&) = delete;

  /// One line of printable characters: this rank's addresses, in the order in which the system
  /// lists them, which the others try in turn, and what the job's key is made of: together with
  /// `common.key` or ROPEWALK_JOB_KEY on every rank, and nothing secret then; else the key itself,
  /// and whoever has it can join.
  const std::string& unique_id() const { return unique_id_; }
  /// How rank `rank`, which is 0 here, joins. `common` has what the ranks agree on otherwise.
  Options options(int rank, int size, Options common = {}) const;
  /// How the other ranks do. Throws Error(invalid_argument) where `unique_id` is none, or was made
  /// with a key and this rank has none, or the other way round; or where the job is elastic
  /// (Options::elastic): nobody who comes later knows the id.
  static Options options(std::string_view unique_id, int rank, int size, Options common = {});

 private:
  int listener_ = -1;
  std::string unique_id_;
};

}  // namespace ropewalk

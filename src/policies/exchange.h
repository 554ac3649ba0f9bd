// The worker's end of asynchronous elastic averaging: one exchange with all owners at once.
#pragma once

#include <vector>

#include "policies/center_shard.h"
#include "policies/shards.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Not thread-safe. Plans are made once, before anything is sent.
template <class T>
class Exchange {
 public:
  /// `vector`, in memory that `comm` allocated, is what is sent: all parameters, one behind the
  /// other. Both outlive this.
  Exchange(Communicator& comm, const Shards& shards, std::span<T> vector)
      : comm_(comm),
        shards_(shards),
        vector_(vector),
        delta_(comm.allocate<T>(vector.size())),
        trips_(static_cast<size_t>(shards.owners())) {
    for (int owner = 0; owner < shards.owners(); ++owner)
      for (size_t index = 0; owner != comm.rank() && index < shards.pieces(owner); ++index)
        trips_[static_cast<size_t>(owner)].push_back(plan(owner, shards.piece(owner, index)));
  }

  /// What came back.
  std::span<const T> delta() const { return delta_.span(); }

  /// Exchanges the vector and returns when `delta()` is complete. `own` is this rank's shard, or
  /// null where it has none. Where it throws some owners may have added their delta; then the
  /// communicator is broken, and the center with it.
  void run(CenterShard<T>* own) {
    try {
      const size_t pieces = shards_.pieces_max();
      for (size_t index = 0; index < pieces + kPiecesUnderWay; ++index)
        for (int owner = 0; owner < shards_.owners(); ++owner) {
          if (index < shards_.pieces(owner)) start(owner, index, own);
          if (index >= kPiecesUnderWay && index - kPiecesUnderWay < shards_.pieces(owner))
            finish(owner, index - kPiecesUnderWay);
        }
    } catch (const std::exception& error) {
      comm_.abort(error.what());
      throw;
    }
  }

 private:
  static constexpr size_t kPiecesUnderWay = 8;  // with each owner

  struct Trip {
    Plan answer, request;
  };

  Trip plan(int owner, Part part) {
    return {comm_.plan(message(Collective::recv, owner, kAnswers, part_of(delta_.span(), part))),
            comm_.plan(message(Collective::send, owner, kRequests, part_of(vector_, part)))};
  }

  void start(int owner, size_t index, CenterShard<T>* own) {
    if (owner == comm_.rank()) {
      const Part part = shards_.piece(owner, index);
      return own->exchange(index, part_of(vector_, part), part_of(delta_.span(), part));
    }
    Trip& trip = trips_[static_cast<size_t>(owner)][index];
    trip.answer.start();  // first: the owner never waits to be rid of it
    trip.request.start();
  }

  void finish(int owner, size_t index) {
    if (owner == comm_.rank()) return;
    Trip& trip = trips_[static_cast<size_t>(owner)][index];
    trip.request.wait();
    trip.answer.wait();
  }

  static std::span<T> part_of(std::span<T> whole, Part part) {
    return whole.subspan(part.begin, part.size);
  }

  Communicator& comm_;
  const Shards shards_;
  const std::span<T> vector_;
  Buffer<T> delta_;
  std::vector<std::vector<Trip>> trips_;  // by owner and piece; they use the buffers: die first
};

}  // namespace ropewalk

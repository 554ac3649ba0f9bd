// The worker's end of asynchronous elastic averaging: an exchange with all owners at once. See
// center_shard.h for one of a piece.
#pragma once

#include <algorithm>
#include <exception>
#include <span>
#include <vector>

#include "policies/center_pieces.h"
#include "policies/center_shard.h"
#include "policies/tensor_list.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Not thread-safe. Plans are made once, before anything is sent.
template <class T>
class Exchange {
 public:
  /// `vector`, in memory that `comm` allocated, is what is sent: all parameters, one behind the
  /// other. It, `comm` and `layout` outlive this.
  Exchange(Communicator& comm, const CopyLayout<T>& layout, std::span<T> vector)
      : comm_(comm),
        layout_(layout),
        shards_(layout.shards()),
        vector_(vector),
        answers_(comm.allocate<T>(layout.size())),
        trips_(static_cast<size_t>(shards_.owners())) {
    for (int owner = 0; owner < shards_.owners(); ++owner)
      for (size_t index = 0; owner != comm.rank() && index < shards_.pieces(owner); ++index)
        trips_[static_cast<size_t>(owner)].push_back(plan(owner, index));
  }

  /// Exchanges the vector and returns when all answers are here. `own` is this rank's shard, or
  /// null where it has none. Where it throws some owners may have added their delta; then the
  /// communicator is broken.
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

  /// After a run: moves `parameters` toward the center. `copy`, a copy of the center or empty, gets
  /// the center as the run has left it. Never fails.
  void apply(TensorList<T> parameters, Wide<T> alpha, std::span<T> copy) {
    const T* sent = vector_.data();
    ListReader<T> reader(parameters);
    for (size_t number = 0; number < layout_.pieces(); ++number) {
      const std::span<T> answer = layout_.slot(answers_, number);
      const std::span<T> slot = copy.empty() ? copy : layout_.slot(copy, number);
      const size_t size = layout_.part(number).size;
      for (size_t at = 0; at < size;) {
        const std::span<T> part = reader.next(size - at);
        move(part, sent + at, answer.data() + at, alpha);
        if (!slot.empty()) follow(part.size(), sent + at, answer.data() + at, alpha, &slot[at]);
        at += part.size();
      }
      sent += size;
      if (!slot.empty()) layout_.copy_record(answer, slot);
    }
  }

 private:
  static constexpr size_t kPiecesUnderWay = 8;  // with each owner

  struct Trip {
    Plan answer, request;
  };

  Trip plan(int owner, size_t index) {
    return {
        comm_.plan(Call::recv(answer_of(owner, index), owner, kAnswers)),
        comm_.plan(Call::send(part_of(owner, index), owner, kRequests)),
    };
  }

  void start(int owner, size_t index, CenterShard<T>* own) {
    if (owner == comm_.rank())
      return own->exchange(index, part_of(owner, index), answer_of(owner, index));
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

  std::span<T> part_of(int owner, size_t index) const {
    const Part part = shards_.piece(owner, index);
    return vector_.subspan(part.begin, part.size);
  }
  std::span<T> answer_of(int owner, size_t index) {
    return layout_.slot(answers_, layout_.number(owner, index));
  }

  static void move(std::span<T> parameters, const T* sent, const T* center, Wide<T> alpha) {
    for (T& parameter : parameters)
      parameter = subtract(parameter, elastic_difference(*sent++, *center++, alpha));
  }
  static void follow(size_t count, const T* sent, const T* center, Wide<T> alpha, T* after) {
    for (size_t i = 0; i < count; ++i)
      after[i] = add(center[i], elastic_difference(sent[i], center[i], alpha));
  }

  Communicator& comm_;
  const CopyLayout<T>& layout_;
  const Shards& shards_;
  const std::span<T> vector_;
  Buffer<T> answers_;                     // a copy: of each piece as its owner had it
  std::vector<std::vector<Trip>> trips_;  // by owner and piece; they use the buffers: die first
};

}  // namespace ropewalk

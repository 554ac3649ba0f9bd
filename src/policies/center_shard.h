// The owner's end of asynchronous elastic averaging: a shard of the center, and the thread that
// answers for it.
//
// An exchange of one piece: a worker sends its parameters on channel 0; the owner answers on
// channel 1 with the center as it is then, and adds delta = alpha (parameters - center) to it. Each
// request is applied by one thread, once, and the worker computes the same delta of the answer. So
// nothing is lost, applied twice, or computed from a center that has moved on; and the worker knows
// the center as its own exchange has left it, with all that came before: should the owner die, the
// latest of these copies is its shard.
//
// Nothing waits in a circle: the thread waits for a request that has begun to arrive, and for
// answers, for which their worker has started a recv before it sent.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "policies/center_pieces.h"
#include "policies/tensor_list.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

constexpr int kRequests = 0, kAnswers = 1;  // channels

/// Thread-safe, except for the constructor's and destructor's thread: it starts and ends the other.
template <class T>
class CenterShard {
 public:
  /// Answers requests for this rank's shard from here on. `initial` is what the shard holds first;
  /// `comm` and `layout` outlive this.
  CenterShard(Communicator& comm, const CopyLayout<T>& layout, double alpha,
              std::span<const T> initial)
      : comm_(comm),
        layout_(layout),
        shards_(layout.shards()),
        alpha_(static_cast<Wide<T>>(alpha)),
        center_(comm.allocate<T>(initial.size())),
        records_(shards_.pieces(comm.rank()), PieceRecord(comm.size())),
        next_piece_(static_cast<size_t>(comm.size())) {
    std::ranges::copy(initial, center_.begin());
    if (comm.size() == 1 || initial.empty()) return;
    for (Slot& slot : slots_)
      slot.memory = comm.allocate<T>(shards_.piece(comm.rank(), 0).size + layout.record_elements());
    thread_ = start_thread("AsyncEa", "ropewalk-center", [this] { serve_until_stopped(); });
  }
  ~CenterShard() { stop(); }

  /// Answers no more. All exchanges must have ended, or the communicator be broken.
  void stop() {
    stopping_ = true;
    if (!thread_.joinable()) return;
    comm_.interrupt_next_sender(kRequests);
    thread_.join();
  }

  /// An exchange of this rank with its own shard: piece `index`. `answer`: a slot.
  void exchange(size_t index, std::span<const T> parameters, std::span<T> answer) {
    std::ranges::copy(parameters, answer.begin());
    apply(comm_.rank(), index, answer);
  }

  void copy_to(std::span<T> out) {
    std::lock_guard lock(mutex_);
    std::ranges::copy(center_, out.begin());
  }
  /// The same, with records, into a copy of the whole center.
  void write_to(std::span<T> copy) {
    std::lock_guard lock(mutex_);
    const T* center = center_.data();
    for (size_t index = 0; index < records_.size(); ++index) {
      const size_t number = layout_.number(comm_.rank(), index);
      const std::span<T> elements = layout_.elements(copy, number);
      std::copy_n(center, elements.size(), elements.begin());
      center += elements.size();
      layout_.write_record(layout_.slot(copy, number), records_[index]);
    }
  }

  /// Throws what ended the thread before its time.
  void throw_if_failed() const {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
  }

 private:
  /// An answer may be on its way while the next request is received.
  struct Slot {
    Buffer<T> memory;
    std::optional<Work> answer;  // uses memory
  };

  void serve_until_stopped() {
    constexpr std::chrono::hours kLong(1);
    try {
      while (!stopping_)
        if (const std::optional<int> worker = comm_.next_sender(kLong, kRequests)) answer(*worker);
      for (Slot& slot : slots_) take_back(slot);
    } catch (const std::exception& error) {
      error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
      comm_.abort(error.what());  // where it is not the communicator's failure: tells the others
      for (Slot& slot : slots_) abandon(slot);
    }
  }

  void answer(int worker) {
    Slot& slot = slots_[turn_++ % slots_.size()];
    take_back(slot);
    size_t& next = next_piece_[static_cast<size_t>(worker)];
    const size_t index = next;
    next = (next + 1) % shards_.pieces(comm_.rank());
    const size_t size = shards_.piece(comm_.rank(), index).size;
    const std::span<T> data = slot.memory.span().first(size + layout_.record_elements());
    comm_.run(Call::recv(data.first(size), worker, kRequests));
    apply(worker, index, data);
    slot.answer = comm_.start(Call::send(data, worker, kAnswers));
  }

  static void take_back(Slot& slot) {
    if (slot.answer) slot.answer->wait();
    slot.answer.reset();
  }

  /// After a failure, which another answer need not tell again.
  static void abandon(Slot& slot) noexcept {
    try {
      take_back(slot);
    } catch (const std::exception&) {
      slot.answer.reset();
    }
  }

  /// In: parameters of `worker`, and room for a record; out: the center before, the record after.
  void apply(int worker, size_t index, std::span<T> data) {
    const Part piece = shards_.piece(comm_.rank(), index);
    T* center = center_.data() + (piece.begin - shards_.shard(comm_.rank()).begin);
    std::lock_guard lock(mutex_);
    for (T& value : data.first(piece.size)) {
      const T before = *center;
      *center = add(before, elastic_difference(value, before, alpha_));
      value = before;
      ++center;
    }
    records_[index].change(worker);
    layout_.write_record(data, records_[index]);
  }

  Communicator& comm_;
  const CopyLayout<T>& layout_;
  const Shards& shards_;
  const Wide<T> alpha_;
  std::mutex mutex_;  // guards the elements of center_, and records_
  Buffer<T> center_;
  std::vector<PieceRecord> records_;  // of its pieces
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written before failed_ is set
  // The thread's own:
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  std::vector<size_t> next_piece_;  // by worker: of its next request
  std::thread thread_;
};

}  // namespace ropewalk

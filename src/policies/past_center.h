// The center of an epoch that has ended, and how those who are left restore it: of each piece the
// latest copy that any of them has. Its owner has that, if it is left. Else some worker has, which
// exchanged last: its copy has all exchanges that came before, so every exchange that has ended on
// a rank that is left is in it, once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/center_pieces.h"
#include "policies/meeting.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// What a rank has of it.
template <class T>
struct PastCenter {
  CenterId id;
  CopyLayout<T> layout;
  std::vector<T> copy;  // a piece whose record has version 0 is not known
  int rank = -1;        // of this rank, in records
  /// Set where this rank's last exchange has failed: whether it was an odd one, counted from 1.
  std::optional<bool> failed_is_odd;
  std::vector<T> sent;  // of that exchange, where it is to be completed: all parameters
};

/// Collective; a value, the same on every rank, tells where each piece comes from.
template <class T>
class Restoration {
 public:
  /// Agrees on where the pieces are. `own`: null on ranks that do not have that center.
  Restoration(Communicator& comm, const CopyLayout<T>& layout, PastCenter<T>* own)
      : comm_(comm), layout_(layout), own_(own) {
    std::vector<uint64_t> versions(layout.pieces());
    for (size_t number = 0; own != nullptr && number < versions.size(); ++number)
      versions[number] = record(number).version();
    std::vector<uint64_t> all(versions.size() * static_cast<size_t>(comm.size()));
    if (!all.empty()) comm.all_gather(versions, all);
    for (size_t number = 0; number < layout.pieces(); ++number) {
      sources_.push_back(latest(all, number));
      if (sources_.back() < 0) lost_elements_ += layout.part(number).size;
    }
  }

  /// Of pieces that nobody has; where there are any, nothing of the rest may be called.
  size_t lost_elements() const { return lost_elements_; }

  /// Collective. Of how many elements the exchange that has failed on this rank is in the center.
  size_t failed_elements() {
    const size_t words = PieceRecord::words_of(layout_.ranks());
    std::vector<uint64_t> records(words * layout_.pieces());
    const auto words_at = [&](size_t number) {
      return std::span(records).subspan(number * words, words);
    };
    for (size_t number = 0; number < layout_.pieces(); ++number)
      if (sources_[number] == comm_.rank())
        std::ranges::copy(record(number).words(), words_at(number).begin());
    if (!records.empty()) comm_.all_reduce(records);  // the others have zeros
    if (own_ == nullptr || !own_->failed_is_odd) return 0;
    size_t elements = 0;
    for (size_t number = 0; number < layout_.pieces(); ++number) {
      PieceRecord latest(layout_.ranks());
      std::ranges::copy(words_at(number), latest.words().begin());
      const Part part = layout_.part(number);
      if (latest.is_odd(own_->rank) == *own_->failed_is_odd)
        elements += part.size;
      else
        missing_.push_back(part);
    }
    return elements;
  }
  /// After that: where it is not.
  const std::vector<Part>& missing() const { return missing_; }

  /// Collective: the whole center, on every rank. Pieces that lie together and come from one rank
  /// travel together.
  void collect(std::span<T> vector) {
    for (size_t number = 0; number < layout_.pieces();) {
      const int source = sources_[number];
      Part run{layout_.part(number).begin, 0};
      for (; number < layout_.pieces() && sources_[number] == source; ++number) {
        const Part part = layout_.part(number);
        run.size += part.size;
        if (source == comm_.rank())
          std::ranges::copy(layout_.elements(own_->copy, number), &vector[part.begin]);
      }
      comm_.broadcast(vector.subspan(run.begin, run.size), source);
    }
  }

 private:
  PieceRecord record(size_t number) const {
    return layout_.read_record(layout_.slot(own_->copy, number));
  }

  /// -1: nobody has it. Equal versions are equal bit for bit; of those who have one each gives
  /// some, which lie together.
  int latest(std::span<const uint64_t> versions, size_t number) const {
    const auto ranks = static_cast<size_t>(comm_.size());
    int source = -1;
    uint64_t most = 0;
    for (size_t i = 0; i < ranks; ++i) {
      const size_t rank = (number * ranks / layout_.pieces() + i) % ranks;
      const uint64_t version = versions[rank * layout_.pieces() + number];
      if (version <= most) continue;
      most = version;
      source = static_cast<int>(rank);
    }
    return source;
  }

  Communicator& comm_;
  const CopyLayout<T>& layout_;
  PastCenter<T>* const own_;
  std::vector<int> sources_;  // by piece
  std::vector<Part> missing_;
  size_t lost_elements_ = 0;
};

}  // namespace ropewalk

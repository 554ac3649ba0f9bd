// How the center of asynchronous elastic averaging is cut, and what is told of its pieces. The
// vector of all parameters is cut into a shard for each owner, and each shard into pieces, which
// travel one by one.
//
// With a piece goes its record: its version, by which of two copies the later one is known, and for
// each rank whether that has changed it an odd number of times, by which a rank knows whether a
// copy has its last change.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ropewalk {

/// A part of the vector, in elements.
struct Part {
  size_t begin = 0, size = 0;
};

/// Pure. Shards differ by one element at most; only the last piece of a shard may be short.
class Shards {
 public:
  Shards(size_t total, int owners, size_t piece)
      : total_(total), owners_(static_cast<size_t>(owners)), piece_(piece) {}

  size_t total() const { return total_; }
  int owners() const { return static_cast<int>(owners_); }

  Part shard(int owner) const {
    const size_t begin = bound(static_cast<size_t>(owner));
    return {begin, bound(static_cast<size_t>(owner) + 1) - begin};
  }
  size_t pieces(int owner) const { return (shard(owner).size + piece_ - 1) / piece_; }
  /// Of the largest shard.
  size_t pieces_max() const {
    size_t most = 0;
    for (int owner = 0; owner < owners(); ++owner) most = std::max(most, pieces(owner));
    return most;
  }
  /// Where piece `index` of the shard of `owner` lies in the vector.
  Part piece(int owner, size_t index) const {
    const Part whole = shard(owner);
    const size_t begin = index * piece_;
    return {whole.begin + begin, std::min(piece_, whole.size - begin)};
  }

 private:
  /// Without the overflow of total * owner.
  size_t bound(size_t owner) const {
    return total_ / owners_ * owner + std::min(owner, total_ % owners_);
  }

  size_t total_, owners_, piece_;
};

/// Of one piece, in 64-bit words: [version][a bit for each rank].
class PieceRecord {
 public:
  /// Of a piece of a new center. Zeroed memory, in place of a record: the piece is not known here.
  explicit PieceRecord(int ranks) : words_(words_of(ranks)) { words_[0] = 1; }
  static size_t words_of(int ranks) { return 1 + (static_cast<size_t>(ranks) + 63) / 64; }

  uint64_t version() const { return words_[0]; }
  bool is_odd(int rank) const { return (words_[word_of(rank)] & bit_of(rank)) != 0; }
  void change(int rank) {
    ++words_[0];
    words_[word_of(rank)] ^= bit_of(rank);
  }
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }

 private:
  static size_t word_of(int rank) { return 1 + static_cast<size_t>(rank) / 64; }
  static uint64_t bit_of(int rank) { return uint64_t{1} << (static_cast<size_t>(rank) % 64); }

  std::vector<uint64_t> words_;
};

/// Where the pieces lie in a copy of the whole center: the shards in the order of their owners,
/// each piece followed by its record, which takes the room of some elements. Pure.
template <class T>
class CopyLayout {
 public:
  /// `ranks`: of the communicator.
  CopyLayout(const Shards& shards, int ranks) : shards_(shards), ranks_(ranks) {
    for (int owner = 0; owner < shards.owners(); ++owner) {
      first_.push_back(pieces_.size());
      for (size_t index = 0; index < shards.pieces(owner); ++index) {
        pieces_.push_back({shards.piece(owner, index), size_});
        size_ += round_up(pieces_.back().part.size + record_elements());
      }
    }
  }

  const Shards& shards() const { return shards_; }
  int ranks() const { return ranks_; }
  /// Of a copy, in elements.
  size_t size() const { return size_; }
  /// Of all owners; numbered from 0, in their order in the vector.
  size_t pieces() const { return pieces_.size(); }
  size_t number(int owner, size_t index) const {
    return first_[static_cast<size_t>(owner)] + index;
  }
  /// In the vector of all parameters.
  Part part(size_t number) const { return pieces_[number].part; }

  /// A piece of a `copy`, with its record: as it travels.
  std::span<T> slot(std::span<T> copy, size_t number) const {
    const Piece& piece = pieces_[number];
    return copy.subspan(piece.begin, piece.part.size + record_elements());
  }
  std::span<T> elements(std::span<T> copy, size_t number) const {
    return slot(copy, number).first(pieces_[number].part.size);
  }

  size_t record_elements() const {
    return PieceRecord::words_of(ranks_) * sizeof(uint64_t) / sizeof(T);
  }
  PieceRecord read_record(std::span<const T> slot) const {
    PieceRecord record(ranks_);
    std::memcpy(record.words().data(), record_in(slot).data(), record.words().size_bytes());
    return record;
  }
  void write_record(std::span<T> slot, const PieceRecord& record) const {
    std::memcpy(record_in(slot).data(), record.words().data(), record.words().size_bytes());
  }
  void copy_record(std::span<const T> from, std::span<T> to) const {
    std::ranges::copy(record_in(from), record_in(to).begin());
  }

 private:
  struct Piece {
    Part part;
    size_t begin;  // of its slot in a copy, in elements
  };

  template <class U>
  std::span<U> record_in(std::span<U> slot) const {
    return slot.last(record_elements());
  }
  /// To whole cache lines.
  static size_t round_up(size_t elements) {
    constexpr size_t kLine = 64 / sizeof(T);
    return (elements + kLine - 1) / kLine * kLine;
  }

  Shards shards_;
  int ranks_;
  size_t size_ = 0;
  std::vector<size_t> first_;  // by owner: number of its first piece
  std::vector<Piece> pieces_;
};

}  // namespace ropewalk

// How asynchronous elastic averaging cuts the vector of all parameters: a shard for each owner, and
// each shard in pieces, which travel one by one.
#pragma once

#include <algorithm>
#include <cstddef>

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

}  // namespace ropewalk

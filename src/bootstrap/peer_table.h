// What all ranks of a job have said of themselves, which ranks of one process share.
#pragma once

#include <cassert>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "bootstrap/frame_stream.h"

namespace ropewalk {

/// By rank. Of a rank that is not known yet there is a record whose rank is -1. A reference to a
/// record is good until its row is set or shared.
class PeerTable {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = PeerRecord;
    using difference_type = std::ptrdiff_t;
    using pointer = const PeerRecord*;
    using reference = const PeerRecord&;

    Iterator() = default;
    explicit Iterator(const std::shared_ptr<const PeerRecord>* row) : row_(row) {}
    reference operator*() const { return **row_; }
    pointer operator->() const { return row_->get(); }
    Iterator& operator++() {
      ++row_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(row_++); }
    bool operator==(const Iterator&) const = default;

   private:
    const std::shared_ptr<const PeerRecord>* row_ = nullptr;
  };

  explicit PeerTable(size_t size) : rows_(size, std::make_shared<const PeerRecord>()) {}
  explicit PeerTable(const std::vector<PeerRecord>& records) {
    for (const PeerRecord& record : records)
      rows_.push_back(std::make_shared<const PeerRecord>(record));
  }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  const PeerRecord& operator[](size_t rank) const {
    assert(rank < size());
    return *rows_[rank];
  }
  Iterator begin() const { return Iterator(rows_.data()); }
  Iterator end() const { return Iterator(rows_.data() + rows_.size()); }

  void set(size_t rank, PeerRecord record) {
    assert(rank < size());
    rows_[rank] = std::make_shared<const PeerRecord>(std::move(record));
  }
  void share(size_t rank, std::shared_ptr<const PeerRecord> record) {
    assert(rank < size() && record);
    rows_[rank] = std::move(record);
  }

 private:
  std::vector<std::shared_ptr<const PeerRecord>> rows_;
};

namespace bootstrap {

/// A frame of records, whole where that is wanted, and what it says; null where that makes no
/// sense.
struct RecordsFrame {
  std::shared_ptr<const Bytes> frame;
  std::shared_ptr<const std::vector<PeerRecord>> records;
};

/// Of `frame`. `digest` is that of all frames of records up to it (digest_with): ranks of this
/// process that are given the same get the same objects, as long as one of them keeps these.
/// `wants_frame`: to pass it on. Thread-safe.
RecordsFrame share_records(const Digest& digest, const Frame& frame, bool wants_frame);

}  // namespace bootstrap
}  // namespace ropewalk

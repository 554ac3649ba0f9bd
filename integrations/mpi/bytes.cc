#include "bytes.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <climits>
#include <cstring>

#include "channel.h"

namespace ropewalk::mpi {
namespace {

// MPI counts what it packs as int.
constexpr size_t kPieceBytesMax = 1 << 30;
constexpr size_t kPackedBytesMax = INT_MAX;

/// A type of that many bytes in one piece.
MPI_Datatype make_type_of_bytes(size_t bytes) {
  MPI_Datatype piece{}, made{};
  pmpi.Type_contiguous(static_cast<int>(kPieceBytesMax), MPI_BYTE, &piece);
  const size_t pieces = bytes / kPieceBytesMax;
  const int lengths[] = {static_cast<int>(pieces), static_cast<int>(bytes % kPieceBytesMax)};
  const MPI_Aint at[] = {0, static_cast<MPI_Aint>(pieces * kPieceBytesMax)};
  const MPI_Datatype types[] = {piece, MPI_BYTE};
  pmpi.Type_create_struct(2, lengths, at, types, &made);
  pmpi.Type_commit(&made);
  pmpi.Type_free(&piece);
  return made;
}

/// What MPI_Pack cannot count goes as a message to this rank itself.
void move_long_element(const void* from, MPI_Datatype from_type, void* to, MPI_Datatype to_type) {
  constexpr int kTags = 1 << 14;  // every MPI has as many
  static std::atomic<int> next_tag{0};
  const int tag = 1 + next_tag++ % kTags;  // other threads may do the same
  pmpi.Sendrecv(from, 1, from_type, 0, tag, to, 1, to_type, 0, tag, own_self(), MPI_STATUS_IGNORE);
}

}  // namespace

Bytes::Bytes(const void* buffer, MPI_Datatype type)
    : buffer_(static_cast<std::byte*>(const_cast<void*>(buffer))),
      type_(type),
      layout_(layout_of(type)),
      in_one_piece_(layout_.is_dense) {}

Bytes::Bytes(const void* buffer, MPI_Datatype type, size_t count, size_t at) : Bytes(buffer, type) {
  add(static_cast<ptrdiff_t>(at), count);
}

void Bytes::add(ptrdiff_t at, size_t count) {
  if (count == 0) return;
  std::byte* const data = buffer_ + at * layout_.extent;
  size_ += count * layout_.bytes;
  if (part_count_++ == 0) return void(first_ = {data, count});
  const Part& last = more_.empty() ? first_ : more_.back();
  in_one_piece_ &= data == last.data + static_cast<ptrdiff_t>(last.count) * layout_.extent;
  more_.push_back({data, count});
}

bool Bytes::has_room_for(size_t bytes) const {
  return bytes <= size_ && (layout_.bytes == 0 || bytes % layout_.bytes == 0);
}

void Bytes::shorten(size_t bytes) {
  assert(has_room_for(bytes) && part_count_ <= 1 && !memory_);
  if (bytes == size_) return;
  size_ = bytes;
  first_.count = bytes / layout_.bytes;
  if (bytes == 0) part_count_ = 0;
}

std::byte* Bytes::memory() {
  if (!memory_) memory_ = get_packing_memory(size_);
  return memory_.get();
}

/// `move(data, count, packed, bytes)` for pieces that an int can count, where elements are not
/// longer than that.
template <class Move>
void Bytes::for_each_piece(const Move& move) {
  std::byte* packed = memory();
  const size_t count_max =
      std::clamp<size_t>(kPieceBytesMax / std::max<size_t>(layout_.bytes, 1), 1, INT_MAX);
  for (size_t i = 0; i < part_count_; ++i) {
    const Part& part = i == 0 ? first_ : more_[i - 1];
    for (size_t done = 0; done < part.count;) {
      const size_t count = std::min(part.count - done, count_max);
      const size_t bytes = count * layout_.bytes;
      move(part.data + static_cast<ptrdiff_t>(done) * layout_.extent, count, packed, bytes);
      packed += bytes;
      done += count;
    }
  }
}

void Bytes::pack() {
  const bool is_long = !layout_.is_dense && layout_.bytes > kPackedBytesMax;
  MPI_Datatype packed_type = is_long ? make_type_of_bytes(layout_.bytes) : MPI_DATATYPE_NULL;
  for_each_piece([&](std::byte* data, size_t count, std::byte* packed, size_t bytes) {
    if (layout_.is_dense) return void(std::memcpy(packed, data, bytes));
    if (is_long) return move_long_element(data, type_, packed, packed_type);
    int position = 0;
    pmpi.Pack(data, static_cast<int>(count), type_, packed, static_cast<int>(bytes), &position,
              MPI_COMM_SELF);
  });
  if (is_long) pmpi.Type_free(&packed_type);
}

const std::byte* Bytes::read() {
  if (part_count_ == 0) return memory();
  if (in_one_piece_) return first_.data;
  return read_copy();
}

void Bytes::keep_type() {
  if (layout_.is_dense) return;
  pmpi.Type_dup(type_, &type_);
  kept_type_ = {nullptr, [type = type_](void*) mutable { pmpi.Type_free(&type); }};
}

const std::byte* Bytes::read_copy() {
  is_packed_ = true;
  pack();
  return memory();
}

std::byte* Bytes::write() {
  return in_one_piece_ && part_count_ > 0 ? first_.data : memory();
}

void Bytes::finish() {
  if (!memory_) return;
  const bool is_long = !layout_.is_dense && layout_.bytes > kPackedBytesMax;
  MPI_Datatype packed_type = is_long ? make_type_of_bytes(layout_.bytes) : MPI_DATATYPE_NULL;
  for_each_piece([&](std::byte* data, size_t count, std::byte* packed, size_t bytes) {
    if (layout_.is_dense) return void(std::memcpy(data, packed, bytes));
    if (is_long) return move_long_element(packed, packed_type, data, type_);
    int position = 0;
    pmpi.Unpack(packed, static_cast<int>(bytes), &position, data, static_cast<int>(count), type_,
                MPI_COMM_SELF);
  });
  if (is_long) pmpi.Type_free(&packed_type);
}

}  // namespace ropewalk::mpi

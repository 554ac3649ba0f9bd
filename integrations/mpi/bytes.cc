#include "bytes.h"

#include <algorithm>
#include <cstring>

namespace ropewalk::mpi {
namespace {

constexpr size_t kPieceBytesMax = 1 << 30;  // MPI counts what it packs as int

}  // namespace

size_t bytes_of(MPI_Datatype type) {
  if (const Type* known = find_type(type)) return known->bytes();
  int bytes = 0;
  pmpi.Type_size(type, &bytes);
  return static_cast<size_t>(bytes);
}

Bytes::Bytes(const void* buffer, MPI_Datatype type)
    : buffer_(static_cast<std::byte*>(const_cast<void*>(buffer))),
      type_(type),
      is_predefined_(find_type(type) != nullptr),
      element_bytes_(bytes_of(type)),
      extent_(static_cast<ptrdiff_t>(element_bytes_)),
      in_one_piece_(is_predefined_) {
  MPI_Aint least = 0, extent = 0;
  if (is_predefined_) return;
  pmpi.Type_get_extent(type, &least, &extent);
  extent_ = extent;
}

Bytes::Bytes(const void* buffer, MPI_Datatype type, size_t count, size_t at) : Bytes(buffer, type) {
  add(static_cast<ptrdiff_t>(at), count);
}

void Bytes::add(ptrdiff_t at, size_t count) {
  if (count == 0) return;
  std::byte* const data = buffer_ + at * extent_;
  if (!parts_.empty()) {
    const Part& last = parts_.back();
    in_one_piece_ &= data == last.data + static_cast<ptrdiff_t>(last.count) * extent_;
  }
  parts_.push_back({data, count});
  size_ += count * element_bytes_;
}

std::byte* Bytes::memory() {
  if (!memory_) memory_.reset(new std::byte[std::max<size_t>(size_, 1)]);
  return memory_.get();
}

/// `move(data, count, packed, bytes)` for pieces that an int can count.
template <class Move>
void Bytes::for_each_piece(const Move& move) {
  std::byte* packed = memory();
  const size_t count_max =
      std::max<size_t>(kPieceBytesMax / std::max<size_t>(element_bytes_, 1), 1);
  for (const Part& part : parts_)
    for (size_t done = 0; done < part.count;) {
      const size_t count = std::min(part.count - done, count_max);
      const size_t bytes = count * element_bytes_;
      move(part.data + static_cast<ptrdiff_t>(done) * extent_, count, packed, bytes);
      packed += bytes;
      done += count;
    }
}

void Bytes::pack() {
  for_each_piece([&](std::byte* data, size_t count, std::byte* packed, size_t bytes) {
    if (is_predefined_) return void(std::memcpy(packed, data, bytes));
    int position = 0;
    pmpi.Pack(data, static_cast<int>(count), type_, packed, static_cast<int>(bytes), &position,
              MPI_COMM_SELF);
  });
}

const std::byte* Bytes::read() {
  if (parts_.empty()) return memory();
  if (in_one_piece_) return parts_.front().data;
  return read_copy();
}

void Bytes::keep_type() {
  if (is_predefined_) return;
  pmpi.Type_dup(type_, &type_);
  kept_type_ = {nullptr, [type = type_](void*) mutable { pmpi.Type_free(&type); }};
}

const std::byte* Bytes::read_copy() {
  is_packed_ = true;
  pack();
  return memory();
}

std::byte* Bytes::write() {
  return in_one_piece_ && !parts_.empty() ? parts_.front().data : memory();
}

void Bytes::finish() {
  if (!memory_) return;
  for_each_piece([&](std::byte* data, size_t count, std::byte* packed, size_t bytes) {
    if (is_predefined_) return void(std::memcpy(data, packed, bytes));
    int position = 0;
    pmpi.Unpack(packed, static_cast<int>(bytes), &position, data, static_cast<int>(count), type_,
                MPI_COMM_SELF);
  });
}

}  // namespace ropewalk::mpi

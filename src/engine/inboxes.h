// Memory for the inboxes of many peers, in few pieces: registrations and descriptors are scarce.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/wire.h"
#include "memory/registered_memory.h"

namespace ropewalk {

/// An inbox, and behind it what its owner sends to the same peer from: the probe where the peer's
/// inbox is mapped, else a mirror of the whole.
struct Boxes {
  std::byte* base = nullptr;
  const MemoryRegistration* memory = nullptr;  // of what contains them
  uint64_t offset = 0;                         // in that
};

/// Of one transport, which outlives it. The first pieces hold one inbox each, later ones as many as
/// there are, up to 16. What was given out stays for as long as this lives.
class Inboxes {
 public:
  explicit Inboxes(Transport& transport) : transport_(transport) {}

  /// Zeroed. Throws Error, as RegisteredMemory does.
  Boxes take() {
    if (taken_ == room_) add_piece();
    const RegisteredMemory& piece = *pieces_.back();
    const uint64_t offset = (taken_++ - first_) * bytes_;
    return {piece.data() + offset, piece.registrations()[0].get(), offset};
  }

 private:
  static constexpr size_t kPieceMax = 16;

  void add_piece() {
    const size_t count = std::clamp<size_t>(taken_, 1, kPieceMax);
    // Over a network short messages use a part of each slot.
    using Pages = RegisteredMemory::Pages;
    auto piece =
        std::make_unique<RegisteredMemory>(count * bytes_, std::array{&transport_}, nullptr,
                                           mapped_ ? Pages::present : Pages::on_demand);
    piece->register_with(transport_);
    pieces_.push_back(std::move(piece));
    first_ = taken_;
    room_ += count;
  }

  Transport& transport_;
  const bool mapped_ = transport_.mapped_memory() != nullptr;
  const size_t bytes_ = inbox_bytes(mapped_) + (mapped_ ? kRingOffset : inbox_bytes(mapped_));
  std::vector<std::unique_ptr<RegisteredMemory>> pieces_;
  size_t taken_ = 0, room_ = 0;  // inboxes, of all pieces
  size_t first_ = 0;             // number of the last piece's first
};

}  // namespace ropewalk

#include "engine/staging_pool.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <mutex>
#include <optional>
#include <utility>

namespace ropewalk {
namespace {

/// Lengths are powers of two from the least on; what is longer than the most has memory of its own.
constexpr size_t kLeast = 4096, kMost = 1 << 20;
constexpr size_t kLengths = std::countr_zero(kMost / kLeast) + 1;
/// Each piece is twice as long as the last.
constexpr size_t kPieceMost = 8 << 20;

size_t length_for(size_t bytes) {
  return std::bit_ceil(std::max(bytes, kLeast));
}
size_t class_of(size_t length) {
  return static_cast<size_t>(std::countr_zero(length / kLeast));
}

}  // namespace

/// What was given back, by length.
struct Staging::SizeClasses {
  struct FreePiece {
    std::shared_ptr<RegisteredMemory> memory;
    size_t offset = 0;
  };
  std::optional<FreePiece> take(size_t length) {
    const std::lock_guard lock(mutex);
    std::vector<FreePiece>& size_class = pieces[class_of(length)];
    if (size_class.empty()) return {};
    FreePiece piece = std::move(size_class.back());
    size_class.pop_back();
    return piece;
  }
  /// For one more of that length, so that to give it back allocates nothing.
  void make_room(size_t length) {
    const std::lock_guard lock(mutex);
    pieces[class_of(length)].reserve(++cut[class_of(length)]);
  }
  void put(size_t length, FreePiece piece) {
    const std::lock_guard lock(mutex);
    std::vector<FreePiece>& size_class = pieces[class_of(length)];
    assert(size_class.size() < size_class.capacity());
    size_class.push_back(std::move(piece));
  }

  std::mutex mutex;
  std::array<std::vector<FreePiece>, kLengths> pieces;
  std::array<size_t, kLengths> cut{};  // of each length, ever
};

Staging::~Staging() {
  if (size_classes_) size_classes_->put(length_for(bytes_), {std::move(memory_), offset_});
}

StagingPool::StagingPool(std::vector<Transport*> transports)
    : transports_(std::move(transports)), size_classes_(std::make_shared<Staging::SizeClasses>()) {}

std::shared_ptr<RegisteredMemory> StagingPool::allocate(size_t bytes) const {
  auto memory = std::make_shared<RegisteredMemory>(bytes, transports_);
  for (Transport* transport : transports_) memory->register_with(*transport);
  return memory;
}

std::unique_ptr<Staging> StagingPool::take(size_t bytes) {
  if (bytes > kMost) return std::unique_ptr<Staging>(new Staging(allocate(bytes), 0, bytes, {}));
  const size_t length = length_for(bytes);
  auto piece = size_classes_->take(length);
  if (!piece) {
    size_classes_->make_room(length);
    if (!piece_ || cut_ + length > piece_->bytes()) {
      const size_t last = piece_ ? piece_->bytes() : 0;
      piece_ = allocate(std::clamp(2 * last, length, kPieceMost));
      cut_ = 0;
    }
    piece = Staging::SizeClasses::FreePiece{piece_, std::exchange(cut_, cut_ + length)};
  }
  return std::unique_ptr<Staging>(
      new Staging(std::move(piece->memory), piece->offset, bytes, size_classes_));
}

}  // namespace ropewalk

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
size_t shelf_of(size_t length) {
  return static_cast<size_t>(std::countr_zero(length / kLeast));
}

}  // namespace

/// What was given back, by length.
struct Staging::Shelves {
  struct Place {
    std::shared_ptr<RegisteredMemory> memory;
    size_t offset = 0;
  };
  std::optional<Place> take(size_t length) {
    const std::lock_guard lock(mutex);
    std::vector<Place>& shelf = places[shelf_of(length)];
    if (shelf.empty()) return {};
    Place place = std::move(shelf.back());
    shelf.pop_back();
    return place;
  }
  /// For one more of that length, so that to give it back allocates nothing.
  void make_room(size_t length) {
    const std::lock_guard lock(mutex);
    places[shelf_of(length)].reserve(++cut[shelf_of(length)]);
  }
  void put(size_t length, Place place) {
    const std::lock_guard lock(mutex);
    std::vector<Place>& shelf = places[shelf_of(length)];
    assert(shelf.size() < shelf.capacity());
    shelf.push_back(std::move(place));
  }

  std::mutex mutex;
  std::array<std::vector<Place>, kLengths> places;
  std::array<size_t, kLengths> cut{};  // of each length, ever
};

Staging::~Staging() {
  if (shelves_) shelves_->put(length_for(bytes_), {std::move(memory_), offset_});
}

StagingPool::StagingPool(std::vector<Transport*> transports)
    : transports_(std::move(transports)), shelves_(std::make_shared<Staging::Shelves>()) {}

std::shared_ptr<RegisteredMemory> StagingPool::allocate(size_t bytes) const {
  auto memory = std::make_shared<RegisteredMemory>(bytes, transports_);
  for (Transport* transport : transports_) memory->register_with(*transport);
  return memory;
}

std::unique_ptr<Staging> StagingPool::take(size_t bytes) {
  if (bytes > kMost) return std::unique_ptr<Staging>(new Staging(allocate(bytes), 0, bytes, {}));
  const size_t length = length_for(bytes);
  auto place = shelves_->take(length);
  if (!place) {
    shelves_->make_room(length);
    if (!piece_ || cut_ + length > piece_->bytes()) {
      const size_t last = piece_ ? piece_->bytes() : 0;
      piece_ = allocate(std::clamp(2 * last, length, kPieceMost));
      cut_ = 0;
    }
    place = Staging::Shelves::Place{piece_, std::exchange(cut_, cut_ + length)};
  }
  return std::unique_ptr<Staging>(
      new Staging(std::move(place->memory), place->offset, bytes, shelves_));
}

}  // namespace ropewalk

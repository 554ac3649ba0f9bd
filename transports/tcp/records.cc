#include "transports/tcp/records.h"

#include <sodium.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/little_endian.h"

namespace ropewalk::tcp {
namespace {

// Sends of 256 KiB and more are what loopback takes best; and it stays in the processor's cache.
constexpr size_t kSealedRoom = 4 * RecordCipher::kRecordBytesMax;
constexpr size_t kReceivedRoom = 4 * RecordCipher::kRecordBytesMax;
// Up to this much of a piece is copied, to share a record with its neighbours: a header and the
// short payload behind it.
constexpr size_t kCopiedBytes = 4 << 10;

enum class Subkey : uint64_t { data = 1, next = 2 };

Key derive(const Key& from, Subkey which) {
  static_assert(std::tuple_size_v<Key> == crypto_kdf_KEYBYTES);
  Key key;
  crypto_kdf_derive_from_key(key.data(), key.size(), static_cast<uint64_t>(which), "tcp data",
                             from.data());
  return key;
}

}  // namespace

RecordCipher::RecordCipher(const Key& connection_key)
    : key_(derive(connection_key, Subkey::data)), aes_(key_) {}

RecordCipher::~RecordCipher() {
  sodium_memzero(key_.data(), key_.size());
}

uint64_t RecordCipher::next_nonce() {
  if (records_ == kRecordsPerKey) {
    key_ = derive(key_, Subkey::next);
    aes_.set_key(key_);
    records_ = 0;
  }
  return records_++;
}

void RecordCipher::seal(std::span<const std::byte> plain, std::byte* record) {
  assert(!plain.empty() && plain.size() <= kPlainBytesMax);
  little_endian::store(record, static_cast<uint32_t>(plain.size() + AesGcm::kTagBytes));
  aes_.seal(next_nonce(), {record, kHeaderBytes}, plain, record + kHeaderBytes);
}

bool RecordCipher::open(std::span<const std::byte> record, std::byte* into) {
  assert(record.size() > kOverheadBytes && record.size() <= kRecordBytesMax);
  return aes_.open(next_nonce(), record.first(kHeaderBytes), record.subspan(kHeaderBytes), into);
}

// ---- Sealing ----

RecordSealer::RecordSealer(const Key& connection_key)
    : cipher_(connection_key), room_(std::make_unique_for_overwrite<std::byte[]>(kSealedRoom)) {}

size_t RecordSealer::free() const {
  const size_t room = kSealedRoom - end_;
  return room <= RecordCipher::kOverheadBytes
             ? 0
             : std::min(room - RecordCipher::kOverheadBytes, RecordCipher::kPlainBytesMax);
}

size_t RecordSealer::seal(std::span<iovec>& pieces) {
  assert(unsent().empty());
  size_t sealed = 0;
  while (!pieces.empty() && free() > 0)
    sealed += pieces[0].iov_len > kCopiedBytes ? seal_part(pieces) : seal_short(pieces);
  return sealed;
}

// Of the first piece, as much as a record and the room may hold.
size_t RecordSealer::seal_part(std::span<iovec>& pieces) {
  iovec& piece = pieces[0];
  const size_t bytes = std::min(piece.iov_len, free());
  add({static_cast<const std::byte*>(piece.iov_base), bytes});
  piece = {static_cast<std::byte*>(piece.iov_base) + bytes, piece.iov_len - bytes};
  if (piece.iov_len == 0) pieces = pieces.subspan(1);
  return bytes;
}

// The short ones at the front, in one record. They are copied to where they will be sealed.
size_t RecordSealer::seal_short(std::span<iovec>& pieces) {
  std::byte* const plain = room_.get() + end_ + RecordCipher::kHeaderBytes;
  const size_t most = std::min(free(), RecordCipher::kMixedBytesMax);
  size_t bytes = 0;
  while (!pieces.empty() && pieces[0].iov_len <= kCopiedBytes && bytes < most) {
    iovec& piece = pieces[0];
    const size_t part = std::min(piece.iov_len, most - bytes);
    std::memcpy(plain + bytes, piece.iov_base, part);
    bytes += part;
    piece = {static_cast<std::byte*>(piece.iov_base) + part, piece.iov_len - part};
    if (piece.iov_len == 0) pieces = pieces.subspan(1);
  }
  if (bytes > 0) add({plain, bytes});
  return bytes;
}

void RecordSealer::add(std::span<const std::byte> plain) {
  cipher_.seal(plain, room_.get() + end_);
  end_ += plain.size() + RecordCipher::kOverheadBytes;
}

void RecordSealer::add_sealed(std::span<const std::byte> record) {
  assert(record.size() <= kSealedRoom - end_);
  std::ranges::copy(record, room_.get() + end_);
  end_ += record.size();
}

void RecordSealer::sent(size_t bytes) {
  assert(bytes <= unsent().size());
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
}

// ---- Opening ----

RecordOpener::RecordOpener(const Key& connection_key)
    : cipher_(connection_key), room_(std::make_unique_for_overwrite<std::byte[]>(kReceivedRoom)) {}

iovec RecordOpener::place() {
  if (begin_ > 0 && kReceivedRoom - end_ < RecordCipher::kRecordBytesMax) {
    std::memmove(room_.get(), room_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  assert(end_ < kReceivedRoom);
  return {room_.get() + end_, kReceivedRoom - end_};
}

void RecordOpener::received(size_t bytes) {
  assert(bytes <= kReceivedRoom - end_);
  end_ += bytes;
}

std::optional<size_t> RecordOpener::next() const {
  const size_t here = end_ - begin_;
  if (here < RecordCipher::kHeaderBytes) return {};
  const size_t sealed = little_endian::load<uint32_t>(room_.get() + begin_);
  if (sealed <= AesGcm::kTagBytes || sealed > RecordCipher::kPlainBytesMax + AesGcm::kTagBytes)
    return 0;
  if (here < RecordCipher::kHeaderBytes + sealed) return {};
  return sealed - AesGcm::kTagBytes;
}

bool RecordOpener::open(std::byte* into) {
  const auto bytes = next();
  assert(bytes && *bytes > 0);
  const std::span record(room_.get() + begin_, *bytes + RecordCipher::kOverheadBytes);
  begin_ += record.size();
  const bool opened = cipher_.open(record, into);
  if (begin_ == end_) begin_ = end_ = 0;
  return opened;
}

}  // namespace ropewalk::tcp

// What keeps data from being read or changed on its way: the bytes of a stream in sealed records.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transports/tcp/aes_gcm.h"

namespace ropewalk::tcp {

/// The records of one direction of a stream: those of SecureChannel (docs/protocol.md, "Sealed
/// data"), with a cipher that is fast on long ones. A record that is longer than kMixedBytesMax
/// lies within one payload, so that it is opened straight into its region; others are cut anywhere.
/// A key seals kRecordsPerKey of them, and is followed by one that is derived from it.
class RecordCipher {
 public:
  static constexpr size_t kHeaderBytes = 4;
  static constexpr size_t kOverheadBytes = kHeaderBytes + AesGcm::kTagBytes;
  static constexpr size_t kPlainBytesMax = 64 << 10;  // in one record
  static constexpr size_t kMixedBytesMax = 40 << 10;
  static constexpr size_t kRecordBytesMax = kPlainBytesMax + kOverheadBytes;
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;  // 256 GiB at most

  /// `connection_key`: of this direction of the connection; another is derived from it.
  explicit RecordCipher(const Key& connection_key);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  /// Writes the next record, with what stands at `plain`, which may lie where its bytes go.
  void seal(std::span<const std::byte> plain, std::byte* record);
  /// False where `record` is not what the other end sealed next.
  [[nodiscard]] bool open(std::span<const std::byte> record, std::byte* into);

 private:
  /// The number of the next record under the present key.
  uint64_t next_nonce();

  Key key_;
  AesGcm aes_;
  uint64_t records_ = 0;
};

/// The sending end. Owns the room in which records stand until the socket has taken them; what was
/// sealed is free again at once.
class RecordSealer {
 public:
  explicit RecordSealer(const Key& connection_key);

  /// Seals the pieces from the first on, as far as there is room, and takes that off them; only
  /// where nothing is unsent. Returns how many bytes.
  size_t seal(std::span<iovec>& pieces);
  /// Appends a record that was sealed elsewhere.
  void add_sealed(std::span<const std::byte> record);
  std::span<const std::byte> unsent() const { return {room_.get() + begin_, end_ - begin_}; }
  void sent(size_t bytes);

 private:
  /// How much one more record may hold.
  size_t free() const;
  size_t seal_part(std::span<iovec>& pieces);
  size_t seal_short(std::span<iovec>& pieces);
  void add(std::span<const std::byte> plain);

  RecordCipher cipher_;
  std::unique_ptr<std::byte[]> room_;
  size_t begin_ = 0, end_ = 0;  // of it, what is unsent
};

/// The receiving end. Owns the room in which records arrive.
class RecordOpener {
 public:
  explicit RecordOpener(const Key& connection_key);

  /// Where the next bytes of the socket belong; only where no whole record is here.
  iovec place();
  void received(size_t bytes);
  /// How many bytes the next record holds, which is whole; 0: there can be no such record. Nothing
  /// where more has to be received.
  std::optional<size_t> next() const;
  /// Opens the next record; only where `next` told its length. False where it was changed on the
  /// way, left out, or repeated; nothing can be opened then any more.
  [[nodiscard]] bool open(std::byte* into);
  /// Nothing of a record is here.
  bool empty() const { return begin_ == end_; }

 private:
  RecordCipher cipher_;
  std::unique_ptr<std::byte[]> room_;
  size_t begin_ = 0, end_ = 0;  // of it, what was received and not opened
};

}  // namespace ropewalk::tcp

// What keeps a connection's bytes from being read, changed, dropped in the middle, or repeated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ropewalk {

using Key = std::array<unsigned char, 32>;

/// Of one connection, as one end has them: the other end's are these, exchanged. Each is used by
/// one SecureChannel and never again.
struct ConnectionKeys {
  Key send{}, receive{};
};

/// Both directions of a stream of bytes, cut into records, each sealed with
/// ChaCha20-Poly1305 (RFC 8439, by libsodium) under its number. docs/protocol.md, "Records".
/// One thread.
class SecureChannel {
 public:
  static constexpr size_t kHeaderBytes = 4, kTagBytes = 16;
  static constexpr size_t kOverheadBytes = kHeaderBytes + kTagBytes;
  static constexpr size_t kPlainBytesMax = 16384;  // of one record

  explicit SecureChannel(const ConnectionKeys& keys) : keys_(keys) {}
  ~SecureChannel();
  SecureChannel(SecureChannel&& other) noexcept = default;
  SecureChannel& operator=(SecureChannel&& other) noexcept = default;

  /// Appends `plain` to `into`, sealed.
  void seal(std::span<const std::byte> plain, std::vector<std::byte>& into);
  /// How long the record is that `received` begins with, as far as its header says; 0 where there
  /// is none that long. Nothing where the header is not whole.
  static std::optional<size_t> record_bytes(std::span<const std::byte> received);
  /// Takes the whole records at the front of `received` away and appends what they hold to `plain`.
  /// False, from then on, where one is not what the other end sealed next.
  [[nodiscard]] bool open(std::vector<std::byte>& received, std::vector<std::byte>& plain);

 private:
  bool open_record(std::span<const std::byte> record, std::vector<std::byte>& plain);

  ConnectionKeys keys_;
  uint64_t sealed_ = 0, opened_ = 0;  // records
  bool is_broken_ = false;            // to be read from
};

}  // namespace ropewalk

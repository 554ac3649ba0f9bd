// Reads a handshake as its bytes come in; what transports have in common that link over a socket.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

namespace ropewalk {

/// `Handshake` begins with a head of fixed length, which tells how long the rest is. In its
/// namespace are `kHandshakeHeadBytes` and two functions, both of which return null or what is
/// wrong, as the end of a sentence about the sender:
///   const char* parse_head(const std::byte* head, Handshake&, size_t& rest_bytes);
///   const char* parse_rest(const std::byte* rest, Handshake&);
template <class Handshake, size_t kHeadBytes>
class HandshakeReader {
 public:
  /// Takes the next byte. False: it can be no handshake; see `violation`.
  bool take(std::byte byte) {
    if (violation_ != nullptr) return false;
    assert(!complete_);
    bytes_.push_back(byte);
    if (bytes_.size() == kHeadBytes) {
      size_t rest_bytes = 0;
      violation_ = parse_head(bytes_.data(), handshake_, rest_bytes);
      wanted_ += rest_bytes;
    }
    if (violation_ == nullptr && bytes_.size() == wanted_) {
      violation_ = parse_rest(bytes_.data() + kHeadBytes, handshake_);
      complete_ = violation_ == nullptr;
    }
    return violation_ == nullptr;
  }
  bool complete() const { return complete_; }
  /// The end of a sentence about the sender: "sent bytes that are no handshake".
  const char* violation() const { return violation_; }
  const Handshake& handshake() const { return handshake_; }

 private:
  std::vector<std::byte> bytes_;
  size_t wanted_ = kHeadBytes;
  bool complete_ = false;
  const char* violation_ = nullptr;
  Handshake handshake_;
};

}  // namespace ropewalk

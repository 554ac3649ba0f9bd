// The handshake over a peer's authenticated socket, sealed, for transports whose bytes then take
// another way.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/sockets.h"

namespace ropewalk {

/// Reads a handshake as its bytes come in. `Handshake` begins with a head of fixed length, which
/// tells how long the rest is. In its namespace are `kHandshakeHeadBytes` and two functions, both
/// of which return null or what is wrong, as the end of a sentence about the sender:
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

/// This rank's end of it. `Reader` is a HandshakeReader. The socket stays open afterwards, and
/// tells when the peer has gone.
template <class Reader>
class Greeting {
 public:
  UniqueFd socket;  // none before `begin`
  Reader reader;

  /// Over this socket.
  void begin(ConnectedSocket connected) {
    socket = std::move(connected.fd);
    channel_.emplace(connected.keys);
    channel_->seal(waiting_, to_send_);
    waiting_.clear();
  }
  /// What `send` is to send; may come before the socket.
  void queue(std::span<const std::byte> bytes) {
    if (channel_)
      channel_->seal(bytes, to_send_);
    else
      waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  }
  bool all_sent() const { return waiting_.empty() && sent_ == to_send_.size(); }
  /// The peer's; empty before it has come.
  std::span<const std::byte> hello() const {
    if (!reader.complete()) return {};
    return reader.handshake().hello;
  }

  /// As much as the socket takes now. Why it takes no more for ever is found by reading.
  void send() {
    assert(socket);
    while (sent_ < to_send_.size()) {
      const ssize_t written =
          ::send(socket.get(), to_send_.data() + sent_, to_send_.size() - sent_, MSG_NOSIGNAL);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return;
      sent_ += static_cast<size_t>(written);
    }
  }

  /// Calls `take(byte)` for what has come, until it returns false. Returns why nothing will come
  /// any more, or nothing.
  template <class Take>
  std::string receive(Take&& take) {
    assert(socket);
    std::array<std::byte, 4096> bytes;
    for (;;) {
      const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (count == 0) return "connection closed by the peer";
      if (count < 0)
        return errno == EAGAIN || errno == EINTR ? "" : std::generic_category().message(errno);
      received_.insert(received_.end(), bytes.begin(), bytes.begin() + count);
      std::vector<std::byte> opened;
      const bool authentic = channel_->open(received_, opened);
      for (const std::byte byte : opened)
        if (!take(byte)) return {};
      if (!authentic) return "what came from the peer was changed on the way";
    }
  }

 private:
  std::optional<SecureChannel> channel_;  // once there is a socket
  std::vector<std::byte> waiting_;        // for it
  std::vector<std::byte> to_send_;        // sealed
  size_t sent_ = 0;                       // of to_send_
  std::vector<std::byte> received_;       // not yet a whole record
};

}  // namespace ropewalk

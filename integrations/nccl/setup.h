// Listening and connecting, in steps that never wait: NCCL calls again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "bootstrap/acceptor.h"
#include "integrations/nccl/agreement.h"
#include "integrations/nccl/handle.h"
#include "integrations/nccl/receive_link.h"
#include "integrations/nccl/send_link.h"

namespace ropewalk::nccl {

/// A listen communicator of NCCL: takes one connection after the other. One thread at a time.
class Listener {
 public:
  /// Writes the handle. `device` must outlive it. Throws Error.
  Listener(const Device& device, const Secret& job_key, std::byte* handle);

  /// Null: not yet. Throws Error.
  std::unique_ptr<ReceiveLink> accept();

 private:
  void take(bootstrap::AuthenticatedSocket incoming);
  bootstrap::HandshakeResult judge(const bootstrap::Hello& hello) const;

  const Device& device_;
  const MonotonicClock clock_;
  Handle handle_;
  std::optional<bootstrap::Acceptor> acceptor_;
  std::unique_ptr<PairSockets> sockets_;
  PairSockets* sockets_in_use_ = nullptr;  // of agreement_, then of link_
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<ReceiveLink> link_;
};

/// What becomes a send communicator. One thread at a time.
class Connector {
 public:
  /// `device` must outlive it. Throws Error.
  Connector(const Device& device, const Secret& job_key, const Handle& handle);

  /// Null: not yet. Throws Error.
  std::unique_ptr<SendLink> connect();

 private:
  void check_deadline(int64_t now_ns) const;

  const Device& device_;
  const MonotonicClock clock_;
  const std::string peer_;
  const int64_t deadline_ns_;  // until the peer has answered
  std::unique_ptr<PairSockets> sockets_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<SendLink> link_;
};

}  // namespace ropewalk::nccl

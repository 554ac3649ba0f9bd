// MUNGE: how processes of one user trust each other on a cluster that Slurm manages, whose hosts
// share a key that only their munge daemons know. Through libmunge.so.2 (dlopen: nothing is needed
// to build). Source: munge(7).
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "bootstrap/net.h"
#include "bootstrap/poll_set.h"

namespace ropewalk::bootstrap {

/// One thread at a time.
class Munge {
 public:
  /// Throws Error(unavailable) where there is no libmunge.
  Munge();

  /// A credential: printable, and for this user's processes alone to open, once on each host,
  /// within some minutes. Throws Error(unavailable) where no daemon answers.
  std::string encode(const std::string& text) const;
  /// What a process of this user has encoded; nothing where it was another's: `why` says.
  std::optional<std::string> decode(const std::string& credential, std::string& why) const;

 private:
  struct Library;
  const Library& library_;
};

/// Gives a text to every process of this user that asks for it with `fetch`. From construction to
/// destruction; a thread of its own.
class CredentialServer {
 public:
  /// Throws Error where munge does not work here.
  CredentialServer(UniqueFd listener, std::string text);
  ~CredentialServer();

 private:
  void run();

  const Munge munge_;
  const UniqueFd listener_;
  const std::string text_;
  Event stop_;
  std::thread thread_;
};

/// The rest of the text that a server of this user gives at `server`, once there is one whose text
/// begins with `label`. Throws Error(timeout), which tells what was found there instead.
std::string fetch(const Endpoint& server, const std::string& label,
                  std::chrono::nanoseconds timeout);

}  // namespace ropewalk::bootstrap

#include "transports/shm/peer_info.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "ropewalk/status.h"

namespace ropewalk::shm {
namespace {

constexpr std::string_view kPrefix = "shm1:";
constexpr size_t kNonceDigits = 16;

/// Takes a number of plain digits and the `:` behind it off the front of `text`.
bool take_number(std::string_view& text, int32_t& into) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, into);
  if (error != std::errc{} || rest == end || *rest != ':' || text.front() == '-') return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()) + 1);
  return true;
}

bool parse_into(PeerInfo& info, std::string_view text) {
  if (!text.starts_with(kPrefix)) return false;
  text.remove_prefix(kPrefix.size());
  if (!take_number(text, info.pid) || !take_number(text, info.mailbox_fd) ||
      !take_number(text, info.doorbell_fd) || text.size() != kNonceDigits)
    return false;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, info.nonce, 16);
  return error == std::errc{} && rest == end && text.front() != '-' && info.pid > 0;
}

std::string reason_for(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "the kernel forbids it: the ranks run as different users, the program may not be "
             "inspected (setuid, file capabilities, not dumpable), or a security policy is at work";
    case ENOENT:
    case ESRCH:
      return "there is no such process or descriptor here: it has died, or lives in another pid "
             "namespace (container)";
    case ENXIO:
      return "that descriptor cannot be opened a second time";
    default:
      return std::strerror(error);
  }
}

}  // namespace

std::string PeerInfo::text() const {
  return fmt::format("{}{}:{}:{}:{:016x}", kPrefix, pid, mailbox_fd, doorbell_fd, nonce);
}

PeerInfo PeerInfo::parse(int rank, std::string_view text) {
  PeerInfo info;
  info.rank = rank;
  if (!parse_into(info, text))
    throw Error(Failure{ErrorCode::protocol, "shm",
                        fmt::format("rank {} published what is no shm address", rank),
                        "run the same version of Ropewalk on every rank", -1, rank});
  return info;
}

UniqueFd open_descriptor_of(const PeerInfo& owner, int fd, std::string_view what) {
  // Ranks may be threads of one process; /proc/self works even where /proc hides or renumbers pids.
  const std::string process = owner.pid == getpid() ? "self" : fmt::format("{}", owner.pid);
  const std::string path = fmt::format("/proc/{}/fd/{}", process, fd);
  UniqueFd opened(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (opened) return opened;
  const int error = errno;
  if (error == EMFILE || error == ENFILE || error == ENOMEM)
    throw_memory_error("shm", fmt::format("{} rank {}", what, owner.rank), error);
  throw Error(
      Failure{ErrorCode::unavailable, "shm",
              fmt::format("cannot {} rank {} ({}): {}", what, owner.rank, path, reason_for(error)),
              "set ROPEWALK_TRANSPORT=tcp on every rank, or run the ranks of a host as one "
              "user in one container",
              -1, owner.rank});
}

}  // namespace ropewalk::shm

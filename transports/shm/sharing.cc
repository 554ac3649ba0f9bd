#include "transports/shm/sharing.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace ropewalk::shm {
namespace {

constexpr char kVersion = '3';
constexpr size_t kNonceDigits = 16;

/// Takes a number up to `end`, or to the end of `text` where there is none, and that end, off the
/// front of `text`.
template <class Integer>
bool take_number(std::string_view& text, Integer& into, char end, int base = 10) {
  const std::string_view digits = text.substr(0, text.find(end));
  const char* const digits_end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), digits_end, into, base);
  if (error != std::errc{} || rest != digits_end || digits.front() == '-') return false;
  text.remove_prefix(std::min(digits.size() + 1, text.size()));
  return true;
}

bool parse_share(std::string_view text, Share& share) {
  for (size_t i = 0; i < Share::kWords; ++i) {
    const bool is_last = text.find('.') == std::string_view::npos;
    if (!take_number(text, share.words[i], '.', 16)) return false;
    if (is_last) return true;
  }
  return false;
}

bool parse_into(MailboxAddress& info, std::string_view text) {
  if (!text.starts_with(info.kind + kVersion + ":")) return false;
  text.remove_prefix(info.kind.size() + 2);
  if (!take_number(text, info.pid, ':') || !take_number(text, info.doorbell_fd, ':') ||
      text.find(':') != kNonceDigits || !take_number(text, info.nonce, ':', 16) || info.pid <= 0)
    return false;
  return parse_share(text, info.mailbox);
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

bool lies_in(const struct stat& file, uint64_t offset, uint64_t bytes) {
  const auto file_bytes = static_cast<uint64_t>(file.st_size);
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

class MemfdAllocation final : public TransportAllocation {
 public:
  explicit MemfdAllocation(size_t bytes)
      : fd_(create_memfd("shm", "ropewalk-mailbox", round_up(bytes, page_bytes()))),
        mapping_("shm", fd_.get(), 0, round_up(bytes, page_bytes())) {}
  Region region() const override { return {mapping_.base(), mapping_.bytes(), fd_.get(), 0}; }

 private:
  UniqueFd fd_;
  SharedMapping mapping_;
};

class FileMapping final : public Mapping {
 public:
  FileMapping(SharedMapping mapping, std::byte* base) : mapping_(std::move(mapping)), base_(base) {}
  std::byte* base() const override { return base_; }

 private:
  SharedMapping mapping_;
  std::byte* base_;  // inside it
};

}  // namespace

std::string MailboxAddress::text() const {
  size_t words = Share::kWords;
  while (words > 1 && mailbox.words[words - 1] == 0) --words;
  return fmt::format("{}{}:{}:{}:{:016x}:{:x}", kind, kVersion, pid, doorbell_fd, nonce,
                     fmt::join(std::span(mailbox.words).first(words), "."));
}

MailboxAddress MailboxAddress::parse(int rank, std::string_view kind, std::string_view text) {
  MailboxAddress info;
  info.rank = rank;
  info.kind = kind;
  if (!parse_into(info, text))
    throw Error(Failure{ErrorCode::protocol, info.kind,
                        fmt::format("rank {} published what is no address in shared memory", rank),
                        "run the same version of Ropewalk on every rank", -1, rank});
  return info;
}

UniqueFd open_descriptor_of(const MailboxAddress& owner, int fd, std::string_view what) {
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

std::unique_ptr<TransportAllocation> MemfdSharing::allocate(size_t bytes) {
  return std::make_unique<MemfdAllocation>(bytes);
}

Share MemfdSharing::share(const Region& region) {
  struct stat file {};
  if (fstat(region.memfd, &file) != 0 || !lies_in(file, region.memfd_offset, region.bytes))
    throw Error(ErrorCode::invalid_argument, "register memory",
                "this memory is not the mapping of a memory file, so local peers cannot map it",
                "allocate it with Communicator::allocate");
  return {{static_cast<uint64_t>(region.memfd), region.memfd_offset, file.st_ino}};
}

std::unique_ptr<Mapping> MemfdSharing::map(const MailboxAddress& owner, const Share& share,
                                           uint64_t bytes) {
  const auto number = static_cast<int>(share.words[0]);
  const uint64_t offset = share.words[1], inode = share.words[2];
  const UniqueFd fd = open_descriptor_of(owner, number, "map memory of");
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || file.st_ino != inode || !lies_in(file, offset, bytes))
    throw Error(Failure{
        ErrorCode::unavailable, "map",
        fmt::format("file {} of rank {} is not there; the rank has died", number, owner.rank), "",
        -1, owner.rank});
  const auto unit = static_cast<size_t>(file.st_blksize);  // a huge page where it lies on such
  const size_t begin = offset / unit * unit;
  SharedMapping mapping("map", fd.get(), begin,
                        round_up(std::max(offset + bytes - begin, uint64_t{1}), unit));
  std::byte* const base = mapping.base() + (offset - begin);
  return std::make_unique<FileMapping>(std::move(mapping), base);
}

}  // namespace ropewalk::shm

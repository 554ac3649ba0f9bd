#include "checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ropewalk/status.h"

namespace digits {
namespace {

using ropewalk::Error;
using ropewalk::ErrorCode;

static_assert(std::endian::native == std::endian::little, "the file is written as memory has it");

struct Header {
  std::array<char, 8> magic = {'r', 'o', 'p', 'e', 'd', 'i', 'g', 's'};
  uint32_t version = 1;
  uint32_t count = 0;
};
static_assert(sizeof(Header) == 16);

[[noreturn]] void fail(ErrorCode code, const std::string& reason, const char* advice) {
  throw Error(code, "checkpoint", reason, advice);
}

[[noreturn]] void fail_system(const char* action, const std::string& path) {
  const int error = errno;
  fail(ErrorCode::system, fmt::format("cannot {} {}: {}", action, path, std::strerror(error)),
       "check the path, its permissions and the space left");
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  bool write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = write(fd_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(wrote));
    }
    return true;
  }

  /// Reads up to the end, or until `into` is full; -1: see errno.
  ssize_t read_all(std::span<std::byte> into) {
    size_t filled = 0;
    while (filled < into.size()) {
      const ssize_t got = read(fd_, into.data() + filled, into.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return -1;
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    return static_cast<ssize_t>(filled);
  }

 private:
  int fd_;
};

}  // namespace

Digest digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  return digest;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

void save_checkpoint(const std::string& path, std::span<const float> parameters) {
  const Header header{.count = static_cast<uint32_t>(parameters.size())};
  const size_t body_bytes = sizeof header + parameters.size_bytes();
  std::vector<std::byte> bytes(body_bytes + sizeof(Digest));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, parameters.data(), parameters.size_bytes());
  const Digest digest = digest_of(std::span(bytes).first(body_bytes));
  std::memcpy(bytes.data() + body_bytes, digest.data(), digest.size());

  const std::string draft = fmt::format("{}.{}.tmp", path, getpid());
  {
    File file(draft, O_WRONLY | O_CREAT | O_TRUNC);
    if (file.fd() < 0) fail_system("create", draft);
    const bool written = file.write_all(bytes) && fsync(file.fd()) == 0;
    if (!written || rename(draft.c_str(), path.c_str()) != 0) {
      const int error = errno;
      unlink(draft.c_str());
      errno = error;
      fail_system("write", path);
    }
  }
  // The rename itself must reach the disk too.
  const auto folder = std::filesystem::absolute(path).parent_path().string();
  File directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.fd() < 0 || fsync(directory.fd()) != 0) fail_system("flush", folder);
}

void load_checkpoint(const std::string& path, std::span<float> parameters) {
  constexpr const char* kAdvice = "load a file that --save of this program wrote";
  File file(path, O_RDONLY);
  if (file.fd() < 0) fail_system("open", path);
  const size_t body_bytes = sizeof(Header) + parameters.size_bytes();
  std::vector<std::byte> bytes(body_bytes + sizeof(Digest) + 1);  // one more: too long shows
  const ssize_t got = file.read_all(bytes);
  if (got < 0) fail_system("read", path);
  bytes.resize(static_cast<size_t>(got));

  const Header expected;
  Header header{.magic = {}};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  if (bytes.size() < sizeof header || header.magic != expected.magic)
    fail(ErrorCode::invalid_argument, path + " is not a checkpoint of this program", kAdvice);
  if (header.version != expected.version)
    fail(ErrorCode::invalid_argument,
         fmt::format("{} has version {}, this program reads {}", path, header.version,
                     expected.version),
         kAdvice);
  if (header.count != parameters.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("{} holds {} parameters, the net has {}", path, header.count,
                     parameters.size()),
         kAdvice);
  if (bytes.size() != body_bytes + sizeof(Digest))
    fail(ErrorCode::invalid_argument, path + " is damaged: its length is wrong", kAdvice);
  const Digest digest = digest_of(std::span(bytes).first(body_bytes));
  if (std::memcmp(digest.data(), bytes.data() + body_bytes, digest.size()) != 0)
    fail(ErrorCode::invalid_argument, path + " is damaged: its checksum is wrong", kAdvice);
  std::memcpy(parameters.data(), bytes.data() + sizeof header, parameters.size_bytes());
}

}  // namespace digits

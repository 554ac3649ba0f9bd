#include "tools/launcher/frames.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/little_endian.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

constexpr size_t kHeaderBytes = 9;
constexpr size_t kErasedBytes = 256 << 10;
constexpr size_t kNoiseBytesMax = 64 << 10;
constexpr std::string_view kGreeting = "\nropewalk-agent ";

void set_nonblocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

FrameChannel::FrameChannel(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {
  set_nonblocking(in_.get());
  set_nonblocking(out_.get());
}

void FrameChannel::send_greeting() {
  outgoing_ += fmt::format("{}{}\n", kGreeting, kAgentVersion);
}

void FrameChannel::send(const Frame& frame) {
  little_endian::append(outgoing_, static_cast<uint32_t>(frame.payload.size()));
  outgoing_ += static_cast<char>(frame.kind);
  little_endian::append(outgoing_, int32_t{frame.rank});
  outgoing_ += frame.payload;
}

bool FrameChannel::flush() {
  while (wants_to_write()) {
    const ssize_t n = ::write(out_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      out_.reset();
      outgoing_.clear();
      sent_ = 0;
      return false;
    }
    sent_ += static_cast<size_t>(n);
  }
  if (sent_ >= kErasedBytes || !wants_to_write()) {  // also where it never runs empty
    outgoing_.erase(0, sent_);
    sent_ = 0;
  }
  return true;
}

bool FrameChannel::receive() {
  char bytes[32 << 10];
  for (int i = 0; i < 8; ++i) {
    const ssize_t n = ::read(in_.get(), bytes, sizeof bytes);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN;
    }
    if (n == 0) return false;
    incoming_.append(bytes, static_cast<size_t>(n));
  }
  return true;
}

bool FrameChannel::find_greeting() {
  const size_t at = incoming_.find(kGreeting);
  if (at == std::string::npos) {
    if (incoming_.size() > kNoiseBytesMax) {
      throw Error(ErrorCode::protocol, "agent", "it prints, but does not answer as an agent",
                  "see what the remote shell's start-up files print");
    }
    return false;
  }
  const size_t end = incoming_.find('\n', at + kGreeting.size());
  if (end == std::string::npos) return false;
  const int version = number_in(std::string_view(incoming_).substr(at + kGreeting.size()));
  if (version != kAgentVersion) {
    throw Error(ErrorCode::refused, "agent",
                fmt::format("it speaks version {}, this launcher {}", version, kAgentVersion),
                "install the same version of ropewalk on every host");
  }
  read_ = end + 1;
  greeted_ = true;
  return true;
}

std::optional<Frame> FrameChannel::next() {
  if (!greeted_ && !find_greeting()) return {};
  const std::string_view rest = std::string_view(incoming_).substr(read_);
  const auto* header = reinterpret_cast<const std::byte*>(rest.data());
  const size_t length = rest.size() < kHeaderBytes ? 0 : little_endian::load<uint32_t>(header);
  if (length > kFramePayloadMax) {
    throw Error(ErrorCode::protocol, "agent", fmt::format("a frame of {} bytes", length));
  }
  if (rest.size() < kHeaderBytes + length) {
    incoming_.erase(0, read_);
    read_ = 0;
    return {};
  }
  if (static_cast<uint8_t>(rest[4]) > static_cast<uint8_t>(FrameKind::alive)) {
    throw Error(ErrorCode::protocol, "agent", "a frame of an unknown kind");
  }
  Frame frame{static_cast<FrameKind>(rest[4]), little_endian::load<int32_t>(header + 5),
              std::string(rest.substr(kHeaderBytes, length))};
  read_ += kHeaderBytes + length;
  return frame;
}

void FrameChannel::close() {
  in_.reset();
  out_.reset();
  outgoing_.clear();
  sent_ = 0;
}

int number_in(std::string_view text) {
  int value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
    throw Error(ErrorCode::protocol, "agent", fmt::format("\"{}\" is not a number", text));
  }
  return value;
}

}  // namespace ropewalk::tools

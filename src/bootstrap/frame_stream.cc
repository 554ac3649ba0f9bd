#include "bootstrap/frame_stream.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <new>

#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

/// Longer frames are sent at once, and so is more than this of others: memory for all that a rank
/// tells each child as it joins would be taken from the kernel, and given back.
constexpr size_t kGatheredFrameMax = 8 << 10, kUnsentMax = 64 << 10;
constexpr size_t kReadMax = 16 << 10;
/// Memory of an empty buffer that is kept: only as ranks join they say much.
constexpr size_t kKeptMax = 4 << 10;

void free_if_empty(Bytes& buffer) {
  if (buffer.empty() && buffer.capacity() > kKeptMax) Bytes().swap(buffer);
}

}  // namespace

FrameStream::~FrameStream() {
  try {
    flush();
  } catch (const std::bad_alloc&) {
    return;  // the other end sees the connection close
  }
}

void FrameStream::send(const Bytes& frame) {
  if (frame.size() > kGatheredFrameMax) {
    flush();
    channel_.seal(frame, queue_);
    return write_queue();
  }
  unsent_.insert(unsent_.end(), frame.begin(), frame.end());
  if (unsent_.size() >= kUnsentMax) flush();
}

void FrameStream::prepare(PollSet& set) {
  flush();
  const bool writes = !queue_.empty() && !write_broken_;
  set.add(fd_.get(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)));
}

std::vector<Frame> FrameStream::advance(const PollSet& set) {
  std::vector<Frame> frames;
  if (!set.take_ready(fd_.get())) return frames;
  if (!queue_.empty()) write_queue();
  // Frames that arrived before the connection broke are still delivered: a last `leave` or
  // `failure` explains the break.
  while (is_open_) {
    const size_t before = received_.size();
    is_open_ = read_some();
    const size_t came = received_.size() - before;
    if (came == 0) break;
    const bool sound = open_records();
    const bool sensible = cut_frames(frames);  // also those before a record that was changed
    is_open_ = sound && sensible && is_open_;
    if (came < kReadMax) break;  // that was all, and poll tells of an end
  }
  free_if_empty(received_);
  free_if_empty(buffer_);
  return frames;
}

void FrameStream::flush() {
  if (unsent_.empty()) return;
  channel_.seal(unsent_, queue_);
  unsent_.clear();
  free_if_empty(unsent_);
  write_queue();
}

void FrameStream::write_queue() {
  while (!queue_.empty() && !write_broken_) {
    const ssize_t n = ::send(fd_.get(), queue_.data(), queue_.size(), MSG_NOSIGNAL);
    if (n > 0) {
      queue_.erase(queue_.begin(), queue_.begin() + n);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      // The reading side will see the end as well, after what it still has to read.
      write_broken_ = true;
      end(errno, errno_text(errno));
    }
  }
  free_if_empty(queue_);
}

void FrameStream::acknowledge() const {
  constexpr int kNow = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_QUICKACK, &kNow, sizeof kNow);
}

bool FrameStream::read_some() {
  std::array<std::byte, kReadMax> chunk;
  const ssize_t n = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
  if (n > 0) {
    received_.insert(received_.end(), chunk.begin(), chunk.begin() + n);
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n == 0)
    end(0, "it closed the connection");
  else
    end(errno, errno_text(errno));
  return false;
}

/// The first reason stays.
void FrameStream::end(int error, std::string why) {
  if (!why_.empty()) return;
  error_ = error;
  why_ = std::move(why);
}

bool FrameStream::cut_off() const {
  return error_ == ETIMEDOUT || error_ == EHOSTUNREACH || error_ == ENETUNREACH;
}

bool FrameStream::open_records() {
  if (channel_.open(received_, buffer_)) return true;
  why_.clear();  // says more than that writing has failed
  end(EKEYREJECTED, "what came from it was changed on the way");
  return false;
}

bool FrameStream::cut_frames(std::vector<Frame>& into) {
  const ByteSpan all(buffer_);
  size_t at = 0;
  while (all.size() - at >= kFrameHeaderBytes) {
    const auto header = decode<FrameHeader>(all.subspan(at, kFrameHeaderBytes));
    if (!header) {
      end(EBADMSG, "it sent bytes that make no sense");
      return false;
    }
    const size_t whole = kFrameHeaderBytes + header->payload_bytes;
    if (all.size() - at < whole) break;
    const ByteSpan payload = all.subspan(at + kFrameHeaderBytes, header->payload_bytes);
    into.push_back({header->type, Bytes(payload.begin(), payload.end())});
    at += whole;
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

bool FrameStream::nonsense() const {
  return error_ == EBADMSG;
}

bool FrameStream::forged() const {
  return error_ == EKEYREJECTED;
}

bool FrameStream::flushed() const {
  if (write_broken_) return true;
  if (!idle()) return false;
  pollfd connection = {fd_.get(), 0, 0};
  if (poll(&connection, 1, 0) == 1) return true;  // reset or closed both ways
  int unacknowledged = 0;
  return ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace ropewalk::bootstrap

// What the launcher and its agents say to each other over a pair of pipes (or ssh).
//
//   stream   = greeting frame*           the greeting only from agent to launcher
//   greeting = LF "ropewalk-agent " version LF
//   frame    = length:u32 kind:u8 rank:i32 payload      little endian; length counts the payload
//
// What stands before the greeting is noise of the remote shell's start-up files and is skipped.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace ropewalk::tools {

enum class FrameKind : uint8_t {
  // launcher to agent
  job,         // payload: JobPart (job_part.h)
  start,       // payload: the coordinator, "host:port"
  signal,      // rank, or -1 for all; payload: the signal's number in decimal
  stdin_data,  // for rank 0; the next one may follow only after stdin_taken
  stdin_end,   // rank 0's input ends
  hold,        // read no more output of the ranks: who reads ours is slow
  resume,      // read on
  restart,     // starts a rank that joins; rank: a number of its own; payload: the slot that it
               // takes (JobPart::slots), a blank, the coordinator's addresses
  finish,      // no rank runs: end what they left, then say done; payload: the grace of leftovers
               // in milliseconds
  // agent to launcher
  ready,         // payload: "port address" of its listener where asked for, else empty
  refused,       // payload: why the job cannot run here
  started,       // payload: the rank's pid in decimal
  start_failed,  // payload: errno in decimal, a blank, what failed
  joined,        // a rank that was started again is in the job
  out,           // standard output of a rank; empty: it has ended
  err,           // standard error of a rank; empty: it has ended
  exited,        // payload: the wait status in decimal
  stdin_taken,   // rank 0 has (or will never take) the last stdin_data
  done,          // nothing of the job is left on this host; payload: ranks whose leftovers had to
                 // be ended while they could still write, "0, 2"
  // both
  alive,  // every kAliveInterval, once the agent has a job
};

struct Frame {
  FrameKind kind = FrameKind::done;
  int rank = -1;
  std::string payload;
};

inline constexpr size_t kFramePayloadMax = size_t{4} << 20;
inline constexpr int kAgentVersion = 6;
inline constexpr std::chrono::milliseconds kAliveInterval{1000};

/// Both directions of one conversation. Never blocks: sets its descriptors non-blocking.
class FrameChannel {
 public:
  FrameChannel() = default;
  FrameChannel(UniqueFd in, UniqueFd out);

  int in_fd() const { return in_.get(); }
  int out_fd() const { return out_.get(); }
  bool wants_to_write() const { return sent_ < outgoing_.size(); }
  size_t queued_bytes() const { return outgoing_.size() - sent_; }

  /// Agent: queues the greeting. Launcher: skips what comes before it.
  void send_greeting();
  void expect_greeting() { greeted_ = false; }
  bool greeted() const { return greeted_; }

  void send(const Frame& frame);
  /// Writes what the pipe takes. False: the other side reads no more; what it has sent may still
  /// be read.
  bool flush();
  /// Reads what is there, at most 256 KiB. False: the other side has gone (what was read before
  /// is still in `next`).
  bool receive();
  /// The next whole frame. Throws Error(protocol) on bytes that make no sense.
  std::optional<Frame> next();
  void close();

 private:
  bool find_greeting();

  UniqueFd in_, out_;
  std::string incoming_, outgoing_;
  size_t read_ = 0, sent_ = 0;  // consumed prefix of incoming_, written prefix of outgoing_
  bool greeted_ = true;
};

/// The decimal number `text` starts with; throws Error(protocol) where there is none.
int number_in(std::string_view text);

}  // namespace ropewalk::tools

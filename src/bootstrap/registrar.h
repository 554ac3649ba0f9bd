// Rank 0's side of joining: one small message from every rank, one back.
#pragma once

#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/frame_stream.h"
#include "bootstrap/job_monitor.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {

/// The control thread of rank 0 only. What is wrong goes to the monitor; the owner tells everybody
/// with `broadcast`.
class Registrar {
 public:
  /// `table` (of the job's size; row 0 is filled) receives the records.
  Registrar(std::vector<PeerRecord>& table, int64_t deadline_ns, JobMonitor& monitor,
            Statements& statements);

  /// An authenticated connection for joining, from the rank it says it is. Where the job has failed
  /// already it is told so at once.
  void add(ConnectedSocket socket, uint32_t from, std::string source);
  void prepare(PollSet& set, int64_t now_ns);
  void advance(const PollSet& set, int64_t now_ns);
  bool complete() const { return joined_ == table_.size(); }
  /// Whether the Join of every rank has come, at whatever time.
  bool all_have_come() const { return come_.size() + 1 == table_.size(); }
  std::vector<int> missing() const;
  /// The earliest deadline of any rank that has joined, less a little, so that rank 0's answer
  /// reaches it in time.
  int64_t deadline_ns() const { return deadline_ns_; }

  /// Tells every rank its place in the tree. Once, when complete.
  void send_places(const WorldId& world, const Digest& table);
  void broadcast(const Bytes& frame);
  bool flushed() const;

 private:
  struct Entry {
    FrameStream stream;
    std::string source;
    uint32_t from;
    std::optional<int> rank;  // once its record is in the table
  };
  /// In this round: those that still have to say who they are. The others, of which there are many
  /// while the last are awaited, have nothing to say unless they fail: now and then.
  bool is_watched(const Entry& entry) const {
    return !entry.rank || watches_all_ || !entry.stream.idle();
  }
  void handle(Entry& entry, const Frame& frame, int64_t now_ns);
  void enroll(Entry& entry, const Join& join, int64_t now_ns);
  void fail(ErrorCode code, std::string reason, std::string advice, int peer);

  std::vector<PeerRecord>& table_;
  int64_t deadline_ns_;
  JobMonitor& monitor_;
  Statements& statements_;
  size_t joined_ = 1;
  bool watches_all_ = false;
  int64_t watches_all_next_ns_ = 0;
  std::list<Entry> entries_;
  std::set<uint32_t> come_;  // ranks other than 0 whose Join has come
};

}  // namespace ropewalk::bootstrap

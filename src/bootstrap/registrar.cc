#include "bootstrap/registrar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/host_probe.h"
#include "bootstrap/tree.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kMarginMaxNs = 250 * kMillisecond_ns;
constexpr int64_t kWatchIntervalNs = 20 * kMillisecond_ns;
constexpr int64_t kWatchIntervalPerRankNs = kMillisecond_ns / 2;
constexpr size_t kAlwaysWatchedMax = 64;
constexpr int64_t kFollowNs = 50 * kMillisecond_ns;
constexpr int64_t kTellAfterNs = 5000 * kMillisecond_ns;

}  // namespace

Registrar::Registrar(PeerTable& table, int own, int64_t deadline_ns, JobMonitor& monitor,
                     Statements& statements)
    : table_(table),
      own_(own),
      deadline_ns_(deadline_ns),
      monitor_(monitor),
      statements_(statements),
      come_(table.size()),
      leaders_(table.size(), -1) {
  assert(own >= 0 && static_cast<size_t>(own) < table.size());
  assert(table[static_cast<size_t>(own)].rank == own);
}

void Registrar::add(ConnectedSocket socket, uint32_t from, std::string source) {
  entries_.push_back(
      {FrameStream(std::move(socket)), std::move(source), from, ++entries_made_, 0, {}});
  if (monitor_.failure() != nullptr) entries_.back().stream.send(statements_.failure_frame());
}

void Registrar::prepare(PollSet& set, int64_t now_ns) {
  const bool are_many = entries_.size() > kAlwaysWatchedMax;
  watches_all_ = !are_many || now_ns >= watches_all_next_ns_ || monitor_.failure() != nullptr;
  if (watches_all_)
    watches_all_next_ns_ =
        now_ns + kWatchIntervalNs + std::ssize(entries_) * kWatchIntervalPerRankNs;
  for (Entry& entry : entries_)
    if (is_watched(entry, now_ns)) entry.stream.prepare(set);
  if (are_many) set.wake_at(watches_all_next_ns_);
  if (begun_ns_ == 0) begun_ns_ = now_ns;
  if (waits_for_others()) set.wake_at(std::max(begun_ns_ + kTellAfterNs, tell_next_ns_));
}

void Registrar::advance(const PollSet& set, int64_t now_ns) {
  for (Entry& entry : entries_) {
    if (!is_watched(entry, now_ns)) continue;
    for (const Frame& frame : entry.stream.advance(set)) handle(entry, frame, now_ns);
    if (entry.stream.is_open()) continue;
    // Those that came through it come again, to hear why.
    for (const int rank : entry.ranks)
      if (rank != static_cast<int>(entry.from)) come_[static_cast<size_t>(rank)] = false;
    if (entry.stream.forged()) {
      fail(ErrorCode::protocol,
           fmt::format("rank {} at {}: {}", entry.from, entry.source, entry.stream.why()),
           kForgedAdvice, static_cast<int>(entry.from));
      entry.stream.send(statements_.failure_frame());  // its other direction may be sound
    } else if (!entry.ranks.empty() && !withdraw(entry)) {
      const int rank = entry.ranks.front();
      fail(ErrorCode::peer_lost,
           fmt::format("{} died or gave up while joining: {}",
                       describe(table_[static_cast<size_t>(rank)]), entry.stream.why()),
           "look at that rank's own output", rank);
    } else if (!entry.is_redirected) {
      log(LogLevel::info, own_, "rank {} at {} went away before it joined: {}", entry.from,
          entry.source, entry.stream.why());
    }
  }
  entries_.remove_if([](const Entry& entry) { return !entry.stream.is_open(); });
  tell_missing(now_ns);
}

void Registrar::tell_missing(int64_t now_ns) {
  const int64_t waited_ns = now_ns - begun_ns_;
  if (!waits_for_others() || waited_ns < kTellAfterNs || now_ns < tell_next_ns_) return;
  tell_next_ns_ = now_ns + waited_ns;
  log(LogLevel::warn, 0, "waiting for {} ({:.0f} s)", rank_list(missing()),
      static_cast<double>(waited_ns) / 1e9);
}

void Registrar::handle(Entry& entry, const Frame& frame, int64_t now_ns) {
  if (entry.is_redirected && frame.type == FrameType::join) return;
  if (frame.type == FrameType::join) {
    auto join = decode<Join>(frame.payload);
    if (!join) note_came(entry.from);
    if (join)
      for (const Joiner& joiner : join->joiners)
        note_came(static_cast<uint32_t>(joiner.record.rank));
    if (monitor_.failure() != nullptr) return;  // it has been told
    // Where its leader did not take it, or is gone, it comes again.
    if (join && entry.ranks.empty() && entry.from < table_.size() && leaders_[entry.from] >= 0)
      unfit_leaders_.insert(leaders_[entry.from]);
    if (const Entry* leader = join ? leader_for(entry, *join) : nullptr) {
      log(LogLevel::debug, own_, "rank {} at {} is to join through rank {}", entry.from,
          entry.source, leader->from);
      entry.is_redirected = true;
      leaders_[entry.from] = static_cast<int>(leader->from);
      come_[entry.from] = false;  // it comes there
      return entry.stream.send(bootstrap::frame(Redirect{table_[leader->from]}));
    }
    if (join) return enroll(entry, std::make_shared<const Join>(std::move(*join)), now_ns);
  } else if (frame.type == FrameType::failure) {
    const auto from = static_cast<int>(entry.from);
    if (statements_.take_failure(frame.payload, from, Statements::Origin::join) !=
        Statements::AcceptResult::nonsense)
      return;
  }
  fail(ErrorCode::protocol,
       fmt::format("rank {} at {} sent a message that makes no sense", entry.from, entry.source),
       "install the same Ropewalk on every rank", static_cast<int>(entry.from));
}

void Registrar::note_came(uint32_t rank) {
  if (rank < table_.size()) come_[rank] = true;
}

const Registrar::Entry* Registrar::leader_for(const Entry& entry, const Join& join) const {
  const bool is_sound = join.size == table_.size() && join.joiners.size() == 1 &&
                        entry.from < table_.size() &&
                        join.joiners[0].record.rank == static_cast<int>(entry.from);
  const bool is_first = entry.ranks.empty() && is_sound && leaders_[entry.from] < 0;
  if (is_local() || complete() || !is_first || entries_.size() <= kDirectJoinsMax) return nullptr;
  const auto group_of = [this](uint32_t rank) {
    return join_group(static_cast<int>(rank), size());
  };
  const auto leader = std::ranges::find_if(entries_, [&](const Entry& other) {
    return other.has(static_cast<int>(other.from)) && other.stream.is_open() &&
           !unfit_leaders_.contains(static_cast<int>(other.from)) &&
           group_of(other.from) == group_of(entry.from);
  });
  return leader == entries_.end() || leader->from == entry.from ? nullptr : &*leader;
}

void Registrar::enroll(Entry& entry, const std::shared_ptr<const Join>& join, int64_t now_ns) {
  for (const Joiner& joiner : join->joiners)
    if (monitor_.failure() == nullptr)
      enroll(entry, join->size, joiner, {join, &joiner.record}, now_ns);
}

void Registrar::enroll(Entry& entry, uint32_t size, const Joiner& joiner,
                       std::shared_ptr<const PeerRecord> shared, int64_t now_ns) {
  const PeerRecord& record = joiner.record;
  if (size != table_.size())
    return fail(ErrorCode::mismatch,
                fmt::format("{} says that the job has {} ranks; {} says {}", describe(record), size,
                            describe(table_[static_cast<size_t>(own_)]), table_.size()),
                "give every rank the same size (ROPEWALK_SIZE or the launcher's)", record.rank);
  if (static_cast<size_t>(record.rank) >= table_.size())
    return fail(ErrorCode::mismatch,
                fmt::format("{} is out of range for a job of {}", describe(record), table_.size()),
                "ranks are 0 to size-1", record.rank);
  if (!may_come_through(entry, record.rank))
    return fail(ErrorCode::protocol,
                fmt::format("{} said at first that it is rank {}", describe(record), entry.from),
                "install the same Ropewalk on every rank", record.rank);
  const PeerRecord& row = table_[static_cast<size_t>(record.rank)];
  // One comes again where its local registrar has gone, of which the other connection will tell.
  // Of two with one rank, which local registrars cannot always see, rank 0 tells.
  const bool is_taken = row.rank >= 0;
  const bool is_again = is_taken && is_same_record(row, record) && !complete();
  if (is_taken && row.verify_key == record.verify_key && !is_again && !is_local())
    return fail(ErrorCode::protocol,
                fmt::format("rank {} at {} changes what {} has said", entry.from, entry.source,
                            describe(row)),
                kForgerAdvice, static_cast<int>(entry.from));
  if (is_taken && !is_again && !is_local())
    return fail(ErrorCode::mismatch,
                fmt::format("two processes are rank {}: {}, pid {} and {}, pid {}", record.rank,
                            row.host_name, row.pid, record.host_name, record.pid),
                "give every process a rank of its own (ROPEWALK_RANK or the launcher's)",
                record.rank);
  if (!entry.has(record.rank)) entry.ranks.push_back(record.rank);
  entry.watched_until_ns = now_ns + kFollowNs;
  const int64_t remaining_ns = int64_t{joiner.remaining_ms} * kMillisecond_ns;
  deadline_ns_ =
      std::min(deadline_ns_, now_ns + remaining_ns - std::min(remaining_ns / 8, kMarginMaxNs));
  if (!is_taken) ++joined_;
  if (log_enabled(LogLevel::debug))
    log(LogLevel::debug, own_, "{} joined from {}: {} of {}", describe(record), entry.source,
        joined_, table_.size());
  if (is_local()) joined_here_.push_back({joiner, now_ns + remaining_ns, entry.number});
  if (!is_taken) table_.share(static_cast<size_t>(record.rank), std::move(shared));
}

bool Registrar::may_come_through(const Entry& entry, int rank) const {
  const auto from = static_cast<int>(entry.from);
  return rank == from || (join_group(rank, size()) == join_group(from, size()) && entry.has(from));
}

void Registrar::fail(ErrorCode code, std::string reason, std::string advice, int peer) {
  monitor_.report({code, "bootstrap", std::move(reason), std::move(advice), own_, peer});
}

bool Registrar::withdraw(const Entry& entry) {
  const auto is_of_it = [&](const Joined& joined) { return joined.entry == entry.number; };
  std::set<int> withdrawn;
  for (const Joined& joined : joined_here_) {
    if (!is_of_it(joined)) continue;
    const int rank = joined.joiner.record.rank;
    withdrawn.insert(rank);
    if (table_[static_cast<size_t>(rank)].verify_key != joined.joiner.record.verify_key) continue;
    table_.set(static_cast<size_t>(rank), {});
    --joined_;
  }
  std::erase_if(joined_here_, is_of_it);
  return withdrawn.size() == entry.ranks.size();
}

std::vector<int> Registrar::missing() const {
  std::vector<int> ranks;
  for (size_t r = 0; r < table_.size(); ++r)
    if (table_[r].rank < 0) ranks.push_back(static_cast<int>(r));
  return ranks;
}

bool Registrar::all_have_come_but(const std::set<int>& ended) const {
  for (uint32_t rank = 1; rank < table_.size(); ++rank)
    if (!come_[rank] && !ended.contains(static_cast<int>(rank))) return false;
  return true;
}

void Registrar::send_places(const WorldId& world, const Digest& table) {
  assert(complete() && !is_local());
  for (Entry& entry : entries_) {
    std::ranges::sort(entry.ranks);
    for (auto first = entry.ranks.begin(); first != entry.ranks.end();) {
      const int rank = *first, parent = tree_parent(rank, size());
      int ranks = 0;
      while (first != entry.ranks.end() && *first == rank + ranks &&
             tree_parent(*first, size()) == parent)
        ++first, ++ranks;
      entry.stream.send(
          frame(Place{rank, ranks, world, table, table_[static_cast<size_t>(parent)], {}}));
    }
  }
}

bool Registrar::has_group() const {
  assert(is_local());
  const int group = join_group(own_, size()), ranks = join_group_ranks(size());
  const int first = std::max(group * ranks, 1);
  const int end = std::min((group + 1) * ranks, size());
  return joined_ == static_cast<size_t>(end - first);
}

bool Registrar::pass_on(const Place& place) {
  assert(is_local() && place.rank != own_ && place.ranks == 1);
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& candidate) { return candidate.has(place.rank); });
  if (entry == entries_.end()) return false;
  entry->stream.send(frame(place));
  return true;
}

void Registrar::broadcast(const Bytes& frame) {
  for (Entry& entry : entries_) entry.stream.send(frame);
}

bool Registrar::flushed() const {
  return std::ranges::all_of(entries_, &FrameStream::flushed, &Entry::stream);
}

}  // namespace ropewalk::bootstrap

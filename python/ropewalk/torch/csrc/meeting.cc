#include "meeting.h"

#include <ropewalk/rendezvous.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>

namespace ropewalk::pytorch {
namespace {

constexpr const char* kUniqueIdKey = "ropewalk";

/// Stands in the unique id's place where there is none.
const std::string kNoRendezvous = "rank 0 failed: ";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// What rank 0 has set. The store's own timeout may be much longer. Throws Error.
std::string unique_id_in(c10d::Store& store, int rank, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  try {
    store.wait({kUniqueIdKey}, timeout);
  } catch (const std::exception&) {
    if (std::chrono::steady_clock::now() < deadline) throw;  // something else
    throw Error(Failure{ErrorCode::timeout, "process group",
                        "rank 0 of the group has not come to the store within the timeout",
                        "look at that rank's output", rank, 0});
  }
  const std::vector<uint8_t> bytes = store.get(kUniqueIdKey);
  std::string unique_id(bytes.begin(), bytes.end());
  if (unique_id.starts_with(kNoRendezvous))
    throw Error(ErrorCode::unavailable, "process group", unique_id.substr(kNoRendezvous.size()));
  return unique_id;
}

}  // namespace

Joined join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
            std::chrono::milliseconds timeout) {
  std::optional<Rendezvous> rendezvous;
  Options options;
  std::string unique_id;
  options.rank = rank;
  options.size = size;
  options.elastic = false;  // PyTorch says who joins later
  if (size > 1 && rank == 0) {
    try {
      unique_id = rendezvous.emplace().unique_id();
      store->set(kUniqueIdKey, bytes_of(unique_id));
    } catch (const Error& error) {
      store->set(kUniqueIdKey, bytes_of(kNoRendezvous + error.what()));
      throw;
    }
    options = rendezvous->options(rank, size, options);
  } else if (size > 1) {
    unique_id = unique_id_in(*store, rank, timeout);
    options = Rendezvous::options(unique_id, rank, size, options);
  }
  options.timeout = timeout;
  auto comm = Communicator::create(options);
  if (rendezvous) store->deleteKey(kUniqueIdKey);  // a later group of this name meets again
  // Not the text itself, which may hold the job's key.
  return {std::move(comm), size > 1 ? std::to_string(std::hash<std::string>()(unique_id)) : ""};
}

namespace {

/// By which the ranks of a group tell each other a text, time after time, through keys of its
/// store: all tell the first, which tells all.
class StoreExchange {
 public:
  /// `job`: names the default group; another of another time may have left keys in the store.
  StoreExchange(const c10::intrusive_ptr<c10d::Store>& store, const std::string& job, int rank,
                std::vector<int> global_ranks, std::chrono::milliseconds timeout)
      : store_(store),
        prefix_("ropewalk/" + job + "/"),
        rank_(static_cast<size_t>(rank)),
        global_ranks_(std::move(global_ranks)),
        deadline_(Clock::now() + timeout) {}

  /// By rank: what each has passed. Throws Error where one does not come in time, or `whole`, the
  /// default group, fails.
  std::vector<std::string> operator()(const std::string& own, const Communicator* whole) {
    const std::string prefix = prefix_ + std::to_string(round_++) + "/";
    if (rank_ > 0) {
      store_->set(prefix + std::to_string(rank_), bytes_of(own));
      return lines_of(get({prefix + "all"}, 0, whole)[0]);
    }
    std::vector<std::string> keys;
    for (size_t rank = 1; rank < global_ranks_.size(); ++rank)
      keys.push_back(prefix + std::to_string(rank));
    std::string all = own + '\n';
    for (const std::string& text : get(keys, 1, whole)) all += text + '\n';
    store_->set(prefix + "all", bytes_of(all));
    remove(keys);  // while the others go on
    clear_away();
    last_ = prefix + "all";
    return lines_of(all);
  }
  /// Once all have read what was exchanged last.
  void clear_away() {
    if (!last_.empty()) remove({std::exchange(last_, {})});
  }

 private:
  using Clock = std::chrono::steady_clock;

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) lines.push_back(line);
    return lines;
  }
  /// What the ranks from `first` on set, each under its key. Requests to the store are few: whoever
  /// serves them has one thread for all ranks.
  std::vector<std::string> get(const std::vector<std::string>& keys, size_t first,
                               const Communicator* whole) {
    constexpr std::chrono::milliseconds kSlice(500);
    for (;;) {
      const auto begin = Clock::now();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - begin);
      if (left.count() <= 0) {
        if (const size_t missing = first_missing(keys); missing < keys.size())
          throw_late(first + missing);
        return texts_of(keys);
      }
      try {
        store_->wait(keys, std::min(left, kSlice));
        return texts_of(keys);
      } catch (const std::exception&) {
        if (Clock::now() - begin < std::min(left, kSlice) / 2) throw;  // it did not wait
      }
      if (const auto failure = whole ? whole->failure() : std::nullopt) throw Error(*failure);
    }
  }
  std::vector<std::string> texts_of(const std::vector<std::string>& keys) {
    std::vector<std::string> texts;
    for (const auto& bytes : store_->multiGet(keys)) texts.emplace_back(bytes.begin(), bytes.end());
    return texts;
  }
  /// The index of the first that is not there; of none: keys.size().
  size_t first_missing(const std::vector<std::string>& keys) {
    const auto is_missing = [this](const std::string& key) { return !store_->check({key}); };
    return static_cast<size_t>(std::ranges::find_if(keys, is_missing) - keys.begin());
  }
  /// What is left of them takes room, no more: the exchange has succeeded.
  void remove(const std::vector<std::string>& keys) {
    try {
      for (const std::string& key : keys) store_->deleteKey(key);
    } catch (const std::exception&) {
    }
  }
  [[noreturn]] void throw_late(size_t rank) const {
    throw Error(Failure{ErrorCode::timeout, "process group",
                        "rank " + std::to_string(global_ranks_[rank]) +
                            " of the default group has not come to make the group",
                        "look at that rank's output: does it call new_group, too?",
                        global_ranks_[rank_], global_ranks_[rank]});
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const size_t rank_;
  const std::vector<int> global_ranks_;
  const Clock::time_point deadline_;
  std::string last_;
  int round_ = 0;
};

/// As a part of the default group, where all of its ranks are still in that. Null: they are not.
std::unique_ptr<Communicator> share(StoreExchange& exchange, const std::shared_ptr<Group>& whole,
                                    int rank, std::chrono::milliseconds timeout,
                                    const std::vector<int>& global_ranks) {
  const std::string yes = "part ", no = "alone";
  const auto is_member = [&](int global) { return global >= 0 && global < whole->comm->size(); };
  const bool can = whole && !whole->comm->failure() &&
                   std::ranges::all_of(global_ranks, is_member) &&
                   global_ranks[static_cast<size_t>(rank)] == whole->comm->rank();
  if (!can) {
    exchange(no, nullptr);
    return nullptr;
  }
  struct Alone {};
  const auto with_votes = [&](const std::string& own) {
    std::vector<std::string> texts = exchange(yes + own, whole->comm.get());
    if (std::ranges::count(texts, no) > 0) throw Alone();
    for (std::string& text : texts) text = text.starts_with(yes) ? text.substr(yes.size()) : "";
    return texts;
  };
  try {
    auto comm = whole->comm->create_group(global_ranks, with_votes, timeout);
    comm->barrier();  // all have read what was exchanged
    return comm;
  } catch (const Alone&) {
    return nullptr;
  }
}

}  // namespace

Joined join_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  std::chrono::milliseconds timeout,
                  const std::optional<std::vector<int>>& global_ranks) {
  const DefaultGroup of_all = Membership::default_group();
  std::optional<StoreExchange> exchange;
  Joined joined;
  if (global_ranks && size > 1 && !global_ranks->empty() && !of_all.job.empty()) {
    exchange.emplace(store, of_all.job, rank, *global_ranks, timeout);
    joined.comm = share(*exchange, of_all.group, rank, timeout, *global_ranks);
  }
  if (!joined.comm) joined = join(store, rank, size, timeout);
  if (exchange) exchange->clear_away();
  return joined;
}

}  // namespace ropewalk::pytorch

// Life of a backend, and how requests become work.
#include "backend.h"

#include <c10/util/Exception.h>
#include <ropewalk/rendezvous.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <utility>

namespace ropewalk::pytorch {
namespace {

constexpr const char* kUniqueIdKey = "ropewalk";

/// Stands in the unique id's place where there is none.
const std::string kNoRendezvous = "rank 0 failed: ";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

struct Joined {
  std::unique_ptr<Communicator> comm;
  std::string job;  // names it, to all of its ranks; empty for a job of one
};

Joined join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
            std::chrono::milliseconds timeout) {
  std::optional<Rendezvous> rendezvous;
  Options options;
  std::string unique_id;
  options.rank = rank;
  options.size = size;
  if (size > 1 && rank == 0) {
    try {
      unique_id = rendezvous.emplace().unique_id();
      store->set(kUniqueIdKey, bytes_of(unique_id));
    } catch (const Error& error) {
      store->set(kUniqueIdKey, bytes_of(kNoRendezvous + error.what()));
      throw;
    }
    options = rendezvous->options(rank, size);
  } else if (size > 1) {
    const std::vector<uint8_t> bytes = store->get(kUniqueIdKey);
    unique_id.assign(bytes.begin(), bytes.end());
    if (unique_id.starts_with(kNoRendezvous))
      throw Error(ErrorCode::unavailable, "process group", unique_id.substr(kNoRendezvous.size()));
    options = Rendezvous::options(unique_id, rank, size);
  }
  options.timeout = timeout;
  auto comm = Communicator::create(options);
  if (rendezvous) store->deleteKey(kUniqueIdKey);  // a later group of this name meets again
  // Not the text itself, which may hold the job's key.
  return {std::move(comm), size > 1 ? std::to_string(std::hash<std::string>()(unique_id)) : ""};
}

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
      return lines_of(get(prefix + "all", 0, whole));
    }
    std::string all = own + '\n';
    for (size_t rank = 1; rank < global_ranks_.size(); ++rank) {
      const std::string key = prefix + std::to_string(rank);
      all += get(key, rank, whole) + '\n';
      store_->deleteKey(key);
    }
    clear_away();
    last_ = prefix + "all";
    store_->set(last_, bytes_of(all));
    return lines_of(all);
  }
  /// Once all have read what was exchanged last.
  void clear_away() {
    if (!last_.empty()) store_->deleteKey(std::exchange(last_, {}));
  }

 private:
  using Clock = std::chrono::steady_clock;

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) lines.push_back(line);
    return lines;
  }
  /// What rank `from` sets.
  std::string get(const std::string& key, size_t from, const Communicator* whole) {
    constexpr std::chrono::milliseconds kSlice(500);
    for (;;) {
      const auto begin = Clock::now();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - begin);
      if (left.count() <= 0)
        throw Error(Failure{ErrorCode::timeout, "process group",
                            "rank " + std::to_string(global_ranks_[from]) +
                                " of the default group has not come to make the group",
                            "look at that rank's output: does it call new_group, too?",
                            global_ranks_[rank_], global_ranks_[from]});
      try {
        store_->wait({key}, std::min(left, kSlice));
        const std::vector<uint8_t> bytes = store_->get(key);
        return {bytes.begin(), bytes.end()};
      } catch (const std::exception&) {
        if (Clock::now() - begin < std::min(left, kSlice) / 2) throw;  // it did not wait
      }
      if (const auto failure = whole ? whole->failure() : std::nullopt) throw Error(*failure);
    }
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

void append(Request& all, Request more) {
  std::ranges::move(more.calls, std::back_inserter(all.calls));
  for (auto member : {&Request::inputs, &Request::outputs, &Request::temporaries})
    std::ranges::move(more.*member, std::back_inserter(all.*member));
  if (more.finish)
    all.finish = [first = std::move(all.finish), second = std::move(more.finish)] {
      if (first) first();
      second();
    };
}

}  // namespace

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                 std::chrono::milliseconds timeout,
                 const std::optional<std::vector<int>>& global_ranks)
    : c10d::Backend(rank, size), options_(c10::make_intrusive<Options>("ropewalk", timeout)) {
  try {
    const DefaultGroup of_all = Membership::default_group();
    const bool is_default = global_ranks && global_ranks->empty();
    std::optional<StoreExchange> exchange;
    Joined joined;
    if (global_ranks && size > 1 && !is_default && !of_all.job.empty()) {
      exchange.emplace(store, of_all.job, rank, *global_ranks, timeout);
      joined.comm = share(*exchange, of_all.group, rank, timeout, *global_ranks);
    }
    if (!joined.comm) joined = join(store, rank, size, timeout);
    if (exchange) exchange->clear_away();
    membership_ = Membership::begin(std::move(joined.comm), is_default ? joined.job : "");
  } catch (const Error& error) {
    std::rethrow_exception(as_backend_error(error, rank));
  }
  init();
}

Backend::~Backend() {
  try {
    shutdown();
  } catch (const std::exception& error) {
    TORCH_WARN("leaving a process group failed: ", error.what());
  }
}

std::string Backend::transport() {
  return parts("transport").group->comm->transport();
}

Membership::Parts Backend::parts(const char* operation) const {
  const std::string name = call_name(operation);
  membership_->process().require(getRank(), name.c_str());
  Membership::Parts both = membership_->parts();
  if (!both.group)
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("rank ", getRank(), ": ", name, ": the process group has been destroyed",
                 "; make another with init_process_group or new_group"));
  return both;
}

WorkPtr Backend::start(Request request, std::chrono::milliseconds timeout, bool is_async) {
  if (collected_) {
    append(*collected_, std::move(request));
    return nullptr;
  }
  const auto both = parts(request.title);
  Communicator& comm = *both.group->comm;
  const WorkInfo info{getRank(), request.type, request.title, sequence_++, timeout};
  const Tensors inputs = request.inputs, outputs = request.outputs;
  if (!is_async && request.calls.size() == 1)  // without a thread of the communicator's
    return run_now(info, both, inputs, outputs, [&] {
      comm.run(request.calls[0], timeout);
      if (request.finish) request.finish();
    });
  auto work = c10::make_intrusive<PendingWork>(info, both, inputs, outputs);
  try {
    if (request.calls.empty()) {
      work->call()->end();
      return work;
    }
    auto started = comm.start_group(request.calls);
    // The request's memory is in use until then.
    auto finish = [kept = std::make_shared<Request>(std::move(request))] {
      if (kept->finish) kept->finish();
    };
    work->call()->begin(std::move(started), std::move(finish));
  } catch (const Error& error) {
    work->call()->end();
    std::rethrow_exception(as_backend_error(error, info.rank, info.title));
  }
  both.calls->add(work->call());
  return work;
}

void Backend::startCoalescing() {
  TORCH_CHECK(!collected_, "calls are being coalesced already");
  collected_.emplace().title = "ropewalk:coalesced";
  collected_->type = c10d::OpType::COALESCED;
}

WorkPtr Backend::endCoalescing() {
  TORCH_CHECK(collected_, "no calls are being coalesced");
  Request all = std::move(*std::exchange(collected_, std::nullopt));
  return start(std::move(all), options_->timeout, true);
}

at::Tensor Backend::allocateTensor(long elements, at::TensorOptions options) {
  struct Owner {
    std::shared_ptr<Group> group;
    Buffer<std::byte> buffer;  // goes first
  };
  const auto bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
  auto owner = std::make_shared<Owner>();
  owner->group = parts("allocate_tensor").group;
  try {
    owner->buffer = owner->group->comm->allocate<std::byte>(bytes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    // DDP asks without being told to, and ordinary memory serves as well, only slower.
    TORCH_WARN("ropewalk: ordinary memory instead of registered: ", error.what());
    return at::empty({elements}, options);
  }
  return at::from_blob(
      owner->buffer.data(), {elements}, [owner](void*) {}, options);
}

void Backend::abort() {
  if (const auto group = membership_->parts().group)
    group->comm->abort("torch aborted the process group");
}

void Backend::shutdown() {
  membership_->leave();
}

}  // namespace ropewalk::pytorch

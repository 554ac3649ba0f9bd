// A rank of the job, with its key, that says what other ranks have not said. Once all believed it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "bootstrap/acceptor.h"
#include "bootstrap/dialer.h"
#include "bootstrap/registrar.h"
#include "bootstrap/statements.h"
#include "bootstrap/tree.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

/// A rank that somebody has written by hand, one thread. It joins as docs/protocol.md says.
class HandmadeRank {
 public:
  HandmadeRank(const TestJob& job, int rank) : rank_(rank), size_(job.size) {
    start_cryptography();
    keys_ = random_signing_keys();
    job_key_ = job_key(job.config.job_key.text());
    auto any = *numeric_address("127.0.0.1:1");
    any.set_port(0);
    std::vector<UniqueFd> listeners;
    listeners.push_back(listen_at(any));
    record_.rank = rank;
    record_.pid = getpid();
    record_.host_name = record_.host_id = "forger";
    record_.addresses = {local_address(listeners[0].get()).text()};
    record_.verify_key = keys_.verify_key;
    acceptor_.emplace(std::move(listeners), std::vector<UniqueFd>(), rank, job_key_);
    registration_.emplace(dial(job.coordinator(), Purpose::join, 0, job_key_));
    registration_->send(frame(Join{static_cast<uint32_t>(size_), {{20'000, record_}}}));
  }

  /// Takes the join of one rank of its group, as its local registrar, passes it on after `change`,
  /// and the places of both back. Sets `listens` once it does: who comes before is the local
  /// registrar.
  void join_another(const TestJob& job, const std::function<void(PeerRecord&)>& change,
                    std::atomic<bool>& listens) {
    std::vector<UniqueFd> listeners;
    listeners.push_back(listen_if_free(SocketAddress::abstract(
        local_registrar_name(job_key_, job.coordinator(), size_, join_group(rank_, size_)))));
    listens = true;
    ASSERT_TRUE(listeners[0]);
    Acceptor acceptor({}, std::move(listeners), rank_, job_key_);
    std::optional<FrameStream> other;
    run([&](PollSet& set) { acceptor.prepare(set, MonotonicClock().now_ns()); },
        [&](const PollSet& set, int64_t now_ns) {
          for (AuthenticatedSocket& incoming : acceptor.advance(set, now_ns)) {
            send_result(incoming, HandshakeResult::accepted);
            other.emplace(incoming.connected());
          }
          return other.has_value();
        });
    ASSERT_TRUE(other);
    auto join = decode<Join>(next(*other, FrameType::join));
    ASSERT_TRUE(join);
    change(join->joiners.at(0).record);
    registration_->send(frame(*join));
    for (int placed = 0; placed < 2;) {
      auto place = decode<Place>(next(*registration_, FrameType::place));
      ASSERT_TRUE(place);
      placed += place->ranks;
      for (; place->ranks > 0; ++place->rank, --place->ranks) {
        Place one = *place;
        one.ranks = 1;
        if (one.rank != rank_) other->send(frame(one));
      }
    }
    other->flush();
    while (other->is_open()) next(*other, FrameType::go);  // it never comes
  }

  /// Links with its parent and its children, and takes the table. `change` may change what it
  /// passes on to the children.
  void link(const std::function<void(PeerRecord&)>& change = {}) {
    const auto place = decode<Place>(next(*registration_, FrameType::place));
    ASSERT_TRUE(place);
    world_ = place->world;
    const Key key = session_key(job_key_, place->world);
    acceptor_->set_session_key(key);
    const int parent = tree_parent(rank_, size_);
    parent_.emplace(dial(place->parent.addresses.at(0), Purpose::tree, parent, key));
    accept_children();
    for (int known = 0; known < size_;) {
      auto came = decode<Records>(next(*parent_, FrameType::records));
      ASSERT_TRUE(came);
      known += static_cast<int>(came->records.size());
      for (PeerRecord& record : came->records)
        if (change) change(record);
      for (FrameStream& child : children_) {
        child.send(frame(*came));
        child.flush();
      }
    }
  }
  void finish_joining() {
    for (FrameStream& child : children_) next(child, FrameType::ready);
    parent_->send(frame(FrameType::ready));
    next(*parent_, FrameType::go);
    for (FrameStream& child : children_) {
      child.send(frame(FrameType::go));
      child.flush();
    }
  }

  /// `message` with this rank's signature, whoever is named in it.
  template <class Message>
  Bytes signed_frame(const Message& message) const {
    return frame(Signed<Message>{message, sign(keys_, world_, type_of(message), encode(message))});
  }
  void send_to_parent(const Bytes& bytes) {
    parent_->send(bytes);
    parent_->flush();
  }
  /// The next frame of that type. Its payload is empty where it does not come.
  Bytes next_from_parent(FrameType type) { return next(*parent_, type); }

 private:
  template <class Advance>
  void run(const std::function<void(PollSet&)>& prepare, const Advance& advance) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    const MonotonicClock clock;
    PollSet set;
    for (bool done = false; !done && std::chrono::steady_clock::now() < end;) {
      set.clear();
      prepare(set);
      set.wake_at(clock.now_ns() + 10 * kMillisecond_ns);
      set.wait(clock.now_ns());
      done = advance(set, clock.now_ns());
    }
  }
  ConnectedSocket dial(const std::string& address, Purpose purpose, int to, const Key& key) {
    Hello hello;
    hello.purpose = purpose;
    hello.from = static_cast<uint32_t>(rank_);
    hello.to = static_cast<uint32_t>(to);
    Dialer dialer({*numeric_address(address)}, hello, key);
    run([&](PollSet& set) { dialer.prepare(set); },
        [&](const PollSet& set, int64_t now_ns) {
          dialer.advance(set, now_ns);
          return dialer.state() != Dialer::State::working;
        });
    EXPECT_EQ(dialer.state(), Dialer::State::connected) << dialer.why();
    return dialer.take();
  }
  void accept_children() {
    const auto [begin, end] = tree_children(rank_, size_);
    const auto wanted = static_cast<size_t>(end - begin);
    run([&](PollSet& set) { acceptor_->prepare(set, MonotonicClock().now_ns()); },
        [&](const PollSet& set, int64_t now_ns) {
          for (AuthenticatedSocket& incoming : acceptor_->advance(set, now_ns)) {
            send_result(incoming, HandshakeResult::accepted);
            children_.emplace_back(incoming.connected());
          }
          return children_.size() == wanted;
        });
    EXPECT_EQ(children_.size(), wanted);
  }
  Bytes next(FrameStream& stream, FrameType type) {
    std::vector<Frame>& frames = unread_[&stream];
    Bytes payload;
    const auto take = [&] {
      const auto found = std::ranges::find(frames, type, &Frame::type);
      if (found == frames.end()) return false;
      payload = std::move(found->payload);
      frames.erase(found);
      return true;
    };
    if (take()) return payload;
    run([&](PollSet& set) { stream.prepare(set); },
        [&](const PollSet& set, int64_t) {
          for (Frame& frame : stream.advance(set)) frames.push_back(std::move(frame));
          return take() || !stream.is_open();
        });
    return payload;
  }

  const int rank_, size_;
  SigningKeys keys_;
  Key job_key_;
  PeerRecord record_;
  WorldId world_ = {};
  std::optional<Acceptor> acceptor_;
  std::optional<FrameStream> registration_, parent_;
  std::list<FrameStream> children_;
  std::map<const FrameStream*, std::vector<Frame>> unread_;
};

constexpr int kSize = 11;
constexpr int kForger = 10;  // a child of rank 1
/// Ranks that are a part of the job, too; rank 1 is the first who judges what the forger says.
const std::vector<int> kPart = {3, 1};
constexpr uint32_t kPartNumber = 7;

/// What the other ranks end with when rank 10 does `deed`.
void expect_after(const std::function<void(HandmadeRank&)>& deed, int rank, int peer,
                  const std::string& reason, const std::function<void(const World&)>& check = {}) {
  const TestJob job(kSize);
  std::atomic<int> joined{0}, told{0};
  expect_no_errors(run_world_ranks(kSize, [&](int own) {
    if (own == kForger) {
      HandmadeRank forger(job, kForger);
      ASSERT_NO_FATAL_FAILURE(forger.link());
      forger.finish_joining();
      while (joined < kSize - 1) std::this_thread::sleep_for(1ms);
      deed(forger);
      while (told < kSize - 1) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto world = job.join(own);
    if (std::ranges::count(kPart, own) != 0) world->add_part(kPartNumber, kPart);
    ++joined;
    const Failure* failure = await_failure(world->monitor(), 20'000);
    ++told;
    ASSERT_NE(failure, nullptr) << "rank " << own;
    EXPECT_EQ(failure->rank, rank) << failure->text();
    EXPECT_EQ(failure->peer, peer) << failure->text();
    EXPECT_NE(failure->reason.find(reason), std::string::npos) << failure->text();
    if (check) check(*world);
  }));
}

TEST(ForgingRank, AFailureInAnothersNameIsItsOwn) {
  const JobFailure forged{{ErrorCode::peer_lost, "control", "rank 4 died", "", 3, 4, {4}}, 0};
  expect_after([&](HandmadeRank& forger) { forger.send_to_parent(forger.signed_frame(forged)); }, 1,
               kForger,
               "rank 10 (forger, pid " + std::to_string(getpid()) +
                   ") sent a failure in the name of rank 3, which has not signed it");
}

TEST(ForgingRank, ALeaveInAnothersNameIsItsFailure) {
  const auto nobody_has_left = [](const World& world) {
    for (int rank = 0; rank < kSize; ++rank)
      EXPECT_FALSE(const_cast<World&>(world).monitor().has_left(rank)) << rank;
  };
  for (const uint32_t victim : {0u, 1u, 3u})
    expect_after(
        [&](HandmadeRank& forger) {
          forger.send_to_parent(forger.signed_frame(Leave{victim, {7, 1, "barrier"}}));
        },
        1, kForger, "sent a leave in the name of rank " + std::to_string(victim), nobody_has_left);
}

TEST(ForgingRank, AnAnswerInAnothersNameIsItsFailure) {
  expect_after(
      [](HandmadeRank& forger) {
        forger.send_to_parent(forger.signed_frame(Waits{3, {}}));
      },
      1, kForger, "sent an answer in the name of rank 3");
}

TEST(ForgingRank, WhatItSaysOfAPartInAnothersNameIsItsFailure) {
  const Failure failure{ErrorCode::aborted, "abort", "rank 0 aborted", "", 0, 0, {0}};
  const auto expect = [](const auto& message, const std::string& what) {
    expect_after([&](HandmadeRank& forger) { forger.send_to_parent(forger.signed_frame(message)); },
                 1, kForger, "sent " + what + " in the name of rank 3");
  };
  expect(PartFailure{kPartNumber, 3, failure}, "a failure");
  expect(PartLeave{kPartNumber, 3, {}}, "a leave");
  expect(PartWaits{kPartNumber, 3, {}}, "an answer");
}

TEST(ForgingRank, WhatItSaysItselfItIsKnownToSay) {
  const JobFailure claim{{ErrorCode::peer_lost, "connect", "rank 4 died", "", kForger, 4, {4}}, 0};
  expect_after([&](HandmadeRank& forger) { forger.send_to_parent(forger.signed_frame(claim)); },
               kForger, 4, "rank 4 died");
}

// What rank 3 has said in one job is handed over in the next, of the same key.
TEST(ForgingRank, WhatWasSaidInAnotherJobIsFoundToBeOld) {
  const TestJob job(kSize);
  Bytes old;
  std::atomic<bool> heard{false};
  expect_no_errors(run_world_ranks(kSize, [&](int rank) {
    if (rank == kForger) {
      HandmadeRank forger(job, kForger);
      ASSERT_NO_FATAL_FAILURE(forger.link());
      forger.finish_joining();
      old = forger.next_from_parent(FrameType::leave);
      heard = true;
      return;
    }
    const auto world = job.join(rank);
    if (rank == 3) world->leave();
    const Failure* failure = await_failure(world->monitor(), 20'000);
    ASSERT_NE(failure, nullptr);
    EXPECT_TRUE(heard) << failure->text();
  }));
  const auto leave = decode<Signed<Leave>>(old);
  ASSERT_TRUE(leave);
  ASSERT_EQ(leave->message.rank, 3u);
  expect_after([&](HandmadeRank& forger) { forger.send_to_parent(frame(*leave)); }, 1, kForger,
               "sent a leave in the name of rank 3");
}

/// A local registrar changes what a rank says of itself: that rank finds out, and nobody joins.
void expect_change_is_found(const std::function<void(PeerRecord&)>& change) {
  constexpr int kSize = 18, kLocal = 16, kVictim = 17;
  const TestJob job(kSize);
  std::atomic<bool> listens{false};
  std::atomic<int> told{0};
  expect_no_errors(run_world_ranks(kSize, [&](int rank) {
    if (rank == kLocal) {
      HandmadeRank forger(job, kLocal);
      forger.join_another(job, change, listens);
      while (told < kSize - 1) std::this_thread::sleep_for(1ms);
      return;
    }
    if (rank == kVictim)
      while (!listens) std::this_thread::sleep_for(1ms);
    std::string text = "it has joined";
    try {
      job.join(rank);
    } catch (const Error& error) {
      text = error.what();
    }
    ++told;
    EXPECT_NE(text.find(rank == kVictim ? "this rank" : "rank 17"), std::string::npos) << text;
    if (rank == kVictim) {  // what it says the others cannot tell from what a forger would
      EXPECT_NE(text.find("record was changed on the way"), std::string::npos) << text;
    }
  }));
}

TEST(ForgingRank, ARecordThatALocalRegistrarChangesIsFoundByWhoseItIs) {
  expect_change_is_found([](PeerRecord& record) { record.verify_key.fill(std::byte{1}); });
  expect_change_is_found([](PeerRecord& record) { record.leave_commitment.fill(std::byte{1}); });
  expect_change_is_found([](PeerRecord& record) { record.addresses[0] = "192.0.2.1:1"; });
}

// Once it could give those below it keys of its own for others, or other addresses.
TEST(ForgingRank, RecordsThatItChangesAreFoundByThoseBelowIt) {
  constexpr int kSize = 75, kParent = 1;  // ranks 73 and 74 are below 9, which is below 1
  const TestJob job(kSize);
  std::atomic<int> told{0};
  expect_no_errors(run_world_ranks(kSize, [&](int rank) {
    if (rank == kParent) {
      HandmadeRank forger(job, kParent);
      forger.link([](PeerRecord& record) {
        if (record.rank == 3) record.verify_key.fill(std::byte{1});
      });
      while (told < kSize - 1) std::this_thread::sleep_for(1ms);
      return;
    }
    try {
      job.join(rank);
      ADD_FAILURE() << "rank " << rank << " has joined";
    } catch (const Error& error) {
      EXPECT_EQ(error.peer(), kParent) << error.what();
      const std::string text = error.what();
      EXPECT_NE(text.find("has changed records of other ranks"), std::string::npos) << text;
    }
    ++told;
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap
